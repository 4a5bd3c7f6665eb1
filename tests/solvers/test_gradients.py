"""The gradient of a solve: backprop against finite differences, checkpoint against backprop."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from tests.solvers.fields import DOUBLE, Network, some_states
from windermere.errors import UnknownNameError, UsageError
from windermere.nn import ODEBlock
from windermere.solvers import METHODS, Adaptive, FixedStep, Gradient, OnGrid, Solver, adaptive_names, solve

FIXED: list[Solver] = [*(FixedStep(name, step=1 / 3) for name in METHODS), OnGrid("rk4", (0, 0.1, 1))]
ADAPTIVE: list[Adaptive] = [
    Adaptive(name, tolerance=1e-3, control=control) for name in adaptive_names() for control in ("batch", "sample")
]


def named(solver: Any) -> str:
    return f"{solver}, {getattr(solver, 'control', 'fixed')}"


def loss_of(states: Any) -> Tensor:
    """Uses every state asked for, each entry with another weight."""
    parts = states if isinstance(states, tuple) else (states,)
    weights = [torch.arange(1.0, 1 + part.numel(), dtype=part.dtype).sin().view_as(part) for part in parts]
    return torch.stack([(w * part.square()).sum() for w, part in zip(weights, parts, strict=True)]).sum()


def gradients(
    field: Any, z: Any, solver: Any, times: Any = (0.0, 1.0), gradient: Gradient = "backprop"
) -> list[Tensor]:
    """Of the initial state's parts, and of the field's parameters."""
    start = tuple(part.clone().requires_grad_() for part in (z if isinstance(z, tuple) else (z,)))
    solution = solve(field, start if isinstance(z, tuple) else start[0], solver, times, gradient=gradient)
    wanted = [*start, *(field.parameters() if isinstance(field, torch.nn.Module) else ())]
    return list(torch.autograd.grad(loss_of(solution.states), wanted))


def gentle(speed: Tensor) -> Any:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return speed * torch.sin(t + z) + z.flip(-1) / 2

    return field


def inputs() -> tuple[Tensor, Tensor]:
    return some_states(2, 2).requires_grad_(), torch.tensor(0.8, dtype=DOUBLE, requires_grad=True)


@pytest.mark.parametrize("solver", FIXED, ids=named)
@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0)])
def test_a_fixed_solves_gradient_is_that_of_finite_differences(solver: Solver, times: tuple[float, ...]) -> None:
    def end(z: Tensor, speed: Tensor) -> Any:
        return solve(gentle(speed), z, solver, times).final

    assert gradcheck(end, inputs(), eps=1e-6, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("method", adaptive_names())
@pytest.mark.parametrize("control", ["batch", "sample"])
def test_an_adaptive_solves_gradient_is_that_of_finite_differences(method: str, control: Any) -> None:
    """Finite differences move the steps as well, which moves the end by less than the local error: hence tight."""
    loose = {"fehlberg21": (1e-6, 1e-3), "heun21": (1e-6, 1e-3), "bosh32": (1e-7, 1e-5)}
    tolerance, atol = loose.get(method, (1e-9, 1e-6))
    solver = Adaptive(method, tolerance=tolerance, control=control)

    def end(z: Tensor, speed: Tensor) -> Any:
        return solve(gentle(speed), z, solver, (0.0, 0.3)).final

    assert gradcheck(end, inputs(), eps=1e-5, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("solver", ADAPTIVE, ids=named)
def test_an_adaptive_solves_gradient_is_exactly_that_of_the_steps_it_took(solver: Adaptive) -> None:
    """As on a fixed grid of those steps, group by group: choosing them is outside the gradient."""
    network, z = Network(), some_states(3, 2)
    times = (0.0, 2.0)
    solution = solve(network, z, solver, times, record=True)
    assert solution.trajectory is not None
    walked = solution.trajectory.times.reshape(len(solution.trajectory.times), -1).T
    grids = [OnGrid(solver.method, tuple(dict.fromkeys(own.tolist()))) for own in walked]
    expected = gradients(network, z, solver, times)
    if solver.control == "batch":
        replayed = gradients(network, z, grids[0], times)
    else:
        replayed = gradients(network, z, grids, times)
    for got, want in zip(replayed, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("solver", [*FIXED, *ADAPTIVE], ids=named)
@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.1, 0.0)])
def test_checkpoint_gives_the_same_states_and_the_same_gradient(solver: Solver, times: tuple[float, ...]) -> None:
    network, z = Network(), some_states(4, 2)
    plain = solve(network, z, solver, times)
    kept = solve(network, z, solver, times, gradient="checkpoint")
    assert torch.equal(kept.states, plain.states)
    expected = gradients(network, z, solver, times)
    for got, want in zip(gradients(network, z, solver, times, "checkpoint"), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", ["ragged", "adaptive", "tuple"])
def test_checkpoint_gives_the_same_gradient_for_ensembles_and_tuples(kind: str) -> None:
    network = Network()
    solvers: Any = {
        "ragged": [FixedStep("rk4", step=1 / 3), FixedStep("rk4", step=1 / 5)],
        "adaptive": [Adaptive("dopri54", tolerance=1e-2), Adaptive("dopri54", tolerance=1e-4)],
        "tuple": FixedStep("rk4", step=1 / 3),
    }[kind]

    class Apart(Network):
        def forward(self, t: Tensor, z: Any) -> Any:
            rate = super().forward(t, torch.stack(z, dim=-1))
            return rate[..., 0], rate[..., 1]

    z: Any = some_states(2, 3, 2)
    field: Any = network
    if kind == "tuple":
        field, z = Apart(), (some_states(3), some_states(3, seed=1))
    expected = gradients(field, z, solvers)
    for got, want in zip(gradients(field, z, solvers, gradient="checkpoint"), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)


def saved_bytes(gradient: Gradient, steps: int, hidden: int = 200) -> int:
    """What autograd keeps of a forward solve, each storage once; the network's own parameters aside."""
    network, storages = Network(hidden=hidden), dict[int, int]()
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}

    def pack(x: Tensor) -> Tensor:
        if x.untyped_storage().data_ptr() not in own:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        final = solve(network, some_states(50, 2), FixedStep.of("rk4", steps=steps), gradient=gradient).final
    assert isinstance(final, Tensor)
    return sum(storages.values())


