"""Fields as users write them, solved in C, against PyTorch step by step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.fields import KINDS, Hamiltonian, Likelihood, WithTime, made
from tests.fast.layers import SMOOTH
from tests.fast.spheres import DOUBLE, assert_same
from windermere.fast.cpu import compiled

SOLVES = [
    (wm.FixedStep("euler", step=1 / 5), {}),
    (wm.FixedStep("rk4", step=1 / 3), {"times": (0.5, 0.1, -0.4)}),
    (wm.OnGrid("midpoint", (0.0, 0.1, 0.5, 1.0)), {"times": (0.0, 0.5, 1.0)}),
    (wm.Adaptive("dopri54", tolerance=1e-4), {}),
    (wm.Adaptive("fehlberg21", tolerance=1e-2), {"times": (0.0, 0.3, 0.35, 0.9)}),
    (wm.Adaptive("bosh32", tolerance=1e-3), {"times": (1.0, 0.7, 0.65, 0.1)}),
    (wm.Adaptive("tsit54", tolerance=1e-4), {"times": (0.0, 0.02, 0.3, 1.0)}),
    (wm.Adaptive("dopri54", tolerance=1e-3), {"times": (0.0, 0.3, 0.35, 0.9), "interpolate": False}),
    (wm.Adaptive("dopri54", tolerance=1e-4), {"gradient": "adjoint"}),
    (wm.Adaptive("dopri54", tolerance=1e-4), {"times": (0.0, 0.3, 0.9), "gradient": "adjoint"}),
]
OVER_GRIDS: list[tuple[Any, Any]] = [
    (wm.FixedStep("rk4", step=1 / 3), None),
    (wm.FixedStep("bosh32", step=0.4), (0.0, 0.3, 0.9)),
    (wm.OnGrid("dopri54", (0.9, 0.8, 0.3, 0.0)), (0.9, 0.3, 0.0)),
]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")


@pytest.mark.parametrize(("solver", "times"), OVER_GRIDS, ids=str)
@pytest.mark.parametrize(("kind", "widths"), KINDS)
def test_an_adjoint_with_fixed_steps_is_that_of_pytorch_step_by_step_and_costs_as_much(
    kind: Callable[[], nn.Module], widths: tuple[int, ...], solver: Any, times: Any, taken: list[str]
) -> None:
    counts = []
    for fast in (True, False):
        with wm.counting() as count:
            solved(made(kind), state(widths), solver, fast=fast, times=times, gradient="adjoint")
        counts.append(count)
    assert counts[0] == counts[1]
    assert_as_step_by_step(made(kind), state(widths), solver, times=times, gradient="adjoint")
    assert taken == ["there", *["adjoin"] * (len(times or (0, 1)) - 1)] * 2


def test_an_adjoint_with_fixed_steps_that_blows_up_says_so_as_step_by_step(taken: list[str]) -> None:
    field, said = made(WithTime), []
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(5)
    for fast in (True, False):
        with wm.fast_paths(fast):
            end: Any = wm.solve(field, state((2,)), wm.FixedStep("euler", step=1 / 4), gradient="adjoint").final
        loss = (1e308 * end).sum()
        with pytest.raises(wm.errors.NonFiniteError) as error:
            loss.backward()
        said.append(str(error.value))
    assert said[0] == said[1]
    assert taken == ["there", "adjoin"]


def test_an_adjoint_with_too_many_fixed_steps_is_refused_as_step_by_step() -> None:
    said = []
    for fast in (True, False):
        back = wm.Adjoint(solver=wm.FixedStep("euler", step=1e-12))
        with wm.fast_paths(fast):
            end: Any = wm.solve(made(WithTime), state((2,)), wm.FixedStep("euler", step=1 / 4), gradient=back).final
        with pytest.raises(wm.errors.StepBudgetError) as error:
            end.sum().backward()
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_the_final_state_may_be_written_to_and_the_states_stay_as_they_were(gradient: Any, taken: list[str]) -> None:
    solution: Any = wm.solve(
        made(WithTime), state((2,)), wm.FixedStep("rk4", step=0.3), (0.0, 0.5, 1.0), gradient=gradient
    )
    before = solution.states.detach().clone()
    solution.final.mul_(2).sum().backward()
    assert torch.equal(solution.states, before)
    assert taken[0] == "there"


def state(widths: tuple[int, ...], samples: int = 11) -> Any:
    random = torch.Generator().manual_seed(5)
    parts = tuple(torch.rand(samples, w, generator=random, dtype=DOUBLE).requires_grad_() for w in widths)
    return parts if len(parts) > 1 else parts[0]


def together(parts: Any) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(parts, dim=-1)


def solved(field: Any, z: Any, solver: Any, *, fast: bool, **named: Any) -> tuple[list[Tensor], Any]:
    """All states and the gradients of a sum of them, each with a weight of its own; and what the solve cost."""
    with wm.fast_paths(fast), wm.counting() as count:
        solution = wm.solve(field, z, solver, **named)
        states = together(solution.states)
        weight = torch.cos(torch.arange(states.numel(), dtype=DOUBLE, device=states.device)).view_as(states)
        given = [z] if isinstance(z, Tensor) else list(z)
        own = list(field.parameters()) if isinstance(field, nn.Module) else []
        found = torch.autograd.grad((weight * states).sum(), [*given, *own], allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip([*given, *own], found, strict=True)]
    return [states, *gradients], (solution.stats, count.backward)


def assert_as_step_by_step(field: Any, z: Any, solver: Any, **named: Any) -> None:
    (found, cost), (wanted, slow) = (solved(field, z, solver, fast=fast, **named) for fast in (True, False))
    assert cost == slow
    assert_same(found, wanted)


@pytest.mark.parametrize(("solver", "named"), SOLVES, ids=lambda x: str(x)[:60])
@pytest.mark.parametrize(("kind", "widths"), KINDS)
def test_a_solve_and_its_gradients_are_those_of_pytorch_step_by_step(
    kind: Callable[[], nn.Module], widths: tuple[int, ...], solver: Any, named: Any, taken: list[str]
) -> None:
    assert_as_step_by_step(made(kind), state(widths), solver, **named)
    back = ["adapt"] * (len(named.get("times", (0, 1))) - 1) if "gradient" in named else ["back"]
    assert taken == ["adapt" if isinstance(solver, wm.Adaptive) else "there", *back]


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize(("kind", "widths"), [(Hamiltonian, (4,)), (Likelihood, (2, 1))])
def test_derivatives_inside_a_field_are_followed_through_every_activation(
    kind: Any, widths: tuple[int, ...], activation: Any, taken: list[str]
) -> None:
    assert_as_step_by_step(made(lambda: kind(activation)), state(widths), wm.FixedStep("midpoint", step=1 / 2))
    assert taken == ["there", "back"]


@pytest.mark.parametrize("samples", [1, 7, 8, 9, 16, 33])
def test_any_number_of_samples_is_taken(samples: int, taken: list[str]) -> None:
    assert_as_step_by_step(made(WithTime), state((2,), samples), wm.Adaptive("dopri54", tolerance=1e-4))
    assert taken == ["adapt", "back"]


def test_single_precision_is_as_good_as_pytorchs() -> None:
    field, z = made(Likelihood), state((2, 1))
    exact, _ = solved(field, z, wm.FixedStep("rk4", step=1 / 8), fast=False)
    low = tuple(part.detach().float().requires_grad_() for part in z)
    found, _ = solved(field.float(), low, wm.FixedStep("rk4", step=1 / 8), fast=True)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.0, 0.3, 0.35, 1.0)])
@pytest.mark.parametrize("solver", [wm.FixedStep("rk4", step=1 / 2), wm.Adaptive("bosh32", tolerance=1e-2)], ids=str)
def test_gradients_can_be_differentiated_again(solver: Any, times: Any, taken: list[str]) -> None:
    field, found = made(WithTime), []
    for fast in (True, False):
        z, weights = state((2,), 3), list(field.parameters())
        with wm.fast_paths(fast):
            states: Any = wm.solve(field, z, solver, times).states
            first = torch.autograd.grad(states.square().sum(), [z, *weights], create_graph=True)
            found.append(list(torch.autograd.grad(sum(g.square().sum() for g in first), [z, *weights])))  # type: ignore[arg-type]
    assert taken[1:] == ["back"]
    assert_same(found[0], found[1])


class Stepped(nn.Module):
    """A field that depends on its parameter by which side of it a state is on."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Parameter(torch.full((2,), 0.3))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        with torch.enable_grad():
            z = z if z.requires_grad else z.detach().requires_grad_()
            return torch.autograd.grad(torch.relu(z - self.edge).sum(), z, create_graph=True)[0]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_gradient_of_zero_can_be_differentiated_again(wanted: bool, taken: list[str]) -> None:
    field: Any = made(Stepped)
    end: Any = wm.solve(field, state((2,)).detach().requires_grad_(wanted), wm.FixedStep("rk4", step=1 / 3)).final
    (found,) = torch.autograd.grad(end.sum(), field.edge, create_graph=True)
    assert torch.equal(found, torch.zeros_like(found))
    assert taken == ["there"]


