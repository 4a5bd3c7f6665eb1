"""How long captures live, how many there are, and what happens where something goes wrong."""

import copy
import gc
import io
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import windermere as wm
from tests.fast.captured.fields import Plain, TimeMLP, network
from tests.fast.captured.solving import Way, assert_as_uncaptured, solve
from tests.threads import run_together
from windermere.fast.captured import adjoint, shelf, walks
from windermere.fast.captured import path as paths_
from windermere.fast.captured.path import CapturedSteps
from windermere.fast.captured.recording import Recording

RK4 = wm.FixedStep("rk4", step=1 / 3)
BOSH = wm.Adaptive("bosh32", tolerance=1e-3)
WAYS = [Way(RK4), Way(BOSH), Way(BOSH, options={"gradient": "adjoint"})]


def rows(device: str, samples: int = 3) -> Tensor:
    return torch.linspace(-1, 1, 2 * samples, device=device).reshape(samples, 2)


def test_a_capture_goes_with_its_field(path: CapturedSteps, device: str) -> None:
    field = TimeMLP().to(device)
    for way in WAYS:
        assert_as_uncaptured(field, rows(device), way)
    gone = weakref.ref(field)
    assert len(path.shelf.captures) == 4
    del field
    gc.collect()
    assert gone() is None
    assert not path.shelf.captures
    assert not path.shelf.owners


def test_a_solve_outlives_its_field(path: CapturedSteps, device: str) -> None:
    field, z = TimeMLP().to(device), rows(device).requires_grad_()
    end = solve(field, z, RK4).final.sum()
    del field
    gc.collect()
    assert path.shelf.captures  # its way back needs it
    end.backward()
    del end
    gc.collect()
    assert not path.shelf.captures


def test_captures_are_few(path: CapturedSteps, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "MOST_STATIONS", 3)
    monkeypatch.setattr(shelf, "MOST_KNOWN", 5)
    field = TimeMLP().to(device)
    for samples in range(1, 9):
        assert_as_uncaptured(field, rows(device, samples), Way(RK4))
    assert len(path.shelf.captures) == 3
    assert len(path.shelf.known) == 5


def test_a_fresh_lambda_for_each_call_is_captured_once(path: CapturedSteps, device: str) -> None:
    net = network(2, 3, 2).to(device)
    for _ in range(5):
        assert_as_uncaptured(lambda t, z: net(z) * t, rows(device), Way(RK4), list(net.parameters()))
    assert [known.captures for known in path.shelf.known.values()] == [1]


def test_so_is_a_fresh_context_for_each_batch(path: CapturedSteps, device: str) -> None:
    net = network(2, 3, 2).to(device)
    for seed in range(5):
        context = torch.full((3, 2), 0.1 * seed, device=device, requires_grad=True)
        made = context.view_as(context)
        tensors = [context, *net.parameters()]
        assert_as_uncaptured(lambda t, z, c=made: net(z) + c, rows(device), Way(RK4), tensors)
    assert [known.captures for known in path.shelf.known.values()] == [1]


def test_a_field_whose_parameters_keep_moving_is_left_alone(
    path: CapturedSteps, device: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths_, "_told", set())
    field, kept = Plain(nn.Linear(2, 2)).to(device), []
    with caplog.at_level(logging.INFO, "windermere"):
        for _ in range(7):
            kept.append(field.net.weight.data)  # or the next one might lie there again
            field.net.weight.data = torch.randn(2, 2, device=device)
            assert_as_uncaptured(field, rows(device), Way(RK4))
    assert [r.getMessage().rpartition(": ")[2] for r in caplog.records] == ["its tensors are others at each solve"]


def test_models_that_are_trained_one_after_the_other_are_all_captured(path: CapturedSteps, device: str) -> None:
    for _ in range(7):
        field = TimeMLP().to(device)
        for _ in range(paths_.FEW + 1):
            solve(field, rows(device), RK4)
        assert len(path.shelf.captures) == 1
        del field
        gc.collect()


def test_a_first_solve_is_not_captured(path: CapturedSteps, device: str) -> None:
    path.after = 1
    field = TimeMLP().to(device)
    solve(field, rows(device), RK4)
    assert not path.shelf.captures
    solve(field, rows(device), RK4)
    assert path.shelf.captures


def test_copies_and_files_carry_no_captures(path: CapturedSteps, device: str) -> None:
    field = TimeMLP().to(device)
    assert_as_uncaptured(field, rows(device), Way(RK4))
    file = io.BytesIO()
    torch.save(field, file)
    file.seek(0)
    other: Any
    for other in (copy.deepcopy(field), torch.load(file, weights_only=False)):
        with torch.no_grad():
            other.net[0].weight.mul_(2)
        assert_as_uncaptured(other, rows(device), Way(RK4))
    assert_as_uncaptured(field, rows(device), Way(RK4))


@pytest.mark.parametrize("way", WAYS, ids=["fixed", "adaptive", "adjoint"])
def test_threads_solve_one_field_together(way: Way, path: CapturedSteps, device: str) -> None:
    field = TimeMLP().to(device)

    def work(seed: int) -> None:
        for k in range(3):
            assert_as_uncaptured(field, rows(device) * (1 + 0.1 * seed + k), way)

    run_together(*(lambda seed=seed: work(seed) for seed in range(8)))
    assert path.shelf.captures


