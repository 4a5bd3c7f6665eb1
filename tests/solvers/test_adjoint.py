"""The adjoint converges to backprop, whatever its solver, the times, the groups and the state."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.solvers.fields import DOUBLE, Network, some_states
from tests.solvers.test_gradients import gradients, loss_of
from windermere.errors import FieldError, NonFiniteError
from windermere.solvers import (
    METHODS,
    Adaptive,
    Adjoint,
    FixedStep,
    Gradient,
    OnGrid,
    adjoint,
    counting,
    fast_paths,
    solve,
)

TIMES = pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.4, 0.5, 1.2)])


def gap(field: Any, z: Any, solver: Any, times: Any, gradient: Gradient = "adjoint", backprop: Any = None) -> float:
    """The largest difference between the adjoint's gradient and backprop's."""
    expected = gradients(field, z, backprop if backprop is not None else solver, times)
    found = gradients(field, z, solver, times, gradient)
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("method", METHODS)
@TIMES
def test_on_a_fixed_grid_the_adjoint_converges_to_backprop_with_the_methods_order(
    method: str, times: tuple[float, ...]
) -> None:
    order = METHODS[method].order
    steps = (80, 160, 320) if order == 1 else (10, 20, 30)
    gaps = [gap(Network(), some_states(3, 2), FixedStep(method, step=1 / n), times) for n in steps]
    assert gaps[-1] < 0.02
    assert -np.polyfit(np.log(steps), np.log(gaps), 1)[0] > order - 0.4


@pytest.mark.parametrize("method", ["bosh32", "dopri54", "tsit54"])
@pytest.mark.parametrize("control", ["batch", "sample"])
@TIMES
def test_with_tolerances_the_adjoint_converges_to_backprop(method: str, control: Any, times: tuple[float, ...]) -> None:
    for tolerance in (1e-3, 1e-5, 1e-7):
        solver = Adaptive(method, tolerance=tolerance, control=control)
        assert gap(Network(), some_states(4, 2), solver, times) < 100 * tolerance


def test_fehlbergs_adjoint_converges_to_backprop() -> None:
    """Its estimate is 1/512 of an Euler step's error, so its tolerance promises less."""
    gaps = [gap(Network(), some_states(4, 2), Adaptive("fehlberg21", tolerance=tol), (0, 1)) for tol in (1e-3, 1e-5)]
    assert gaps[1] < gaps[0] / 10
    assert gaps[1] < 0.02


