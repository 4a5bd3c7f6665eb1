"""A piece of work on tensors that stay where they are: on a GPU it is recorded once, as a CUDA graph, and replayed."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch

WARM_UPS = 2
"""Runs before a capture, in which libraries set themselves up."""


class _Remains:
    """Graphs that nobody needs any more, until nothing is captured: CUDA ends a capture during which one is freed.

    The garbage collector may bring them at any moment and in any thread, so nothing here waits for a lock.
    """

    def __init__(self) -> None:
        self.graphs: deque[Any] = deque()
        self.captures: set[int] = set()
        self.numbers = count()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Nothing is freed within."""
        number = next(self.numbers)
        self.captures.add(number)
        try:
            yield
        finally:
            self.captures.discard(number)
            self.free()

    def add(self, graph: Any) -> None:
        self.graphs.append(graph)
        self.free()

    def free(self) -> None:
        """Free what there is, unless something is captured: here, or by others in this thread."""
        while self.graphs and not self.captures and not is_capturing():
            try:
                self.graphs.popleft()
            except IndexError:  # another thread was faster
                return


REMAINS = _Remains()


def is_capturing() -> bool:
    """Whether this thread's stream is, be it by a user."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


class Graph:
    """A CUDA graph, freed when that harms no capture."""

    def __init__(self) -> None:
        self.own = torch.cuda.CUDAGraph()

    def replay(self) -> None:
        self.own.replay()

    def __del__(self) -> None:
        if "own" in vars(self) and not sys.is_finalizing():  # then all goes at once
            REMAINS.add(vars(self).pop("own"))


class Recording:
    """Work without arguments, to be done many times. Without a GPU it is done as it is written."""

    def __init__(self, work: Callable[[], None], at_once: int = 1) -> None:
        """`at_once` is how many times a second graph does the work, where it is done often: each start takes time."""
        self.work: Callable[[], None] | None = work
        self.at_once = at_once
        self.graph: Graph | None = None
        self.several: Graph | None = None

    def __call__(self, times: int = 1) -> None:
        if self.several is not None:
            for _ in range(times // self.at_once):
                self.several.replay()
            times %= self.at_once
        again: Any = self.work if self.graph is None else self.graph.replay
        for _ in range(times):
            again()


def record(recordings: Sequence[Recording], device: torch.device, reset: Callable[[], None]) -> None:
    """Record these pieces of work one after the other; `reset` makes their tensors fit to be worked on.

    All share their scratch memory: they are never replayed at the same time. What was recorded lets go of what it was
    made of, so that a field which nobody else holds can go.
    """
    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.device(device):
        for recording in recordings:
            work = recording.work
            assert work is not None
            _warm_up(work, reset)
            recording.graph = _captured(work, 1, pool, reset)
            if recording.at_once > 1:
                recording.several = _captured(work, recording.at_once, pool, reset)
            recording.work = None


def _captured(work: Callable[[], None], times: int, pool: Any, reset: Callable[[], None]) -> Graph:
    reset()
    graph = Graph()
    with REMAINS.kept(), torch.cuda.graph(graph.own, pool=pool, capture_error_mode="thread_local"):
        for _ in range(times):
            work()
    return graph


def _warm_up(work: Callable[[], None], reset: Callable[[], None]) -> None:
    """Runs on a stream of its own, as PyTorch's notes on CUDA graphs say."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            reset()
            work()
    torch.cuda.current_stream().wait_stream(side)