def test_an_interrupted_solve_leaves_nothing_behind(
    path: CapturedSteps, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = TimeMLP().to(device)
    for way in WAYS:
        assert_as_uncaptured(field, rows(device), way)
    replay = Recording.__call__

    def interrupted(self: Any, times: int = 1) -> None:
        replay(self, times)
        raise KeyboardInterrupt

    for way in WAYS:
        with monkeypatch.context() as patched:
            patched.setattr(Recording, "__call__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                solve(field, rows(device) * 3, way.solver)
        assert_as_uncaptured(field, rows(device), way)


class Fails(nn.Module):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error, self.fails = error, True

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        if self.fails:
            raise self.error("mine")
        return -z


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, RuntimeError])
def test_what_a_field_raises_is_raised(error: type[BaseException], path: CapturedSteps, device: str) -> None:
    field = Fails(error)
    with pytest.raises(error, match="mine"):
        solve(field, rows(device), RK4)
    field.fails = False
    assert_as_uncaptured(field, rows(device), Way(RK4))
    assert path.shelf.captures


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: operation not permitted")]
)
def test_a_capture_that_fails_is_solved_step_by_step(
    error: Exception, path: CapturedSteps, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, other = TimeMLP().to(device), TimeMLP().to(device)
    assert_as_uncaptured(other, rows(device), Way(RK4))

    def failing(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(walks, "record", failing)
        patched.setattr(adjoint, "record", failing)
        for way in WAYS:
            assert_as_uncaptured(field, rows(device), way)
    assert len(path.shelf.captures) == int(not isinstance(error, torch.OutOfMemoryError))
    assert_as_uncaptured(other, rows(device), Way(RK4))


def test_a_call_to_look_at_a_field_is_undone(path: CapturedSteps, device: str) -> None:
    class Noting(nn.Module):
        total = 0
        steps: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.list, self.dict, self.set, self.count = [0], {0: 0}, {0}, 0
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            self.count += 1
            self.list.append(self.count)
            self.dict[self.count] = self.count
            self.set.add(self.count)
            self.steps = self.steps + 1
            type(self).total += 1
            return -z

    field = Noting().to(device)
    solve(field, rows(device), RK4)
    sizes = len(field.list) - 1, len(field.dict) - 1, len(field.set) - 1, field.count, int(field.steps), Noting.total
    assert sizes == (12,) * 6


def test_whoever_counts_operations_sees_them(path: CapturedSteps, device: str) -> None:
    field = Plain(nn.Linear(2, 2, bias=False)).to(device)
    for _ in range(2):
        with FlopCounterMode(display=False) as count:
            solve(field, rows(device), RK4)
        assert count.get_total_flops() == 12 * 2 * 3 * 2 * 2
        solve(field, rows(device), RK4)
    assert path.shelf.captures


def test_inference_mode_is_no_hindrance(path: CapturedSteps, device: str) -> None:
    field = TimeMLP().to(device)
    with torch.inference_mode():
        found = [solve(field, rows(device), RK4).final for _ in range(2)]
    assert path.shelf.captures
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(solve(field, rows(device), RK4).final, found[1].clone())


@pytest.mark.parametrize(
    "z", [torch.zeros(0, 2), torch.ones(2, 3).t() * 0.3, torch.ones(1, 2).expand(3, 2), torch.ones(6, 2)[::2]]
)
def test_states_lie_as_they_like(z: Tensor, path: CapturedSteps, device: str) -> None:
    field = TimeMLP().to(device)
    for way in WAYS:
        assert_as_uncaptured(field, z.to(device), way)
    assert bool(path.shelf.captures) == bool(z.numel())


def test_states_of_16_bits_are_left_alone(path: CapturedSteps, device: str) -> None:
    solve(lambda t, z: -z, rows(device).bfloat16(), RK4)
    assert not path.shelf.captures


ASKED: list[Callable[[Tensor], bool]] = [
    *(lambda z: torch.is_inference_mode_enabled(), lambda z: z.is_leaf, lambda z: z.view(-1).ndim > 1),
]


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_field_asks_of_its_state_is_answered_as_step_by_step(
    asked: Callable[[Tensor], bool], path: CapturedSteps, device: str
) -> None:
    field = Asking(asked)
    for way in (Way(RK4), Way(RK4, graded=False)):
        for z in (rows(device), rows(device).t().contiguous().t()):
            for mode in (False, True):
                with torch.inference_mode(mode):
                    assert_as_uncaptured(field, z, way)


class Asking(nn.Module):
    def __init__(self, asked: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.asked = asked

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z.square() if self.asked(z) else -z


def test_a_field_that_is_zero_at_first_is_watched_later(path: CapturedSteps, device: str) -> None:
    def growing(t: Tensor, z: Tensor) -> Tensor:
        return t * z if z.requires_grad else -t * z

    way = Way(RK4)
    assert_as_uncaptured(growing, rows(device), way)
    assert not path.shelf.captures