@pytest.mark.parametrize(
    "finer",
    [
        FixedStep("rk4", step=1 / 64),
        OnGrid("rk4", tuple(np.linspace(0, 1, 65))),
        Adaptive("dopri54", tolerance=1e-8),
        Adaptive("tsit54", tolerance=1e-8, control="sample"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "coarse", [FixedStep("heun", step=1 / 32), Adaptive("dopri54", tolerance=1e-9, control="sample")], ids=str
)
def test_the_adjoint_may_have_a_solver_of_its_own(coarse: Any, finer: Any) -> None:
    """Its gradient is then that of the flow, from the end that the forward solver reached."""
    network, z, times = Network(), some_states(3, 2), (0.0, 1.0)
    exact = gradients(network, z, FixedStep("rk4", step=1 / 100), times)
    found = gradients(network, z, coarse, times, Adjoint(solver=finer))
    own = gradients(network, z, coarse, times, "adjoint")
    for got, mine, want in zip(found, own, exact, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=3e-3 if isinstance(coarse, FixedStep) else 1e-6)
        assert not torch.equal(got, mine)


def test_a_finer_adjoint_costs_its_own_evaluations() -> None:
    with counting() as count:
        gradients(
            Network(),
            some_states(2, 2),
            FixedStep("heun", step=1 / 8),
            (0.0, 1.0),
            Adjoint(FixedStep("rk4", step=1 / 3)),
        )
    assert (count.forward, count.backward) == (16, 12)


class Pair(torch.nn.Module):
    """A field of a tuple whose parts differ in shape."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Network(width=3)

    def forward(self, t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rate = self.inner(t, torch.cat([z[0], z[1].unsqueeze(-1)], dim=-1))
        return rate[..., :2], rate[..., 2]


@pytest.mark.parametrize(
    "solver",
    [
        FixedStep("rk4", step=1 / 20),
        Adaptive("dopri54", tolerance=1e-7),
        Adaptive("dopri54", tolerance=1e-7, control="sample"),
    ],
    ids=lambda s: getattr(s, "control", "fixed"),
)
@TIMES
def test_the_adjoint_of_a_tuple_converges_to_backprop(solver: Any, times: tuple[float, ...]) -> None:
    z = (some_states(4, 2), some_states(4, seed=1))
    assert gap(Pair(), z, solver, times) < 1e-5
    assert gap(Pair(), z, solver, times, Adjoint(Adaptive("tsit54", tolerance=1e-8))) < 1e-5


def test_the_adjoint_of_parts_that_share_no_axis_converges_to_backprop() -> None:
    class Unshared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = torch.nn.Parameter(torch.tensor(0.3, dtype=DOUBLE))

        def forward(self, t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return torch.sin(self.rate * z[0]) + z[1], -z[1] * z[0].mean()

    z = (some_states(2, 3), torch.tensor(0.4, dtype=DOUBLE))
    assert gap(Unshared(), z, Adaptive("dopri54", tolerance=1e-8), (0.0, 1.0)) < 1e-6


@pytest.mark.parametrize(
    "solver", [FixedStep("rk4", step=1 / 4), Adaptive("dopri54", tolerance=1e-3, control="sample")], ids=str
)
def test_a_plain_function_that_hides_parameters_is_refused(solver: Any) -> None:
    network = Network()
    with pytest.raises(FieldError, match=r"make it an nn.Module, or give gradient=Adjoint\(parameters=...\)"):
        solve(lambda t, z: network(t, z), some_states(2, 2), solver, gradient="adjoint")


def test_a_plain_function_without_parameters_has_the_gradient_of_its_state() -> None:
    z = some_states(3, 2)
    assert gap(lambda t, z: torch.sin(t + z), z, FixedStep("rk4", step=1 / 30), (0.0, 1.0)) < 1e-5


def test_parameters_given_by_hand_have_their_gradient() -> None:
    network, z = Network(), some_states(3, 2)
    solver = FixedStep("rk4", step=1 / 30)
    gradient = Adjoint(parameters=tuple(network.parameters()))
    final = solve(lambda t, z: network(t, z), z, solver, gradient=gradient).final
    found = torch.autograd.grad(loss_of(final), list(network.parameters()))
    expected = torch.autograd.grad(loss_of(solve(network, z, solver).final), list(network.parameters()))
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_frozen_parameter_has_no_gradient_and_the_others_have_theirs() -> None:
    network, z = Network(), some_states(3, 2)
    network.inner.requires_grad_(False)
    solver = FixedStep("rk4", step=1 / 30)
    for parameters in (None, tuple(network.parameters())):
        final = solve(network, z, solver, gradient=Adjoint(parameters=parameters)).final
        found = torch.autograd.grad(loss_of(final), list(network.outer.parameters()))
        expected = torch.autograd.grad(loss_of(solve(network, z, solver).final), list(network.outer.parameters()))
        for got, want in zip(found, expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_parameter_that_the_field_does_not_use_has_a_gradient_of_zero() -> None:
    network = Network()
    network.idle = torch.nn.Parameter(torch.ones(2, dtype=DOUBLE))
    solved = solve(network, some_states(3, 2), FixedStep("rk4", step=1 / 4), gradient="adjoint").final
    loss_of(solved).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(network.idle.grad, torch.zeros(2, dtype=DOUBLE))


def test_a_field_that_ignores_the_state_carries_the_gradient_back_unchanged() -> None:
    z = some_states(3, 2).requires_grad_()
    final = solve(lambda t, z: torch.ones_like(z) * t, z, FixedStep("rk4", step=1 / 4), gradient="adjoint").final
    assert isinstance(final, Tensor)
    (found,) = torch.autograd.grad(final.sum(), z)
    assert torch.equal(found, torch.ones_like(z))


def test_a_failure_of_the_adjoints_solve_is_named() -> None:
    """Euler's steps are far too long for the adjoint of this stiff field, and its cotangent is near overflow."""
    start = some_states(3, 2).requires_grad_()
    gradient = Adjoint(FixedStep("euler", step=1 / 4))
    final = solve(lambda t, z: -60 * z, start, FixedStep("rk4", step=1 / 100), gradient=gradient).final
    assert isinstance(final, Tensor)
    with pytest.raises(NonFiniteError, match=r"^on the adjoint.s way back, the rate of .* is not finite at t = 0"):
        (1e305 * final).sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "solver",
    [
        FixedStep("rk4", step=1 / 10),
        Adaptive("dopri54", tolerance=1e-4),
        Adaptive("dopri54", tolerance=1e-4, control="sample"),
        [FixedStep("rk4", step=1 / 10)] * 2,
        [FixedStep("rk4", step=1 / 10), FixedStep("rk4", step=1 / 5)],
        [Adaptive("dopri54", tolerance=1e-4)] * 2,
    ],
    ids=["fixed", "batch", "sample", "members", "members' own", "adaptive members"],
)
def test_the_adjoints_way_back_tells_how_many_samples_it_fails_for(solver: Any) -> None:
    """The field at rest is finite, its derivative there is not; a gradient that is none is not the field's fault."""
    many = 2 if isinstance(solver, list) else 1
    z = torch.ones(3, 2)
    z[0, 1] = z[2] = 0
    start = (z.expand(2, 3, 2) if many == 2 else z).clone().requires_grad_()
    final = solve(lambda t, z: z.sqrt() - z, start, solver, gradient="adjoint").final
    assert isinstance(final, Tensor)
    where = rf"for {2 * many} of {3 * many} samples"
    with pytest.raises(
        NonFiniteError, match=rf"^on the adjoint's way back, the rate of .* is not finite at .* {where}"
    ):
        final.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(NonFiniteError, match=rf"way back, the gradient is not finite at t = 1 {where}: look at what"):
        (final * torch.where(z == 0, torch.inf, 1.0)).nansum().backward()  # type: ignore[no-untyped-call]


class Driven(torch.nn.Module):
    """A network with a tensor beside it that is none of its parameters."""

    def __init__(self, drive: Tensor) -> None:
        super().__init__()
        self.network, self.drive, self.calls = Network(), drive, 0

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.calls += 1
        return self.network(t, z) + self.drive


SOLVERS = pytest.mark.parametrize(
    "solver", [FixedStep("rk4", step=1 / 4), Adaptive("dopri54", tolerance=1e-3, control="sample")], ids=str
)


@SOLVERS
@pytest.mark.parametrize("made", [False, True], ids=["leaf", "made"])
def test_a_module_that_hides_a_tensor_is_refused(solver: Any, made: bool) -> None:
    hidden = some_states(2).requires_grad_()
    field = Driven(torch.tanh(hidden) if made else hidden)
    final = solve(field, some_states(3, 2), solver, gradient="adjoint").final
    with pytest.raises(
        FieldError, match=r"a tensor of shape \(2,\) that needs a gradient and that the adjoint does not"
    ):
        loss_of(final).backward()  # type: ignore[no-untyped-call]
    field.requires_grad_(False)
    with pytest.raises(
        FieldError, match=r"a tensor of shape \(2,\) that needs a gradient and that the adjoint does not"
    ):
        solve(field, some_states(3, 2), solver, gradient="adjoint")


@SOLVERS
def test_a_tensor_that_the_adjoint_is_told_of_has_its_gradient(solver: Any) -> None:
    leaf, z = some_states(2).requires_grad_(), some_states(3, 2)
    drive = torch.tanh(leaf)
    field = Driven(drive)
    finer = Adaptive("dopri54", tolerance=1e-9)
    gradient = Adjoint(finer, parameters=(*field.parameters(), drive))
    (found,) = torch.autograd.grad(loss_of(solve(field, z, finer, gradient=gradient).final), leaf, retain_graph=True)
    (expected,) = torch.autograd.grad(loss_of(solve(field, z, finer).final), leaf)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    final = solve(field, z, solver, gradient=Adjoint(parameters=(drive,))).final
    with pytest.raises(FieldError, match="needs a gradient and that the adjoint does not know of"):
        loss_of(final).backward()  # type: ignore[no-untyped-call]


class OwnDerivatives(nn.Module):
    """As FFJORD's code has it: the field asks for derivatives by what it is given, the time too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Network()

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z, t = state[0].requires_grad_(), t.requires_grad_()
            rate = self.inner(t, z)
            (pulled,) = torch.autograd.grad(rate, z, torch.ones_like(z), create_graph=True)
        return rate, pulled.sum(dim=1)


@pytest.mark.parametrize("trains", [True, False])
def test_a_field_that_asks_for_derivatives_by_its_own_arguments_hides_nothing(trains: bool) -> None:
    field = OwnDerivatives().requires_grad_(trains)
    z, solver = (some_states(3, 2), torch.zeros(3, dtype=DOUBLE)), FixedStep("rk4", step=1 / 64)
    adjoint, backprop = (solve(field, z, solver, gradient=way).final for way in ("adjoint", "backprop"))
    torch.testing.assert_close(adjoint, backprop)
    if trains:
        found, expected = (
            torch.autograd.grad(loss_of(end[0]) + loss_of(end[1]), list(field.parameters()), allow_unused=True)
            for end in (adjoint, backprop)
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-6, atol=1e-6)


def test_looking_for_what_is_hidden_takes_no_evaluation() -> None:
    field = Driven(some_states(2))
    with counting() as count:
        loss_of(solve(field, some_states(3, 2), FixedStep("rk4", step=1 / 4), gradient="adjoint").final).backward()  # type: ignore[no-untyped-call]
    assert field.calls == count.forward + count.backward == 32


def test_parameters_given_as_a_generator_have_their_gradient_every_time() -> None:
    network, z = Network(), some_states(3, 2)
    gradient = Adjoint(parameters=network.parameters())
    first, second = (
        torch.autograd.grad(
            loss_of(solve(network, z, FixedStep("rk4", step=1 / 4), gradient=gradient).final),
            list(network.parameters()),
        )
        for _ in range(2)
    )
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_what_is_recorded_on_the_way_has_no_gradient_rather_than_a_wrong_one() -> None:
    z = some_states(3, 2).requires_grad_()
    solution = solve(Network(), z, FixedStep("rk4", step=1 / 4), gradient="adjoint", record=True)
    assert solution.trajectory is not None
    assert not torch.as_tensor(solution.trajectory.states).requires_grad
    assert torch.as_tensor(solution.final).requires_grad


def test_an_end_that_is_changed_in_place_has_the_same_gradient() -> None:
    """A layer such as nn.ReLU(inplace=True) writes to what the solve has handed on, and the way back starts from it."""
    found = []
    for in_place in (True, False):
        field, z = Network(), some_states(4, 2).requires_grad_()
        end: Any = solve(field, z, Adaptive("dopri54", tolerance=1e-6), gradient="adjoint").final
        doubled = end.mul_(2) if in_place else 2 * end
        found.append(torch.autograd.grad(doubled.square().sum(), [z, *field.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_loss_on_the_first_and_the_last_state_has_both_gradients() -> None:
    field, z = Network(), some_states(4, 2).requires_grad_()
    states: Any = solve(field, z, FixedStep("rk4", step=1 / 8), gradient="adjoint").states
    (both,) = torch.autograd.grad(states.square().sum(), z, retain_graph=True)
    (last,) = torch.autograd.grad(states[1].square().sum(), z)
    assert torch.equal(both, last + 2 * z)


@pytest.mark.parametrize("solver", [FixedStep("rk4", step=1 / 4), Adaptive("bosh32", tolerance=1e-3)])
@pytest.mark.parametrize("fast", [True, False])
def test_a_hook_on_a_parameter_sees_its_whole_gradient_once(solver: Any, fast: bool) -> None:
    """As one that clips gradients: on each step's share of it, it would clip another sum."""
    field, seen, found = Network(), list[Tensor](), []

    def halved(on: Tensor) -> Tensor:
        seen.append(on)
        return on / 2

    with fast_paths(fast):
        for _ in range(2):
            end: Any = solve(field, some_states(3, 2), solver, gradient="adjoint").final
            field.zero_grad()
            end.square().sum().backward()
            found.append([torch.zeros(()) if p.grad is None else p.grad for p in field.parameters()])
            for p in field.parameters():
                p.register_hook(halved)  # type: ignore[no-untyped-call]
    whole, halves = found
    assert len(seen) == len(halves)
    torch.testing.assert_close(halves, [on / 2 for on in whole])


def test_hooks_stay_where_they_are_while_another_thread_may_call_them(monkeypatch: pytest.MonkeyPatch) -> None:
    another = -1
    monkeypatch.setattr(adjoint, "_hooked_in", {another})
    field, there = Network(), list[bool]()
    weight = next(field.parameters())
    weight.register_hook(lambda on: there.append(bool(weight._backward_hooks)))  # type: ignore[no-untyped-call]
    with fast_paths(False):
        end: Any = solve(field, some_states(3, 2), FixedStep("rk4", step=1 / 4), gradient="adjoint").final
        end.square().sum().backward()
    assert len(there) == 1 + 4  # each step's share, and the whole
    assert all(there)