def test_checkpoint_keeps_the_state_of_each_step_and_no_activations() -> None:
    """Backprop keeps 4 hidden layers of 200 a step, checkpoint a state of 2."""
    assert saved_bytes("checkpoint", 16) * 20 < saved_bytes("backprop", 16)
    state = 50 * 2 * 8
    assert saved_bytes("checkpoint", 32) - saved_bytes("checkpoint", 16) <= 2 * 16 * state
    assert saved_bytes("adjoint", 32) <= saved_bytes("adjoint", 8) <= 4 * state


def test_a_gradient_can_be_taken_twice_where_the_graph_is_kept() -> None:
    network = Network()
    for gradient in ("backprop", "checkpoint", "adjoint"):
        z = some_states(2, 2).requires_grad_()
        loss = loss_of(solve(network, z, FixedStep("rk4", step=1 / 3), gradient=gradient).final)
        first = torch.autograd.grad(loss, z, retain_graph=True)
        assert torch.equal(first[0], torch.autograd.grad(loss, z)[0])


def test_second_derivatives_go_through_backprop() -> None:
    def end(z: Tensor) -> Any:
        return solve(lambda t, z: torch.sin(z + t), z, FixedStep("rk4", step=1 / 2)).final

    assert torch.autograd.gradgradcheck(end, (some_states(2).requires_grad_(),))


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_without_gradients_nothing_is_kept(gradient: Gradient) -> None:
    with torch.no_grad():
        final = solve(Network(), some_states(3, 2), FixedStep("rk4", step=1 / 3), gradient=gradient).final
    assert isinstance(final, Tensor)
    assert not final.requires_grad


def test_an_unknown_gradient_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="no gradient 'adjiont': did you mean 'adjoint'"):
        solve(Network(), some_states(3, 2), FixedStep("rk4", step=1 / 3), gradient="adjiont")  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", [FixedStep("rk4", step=1 / 3), Adaptive("dopri54", tolerance=1e-3)], ids=named)
def test_checkpoint_refuses_to_run_again_with_other_parameters(solver: Solver) -> None:
    field, z = Network(), some_states(3, 2)
    changed = solve(field, z, solver, gradient="checkpoint").final
    with torch.no_grad():
        next(field.parameters()).add_(0)
    with pytest.raises(UsageError, match="no longer those of the solve"):
        loss_of(changed).backward()  # type: ignore[no-untyped-call]
    lent = {name: (2 * p.detach()).requires_grad_() for name, p in field.named_parameters()}
    block = ODEBlock(field, solver, gradient="checkpoint")
    swapped = functional_call(block, {f"field.{name}": p for name, p in lent.items()}, (z,))
    with pytest.raises(UsageError, match="functional_call"):
        torch.autograd.grad(loss_of(swapped), list(lent.values()))
