"""What is alive while a step is recorded: on a GPU nothing may be freed, and autograd may hold nothing."""

import gc
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import windermere as wm
from tests.fast.captured.fields import TimeMLP
from tests.fast.captured.solving import solve
from tests.fast.captured.tapes import record_on_tape
from windermere.fast.captured import adjoint, recording
from windermere.fast.captured.path import CapturedSteps
from windermere.fast.captured.recording import Recording, record
from windermere.solvers.adjoint import AdjointRate


@pytest.mark.parametrize("device", ["cpu"])
@pytest.mark.parametrize(
    "solver",
    [wm.FixedStep("rk4", step=1 / 3), wm.Adaptive("bosh32", tolerance=1e-3), wm.Adaptive("dopri54", tolerance=1e-3)],
)
def test_no_recording_of_the_adjoint_leaves_autograd_a_tape(
    solver: Any, path: CapturedSteps, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or PyTorch would find parameters tied to the stream of the recording before."""
    rates: list[AdjointRate] = []
    left: list[int] = []

    class Noted(AdjointRate):
        def __post_init__(self) -> None:
            super().__post_init__()
            rates.append(self)

    def one_by_one(pieces: Sequence[Recording], *given: Any) -> None:
        for piece in pieces:
            record_on_tape([piece], *given)
            left.append(sum(len(rate.tape) for rate in rates))

    monkeypatch.setattr(adjoint, "AdjointRate", Noted)
    monkeypatch.setattr(adjoint, "record", one_by_one)
    solve(TimeMLP(), torch.ones(3, 2), solver, gradient="adjoint").final.sum().backward()
    assert left == ([0, 0] if isinstance(solver, wm.Adaptive) else [0])
    assert path.shelf.captures


class FakeGraph:
    """A CUDA graph."""

    def replay(self) -> None:
        """Nothing to be done."""


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> deque[Any]:
    """The graphs that wait to be freed, on a machine that seems to have a GPU."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(recording, "_warm_up", lambda work, reset: None)
    return recording.REMAINS.graphs


def recorded(work: Callable[[], None]) -> Recording:
    made = Recording(work, at_once=[2])
    record([made], torch.device("cpu"), lambda: None)
    return made


class Cycle:
    """Goes by the garbage collector alone."""

    def __init__(self, held: Any) -> None:
        self.held, self.own = held, self


def test_a_graph_that_goes_during_a_capture_is_freed_after_it(waiting: deque[Any]) -> None:
    old = [recorded(lambda: None)]
    in_a_cycle: list[Any] = [Cycle(recorded(lambda: None))]
    counts: list[int] = []

    def work() -> None:
        old.clear()
        in_a_cycle.clear()
        gc.collect()
        counts.append(len(waiting))

    kept = recorded(work)
    assert counts == [4, 0, 0]  # two graphs each; then the second capture, of the work twice
    del kept
    assert not waiting


def test_so_is_a_graph_whose_capture_failed(waiting: deque[Any]) -> None:
    counts: list[int] = []

    def fails() -> None:
        raise RuntimeError("mine")

    def work() -> None:
        with pytest.raises(RuntimeError, match="mine"):
            recorded(fails)
        gc.collect()
        counts.append(len(waiting))

    recorded(work)
    assert counts == [1, 1, 2]
    assert not waiting


def test_and_one_that_goes_during_a_capture_of_the_users(waiting: deque[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    old, other = recorded(lambda: None), recorded(lambda: None)
    with monkeypatch.context() as patched:
        patched.setattr(recording, "is_capturing", lambda: True)
        del old
        assert len(waiting) == 2
    del other  # whatever comes next looks for what was left
    assert not waiting


def test_a_recording_replays_what_was_recorded(waiting: deque[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[Any] = []
    monkeypatch.setattr(FakeGraph, "replay", lambda graph: replayed.append(graph))
    made = recorded(lambda: None)
    made(5)
    assert [graph is made.several[2].own for graph in replayed] == [True, True, False]