def test_who_asks_for_the_gradient_of_the_state_alone_gets_it(taken: list[str]) -> None:
    field, z = made(WithTime).requires_grad_(False), state((2,))
    gradients: list[Any] = ["backprop", "adjoint"]
    for gradient in gradients:
        ends: Any = [
            together(wm.solve(field, z, wm.Adaptive("dopri54", tolerance=1e-4), gradient=gradient).final),
            together(wm.solve(made(WithTime), z, wm.Adaptive("dopri54", tolerance=1e-4), gradient=gradient).final),
        ]
        found, wanted = (torch.autograd.grad(end.square().sum(), z)[0] for end in ends)
        assert_same([found], [wanted])
    assert taken.count("adapt") == 6


class Masked(nn.Module):
    """A network whose weight is masked, by entries or by their places."""

    mask: Tensor

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("mask", torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=kind))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(z @ (self.weight * self.mask))


class Turned(nn.Module):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z**3 @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=z.dtype)


@pytest.mark.parametrize("solver", [wm.FixedStep("rk4", step=1 / 3), wm.Adaptive("dopri54", tolerance=1e-4)], ids=str)
@pytest.mark.parametrize("kind", [torch.bool, torch.int64], ids=str)
def test_an_adjoint_goes_through_what_is_made_of_tensors_that_have_no_gradients(
    kind: torch.dtype, solver: Any, taken: list[str]
) -> None:
    assert_as_step_by_step(made(lambda: Masked(kind)), state((3,)), solver, gradient="adjoint")
    assert taken[1:] == ["adapt" if isinstance(solver, wm.Adaptive) else "adjoin"]


