"""What happens between a captured solve and its way back."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.captured.fields import Holding, TimeMLP
from tests.fast.captured.solving import Way, assert_as_uncaptured, solve
from windermere.errors import UsageError
from windermere.fast.captured.path import CapturedSteps

RK4 = wm.FixedStep("rk4", step=1 / 3)
BOSH = wm.Adaptive("bosh32", tolerance=1e-3)
EACH_SOLVER = pytest.mark.parametrize("solver", [RK4, BOSH], ids=str)


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def field(device: str, path: CapturedSteps) -> Any:
    torch.manual_seed(0)
    return TimeMLP().to(device)


def rows(device: str, seed: int = 0, samples: int = 3) -> Tensor:
    return 0.5 * torch.randn(samples, 2, generator=torch.Generator().manual_seed(seed)).to(device)


def both(work: Callable[[], list[Tensor]]) -> None:
    """The same work, captured and not, gives the same."""
    found = work()
    with wm.fast_paths(False):
        wanted = work()
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@EACH_SOLVER
def test_two_solves_may_come_before_one_way_back(field: Any, solver: Any, device: str) -> None:
    def work() -> list[Tensor]:
        ends = [solve(field, rows(device, seed), solver).final for seed in range(3)]
        loss = torch.stack([(k + 1) * end.square().sum() for k, end in enumerate(ends)]).sum()
        return list(torch.autograd.grad(loss, list(field.parameters())))

    both(work)


@EACH_SOLVER
def test_ways_back_may_come_in_any_order_and_twice(field: Any, solver: Any, device: str) -> None:
    def work() -> list[Tensor]:
        starts = [rows(device, seed).requires_grad_() for seed in range(3)]
        ends = [solve(field, z, solver).final.square().sum() for z in starts]
        found = [torch.autograd.grad(ends[k], starts[k], retain_graph=True)[0] for k in (1, 0, 2, 1)]
        return [*found, *torch.autograd.grad(ends[0], list(field.parameters()))]

    both(work)


def test_outputs_are_kept_across_calls(field: Any, device: str) -> None:
    for solver, times in ((RK4, (0, 0.5, 1)), (BOSH, (0, 0.5, 1))):
        first = solve(field, rows(device), solver, times).states
        kept = first.detach().clone()
        for seed in range(1, 4):
            solve(field, rows(device, seed), solver, times).states.sum().backward()
        assert torch.equal(first, kept)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@EACH_SOLVER
def test_training_is_the_same(optimizer: Any, solver: Any, device: str, path: CapturedSteps) -> None:
    trained = TimeMLP().to(device)
    start = {name: p.clone() for name, p in trained.state_dict().items()}

    def work() -> list[Tensor]:
        trained.load_state_dict(start)
        steps = optimizer(trained.parameters(), lr=0.05)
        for seed in range(4):
            steps.zero_grad()
            solve(trained, rows(device, seed), solver).final.square().mean().backward()
            steps.step()
        return [p.detach().clone() for p in trained.parameters()]

    both(work)
    assert len(path.shelf.captures) == 1


@EACH_SOLVER
def test_parameters_changed_before_the_way_back_are_an_error(field: Any, solver: Any, device: str) -> None:
    loss = solve(field, rows(device), solver).final.sum()
    with torch.no_grad():
        field.net[0].weight.mul_(2)
    with pytest.raises(UsageError, match="no longer those of the solve"):
        loss.backward()


def test_so_are_parameters_moved(field: Any, device: str) -> None:
    loss = solve(field, rows(device), RK4).final.sum()
    field.net[0].weight.data = field.net[0].weight.data.clone()
    with pytest.raises(UsageError, match="no longer those of the solve"):
        loss.backward()


def test_and_tensors_that_are_no_parameters(device: str, path: CapturedSteps) -> None:
    with torch.device(device):
        held = Holding()
    loss = solve(held, rows(device).requires_grad_(), RK4).final.sum()
    held.shift.mul_(2)
    with pytest.raises(UsageError, match="no longer those of the solve"):
        loss.backward()


@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_a_replaced_attribute_is_that_of_the_solve_as_uncaptured(
    gradient: Any, device: str, path: CapturedSteps
) -> None:
    """The adjoint alone, captured or not, goes back by the field as it is then."""
    with torch.device(device):
        held = Holding()

    def work() -> list[Tensor]:
        held.shift, held.scale = torch.tensor([0.1, -0.2], device=device), 0.5
        z = rows(device).requires_grad_()
        end = solve(held, z, RK4, gradient=gradient).final.sum()
        held.shift, held.scale = torch.tensor([0.4, 0.3], device=device), 0.75
        torch.randn(2, device=device)  # which may take the memory of what was held
        solve(held, rows(device, 1).requires_grad_(), RK4, gradient=gradient).final.sum().backward()
        return list(torch.autograd.grad(end, z))

    both(work)
    assert path.shelf.captures


def test_what_a_solve_reads_is_held_until_its_way_back(device: str, path: CapturedSteps) -> None:
    with torch.device(device):
        held = Holding()
    loss = solve(held, rows(device).requires_grad_(), RK4).final.sum()
    read = weakref.ref(held.shift)
    held.shift = torch.zeros(2, device=device)
    gc.collect()
    assert read() is not None
    loss.backward()
    del loss
    gc.collect()
    assert read() is None


@EACH_SOLVER
@pytest.mark.parametrize("times", [(0, 1), (0, 0.3, 0.6, 1)])
def test_a_gradient_can_be_differentiated_again(field: Any, solver: Any, times: Any, device: str) -> None:
    def work() -> list[Tensor]:
        z = rows(device).requires_grad_()
        states = solve(field, z, solver, times).states
        (slope,) = torch.autograd.grad(states.sin().sum(), z, create_graph=True)
        return [slope.detach(), *torch.autograd.grad(slope.square().sum(), [z, *field.parameters()])]

    both(work)


def test_but_not_of_a_field_that_has_changed(device: str, path: CapturedSteps) -> None:
    with torch.device(device):
        held = Holding()
    z = rows(device).requires_grad_()
    end = solve(held, z, RK4).final.sum()
    held.scale = 0.75
    with pytest.raises(UsageError, match="no longer that of the solve"):
        torch.autograd.grad(end, z, create_graph=True)


@EACH_SOLVER
def test_a_state_in_between_has_its_gradient(field: Any, solver: Any, device: str) -> None:
    def work() -> list[Tensor]:
        z = rows(device).requires_grad_()
        states = solve(field, z, solver, (0, 0.25, 0.5, 1)).states
        return list(torch.autograd.grad(states[1].sum() + states[0].square().sum(), [z, *field.parameters()]))

    both(work)


def test_saved_tensors_may_be_kept_elsewhere(field: Any, device: str) -> None:
    solve(field, rows(device), RK4)

    def work() -> list[Tensor]:
        with torch.autograd.graph.save_on_cpu():
            end = solve(field, rows(device), RK4).final.sum()
        return list(torch.autograd.grad(end, list(field.parameters())))

    both(work)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "load_state_dict": lambda f: f.load_state_dict({name: p * 2 for name, p in f.state_dict().items()}),
    "eval": lambda f: f.eval(),
    "frozen": lambda f: f.net[0].requires_grad_(False),
    "all frozen": lambda f: f.requires_grad_(False),
    "replaced parameter": lambda f: setattr(f.net[0], "bias", nn.Parameter(torch.ones_like(f.net[0].bias))),
    "replaced layer": lambda f: f.net.__setitem__(1, nn.ReLU()),
    "swapped data": lambda f: [p.__setattr__("data", p.data.clone() * 3) for p in f.parameters()],
    "reset": lambda f: f.net[0].reset_parameters(),
    "in-place": lambda f: [p.data.mul_(0.5) for p in f.parameters()],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_module_that_was_changed_is_solved_as_it_is(name: str, field: Any, device: str) -> None:
    way = Way(BOSH, (0.0, 0.5, 1.0))
    assert_as_uncaptured(field, rows(device), way)
    CHANGES[name](field)
    assert_as_uncaptured(field, rows(device, 1), way)


def test_another_dtype_is_another_solve(field: Any, device: str) -> None:
    way = Way(RK4)
    for dtype in (torch.float64, torch.float32, torch.float64):
        field.to(dtype)
        assert_as_uncaptured(field, rows(device).to(dtype), way)


def test_other_steps_and_tolerances_need_no_other_capture(field: Any, device: str, path: CapturedSteps) -> None:
    for step in (1 / 2, 1 / 7, 1 / 90):
        assert_as_uncaptured(field, rows(device), Way(wm.FixedStep("rk4", step=step), (0.0, 0.3, 1.5)))
    for tolerance in (1e-2, 1e-6):
        assert_as_uncaptured(field, rows(device), Way(wm.Adaptive("fehlberg21", tolerance=tolerance), (2.0, 0.0)))
    assert len(path.shelf.captures) == 2
