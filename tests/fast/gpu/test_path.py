"""Fields as users write them, solved in one kernel, against PyTorch step by step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.fields import KINDS, Hamiltonian, Likelihood, WithTime, made
from tests.fast.gpu.host import Host
from tests.fast.layers import SMOOTH
from tests.fast.spheres import DOUBLE, assert_same
from tests.fast.test_rows import SOLVES, solved, state
from windermere.fast.gpu.path import RowsOnGpu
from windermere.solvers import paths


def on(device: str, given: Any) -> Any:
    """The same on a device, as a start."""
    parts = tuple(p.detach().to(device).requires_grad_() for p in ((given,) if isinstance(given, Tensor) else given))
    return parts if len(parts) > 1 else parts[0]


def assert_as_step_by_step(field: Any, z: Any, solver: Any, **named: Any) -> None:
    (found, cost), (wanted, slow) = (solved(field, z, solver, fast=fast, **named) for fast in (True, False))
    assert cost == slow
    assert_same(found, wanted)


@pytest.mark.parametrize(("solver", "named"), SOLVES, ids=lambda x: str(x)[:60])
@pytest.mark.parametrize(("kind", "widths"), KINDS)
def test_a_solve_and_its_gradients_are_those_of_pytorch_step_by_step(
    kind: Callable[[], nn.Module], widths: tuple[int, ...], solver: Any, named: Any, device: str, launched: list[str]
) -> None:
    assert_as_step_by_step(made(kind).to(device), on(device, state(widths)), solver, **named)
    way = "adapt" if isinstance(solver, wm.Adaptive) else "there"
    back = ["adapt", "gather"] * (len(named.get("times", (0, 1))) - 1) if "gradient" in named else ["back", "gather"]
    assert launched == [way, *back]


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize(("kind", "widths"), [(Hamiltonian, (4,)), (Likelihood, (2, 1))])
def test_derivatives_inside_a_field_are_followed_through_every_activation(
    kind: Any, widths: tuple[int, ...], activation: Any, device: str, launched: list[str]
) -> None:
    field = made(lambda: kind(activation)).to(device)
    assert_as_step_by_step(field, on(device, state(widths)), wm.FixedStep("midpoint", step=1 / 2))
    assert launched == ["there", "back", "gather"]


@pytest.mark.parametrize("samples", [1, 3, 4, 5, 33])
def test_any_number_of_samples_is_taken(samples: int, device: str, launched: list[str]) -> None:
    field, z = made(WithTime).to(device), on(device, state((2,), samples))
    assert_as_step_by_step(field, z, wm.Adaptive("dopri54", tolerance=1e-4))
    assert launched == ["adapt", "back", "gather"]


def test_more_steps_than_there_is_room_for_at_first_are_kept_too(device: str, launched: list[str]) -> None:
    field, z = made(WithTime).to(device), on(device, state((2,), 3))
    assert_as_step_by_step(field, z, wm.Adaptive("fehlberg21", tolerance=1e-8))
    assert launched == ["adapt", "adapt", "back", "gather"]


def test_single_precision_is_as_good_as_pytorchs(device: str, launched: list[str]) -> None:
    field, z = made(Likelihood).to(device), on(device, state((2, 1)))
    exact, _ = solved(field, z, wm.FixedStep("rk4", step=1 / 8), fast=False)
    low = tuple(part.detach().float().requires_grad_() for part in z)
    found, _ = solved(field.float(), low, wm.FixedStep("rk4", step=1 / 8), fast=True)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)
    assert launched == ["there", "back", "gather"]


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.0, 0.3, 0.35, 1.0)])
@pytest.mark.parametrize("solver", [wm.FixedStep("rk4", step=1 / 2), wm.Adaptive("bosh32", tolerance=1e-2)], ids=str)
def test_gradients_can_be_differentiated_again(solver: Any, times: Any, device: str, launched: list[str]) -> None:
    field, found = made(WithTime).to(device), []
    for fast in (True, False):
        z, weights = on(device, state((2,), 3)), list(field.parameters())
        with wm.fast_paths(fast):
            states: Any = wm.solve(field, z, solver, times).states
            first = torch.autograd.grad(states.square().sum(), [z, *weights], create_graph=True)
            found.append(list(torch.autograd.grad(sum(g.square().sum() for g in first), [z, *weights])))  # type: ignore[arg-type]
    assert launched[1:] == ["back", "gather"]
    assert_same(found[0], found[1])


@pytest.mark.parametrize("solver", [wm.FixedStep("rk4", step=1 / 4), wm.Adaptive("bosh32", tolerance=1e-3)], ids=str)
def test_a_checkpoint_counts_as_step_by_step(solver: Any, device: str, launched: list[str]) -> None:
    field, counts = made(WithTime).to(device), []
    for fast in (True, False):
        with wm.counting() as count:
            solved(field, on(device, state((2,))), solver, fast=fast, gradient="checkpoint")
        counts.append((count.forward, count.recomputed))
    assert counts[0] == counts[1]
    assert launched[1:] == ["back", "gather"]


def test_without_gradients_nothing_is_kept(device: str, launched: list[str]) -> None:
    field, z = made(Likelihood).to(device), on(device, state((2, 1)))
    solver = wm.Adaptive("dopri54", tolerance=1e-4)
    with torch.no_grad():
        found = wm.solve(field, z, solver).final
        with wm.fast_paths(False):
            wanted = wm.solve(field, z, solver).final
    assert_same(list(found), list(wanted))
    assert launched == ["adapt"]


def test_who_asks_for_the_gradient_of_the_state_alone_gets_it(device: str, launched: list[str]) -> None:
    field, z = made(WithTime).to(device).requires_grad_(False), on(device, state((2,)))
    gradients: list[Any] = ["backprop", "adjoint"]
    for gradient in gradients:
        ends = []
        for fast in (True, False):
            with wm.fast_paths(fast):
                final: Any = wm.solve(field, z, wm.Adaptive("dopri54", tolerance=1e-4), gradient=gradient).final
                ends.append(torch.autograd.grad(final.square().sum(), z)[0])
        assert_same(ends[:1], ends[1:])
    assert launched == ["adapt", "back", "adapt", "adapt"]


def test_weights_changed_before_the_way_back_are_those_of_the_solve(device: str, launched: list[str]) -> None:
    """As PyTorch's own operations, which keep what they need."""
    field, z = made(WithTime).to(device), on(device, state((2,)))
    wanted = torch.autograd.grad(end(field, z).sum(), z)[0]
    final = end(field, z)
    for p in field.parameters():
        p.data.mul_(3)
    assert_same([torch.autograd.grad(final.sum(), z)[0]], [wanted])


def end(field: nn.Module, z: Tensor) -> Tensor:
    return torch.as_tensor(wm.solve(field, z, wm.FixedStep("rk4", step=1 / 4)).final)


def test_a_solve_that_blows_up_says_so_as_step_by_step(device: str, launched: list[str]) -> None:
    class Squares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(40.0, dtype=DOUBLE))

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return self.rate * z * z

    field, z, said = Squares().to(device), on(device, state((2,))), []
    for fast in (True, False):
        with wm.fast_paths(fast), pytest.raises(wm.errors.SolverError) as caught:
            wm.solve(field, z, wm.Adaptive("dopri54", tolerance=1e-4))
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert launched == ["adapt"]


def test_what_does_not_fit_on_chip_is_left_to_others(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Host(chip=1 << 12)
    monkeypatch.setattr(paths, "_paths", (RowsOnGpu(devices=(device,), engine=engine),))
    solved(made(WithTime).to(device), on(device, state((2,))), wm.FixedStep("rk4", step=1 / 4), fast=True)
    assert engine.launched == []