def test_so_it_does_where_there_is_nothing_else(taken: list[str]) -> None:
    assert_as_step_by_step(Turned(), state((2,)), wm.Adaptive("dopri54", tolerance=1e-4), gradient="adjoint")
    assert taken == ["adapt", "adapt"]


class Summed(nn.Module):
    """A field with a weight that is the sum of two parameters and of what is the same in each row."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.row = (nn.Parameter(0.3 * torch.randn(n)) for n in ((2, 2), (2, 2), (2,)))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(z @ (self.one + self.other + self.row.sum()))


def test_an_adjoint_adds_up_between_times_what_a_sum_hands_on_to_its_terms(taken: list[str]) -> None:
    solver = wm.Adaptive("dopri54", tolerance=1e-4)
    assert_as_step_by_step(made(Summed), state((2,)), solver, times=(0.0, 0.3, 0.9, 1.2), gradient="adjoint")
    assert taken == ["adapt"] * 4


class Halved(nn.Module):
    """A field of which half is thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.other = nn.Linear(2, 2), nn.Parameter(torch.zeros(3))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.cat([torch.tanh(z), self.idle(z)], dim=1)[:, :2]


@pytest.mark.parametrize("solver", [wm.FixedStep("rk4", step=1 / 3), wm.Adaptive("dopri54", tolerance=1e-4)], ids=str)
@pytest.mark.parametrize("wanted", [False, True])
def test_an_adjoints_gradients_of_what_it_does_not_depend_on_are_zero(
    wanted: bool, solver: Any, taken: list[str]
) -> None:
    field, z = made(Halved), state((2,)).requires_grad_(wanted)
    end: Any = wm.solve(field, z, solver, gradient="adjoint").final
    end.sum().backward()
    assert all(p.grad is not None and p.grad.eq(0).all() for p in field.parameters())
    assert taken == (["adapt"] * 2 if isinstance(solver, wm.Adaptive) else ["there", "adjoin"])


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_a_hyperbolic_tangent_errs_by_few_roundings_and_is_never_above_1(dtype: torch.dtype, taken: list[str]) -> None:
    size = torch.logspace(-12, 2, 4001, dtype=DOUBLE).to(dtype)
    x = torch.cat([size, -size, torch.linspace(0, 10, 4001, dtype=dtype)]).unsqueeze(1)

    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.cat([0 * z[:, :1], torch.tanh(z[:, :1])], dim=1)

    end: Any = wm.solve(field, torch.cat([x, 0 * x], dim=1), wm.FixedStep("euler", step=1.0)).final
    found, wanted = end[:, 1], torch.tanh(x.double()).squeeze(1)
    assert ((found.double() - wanted).abs() <= 3 * torch.finfo(dtype).eps * wanted.abs()).all()
    assert found.abs().max() == 1
    assert taken == ["there"]


@pytest.mark.parametrize("function", [torch.sign, lambda x: x**0])
@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_what_has_a_gradient_of_zero_can_be_differentiated(function: Any, gradient: Any, taken: list[str]) -> None:
    class Stepped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.5, -0.5], dtype=DOUBLE))

        def forward(self, t: Tensor, z: Tensor) -> Any:
            return function(self.weight * z)

    for fast in (True, False):
        field = Stepped()
        with wm.fast_paths(fast):
            end: Any = wm.solve(field, state((2,)).detach(), wm.FixedStep("euler", step=1 / 4), gradient=gradient).final
        end.sum().backward()
        assert field.weight.grad is not None
        assert field.weight.grad.tolist() == [0.0, 0.0]
    assert taken == ["there", "back" if gradient == "backprop" else "adjoin"]
