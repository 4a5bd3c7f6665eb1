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


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")


def state(widths: tuple[int, ...], samples: int = 11) -> Any:
    random = torch.Generator().manual_seed(5)
    parts = tuple(torch.rand(samples, w, generator=random, dtype=DOUBLE).requires_grad_() for w in widths)
    return parts if len(parts) > 1 else parts[0]


def together(parts: Any) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(parts, dim=-1)


def solved(field: Any, z: Any, solver: Any, *, fast: bool, **named: Any) -> tuple[list[Tensor], Any]:
    """All states and the gradients of a sum of them, each with a weight of its own; and what the solve cost."""
    with wm.fast_paths(fast):
        solution = wm.solve(field, z, solver, **named)
        states = together(solution.states)
        weight = torch.cos(torch.arange(states.numel(), dtype=DOUBLE, device=states.device)).view_as(states)
        given = [z] if isinstance(z, Tensor) else list(z)
        own = list(field.parameters()) if isinstance(field, nn.Module) else []
        found = torch.autograd.grad((weight * states).sum(), [*given, *own], allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip([*given, *own], found, strict=True)]
    return [states, *gradients], solution.stats


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


def test_a_checkpoint_is_left_to_pytorch(taken: list[str]) -> None:
    field, z = made(WithTime), state((2,))
    found, _ = solved(field, z, wm.FixedStep("rk4", step=1 / 4), fast=True, gradient="checkpoint")
    wanted, _ = solved(field, z, wm.FixedStep("rk4", step=1 / 4), fast=False)
    assert_same(found, wanted)
    assert taken == []
