"""A piece of work on tensors that stay where they are: on a GPU it is recorded once, as a CUDA graph, and replayed."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from itertools import count
from typing import Any, TypeAlias

import torch

WARM_UPS = 2
"""Runs before a capture, in which libraries set themselves up."""
ROUNDS = 3
"""How often each way of doing some work is timed."""
LANES = 4
"""Streams side by side. Each has a workspace of cuBLAS's: 32 MiB on an H200, 8 on most."""


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

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if "own" in vars(self) and not is_finalizing():  # then all goes at once, the module's names first
            REMAINS.add(vars(self).pop("own"))


class Lanes:
    """Streams beside the one that records: what is done in one of them waits for what it is told to, and for nothing
    else. Without a GPU there are none, and all is done as it is written."""

    def __init__(self, device: torch.device) -> None:
        self.streams = _streams(device.index) if device.type == "cuda" else ()
        for stream in self.streams:
            stream.wait_stream(torch.cuda.current_stream(device))

    def take(self, number: int) -> AbstractContextManager[Any]:
        """Do what comes next in the lane of this number, by turns."""
        return torch.cuda.stream(self.streams[number % len(self.streams)]) if self.streams else nullcontext()

    def mark(self) -> Any:
        """What this lane has got done."""
        return torch.cuda.current_stream().record_event() if self.streams else None

    def wait(self, mark: Any) -> None:
        """This lane goes on once that is done."""
        if mark is not None:
            torch.cuda.current_stream().wait_event(mark)

    def join(self) -> None:
        """Go on once all of it is done."""
        for stream in self.streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)


@cache
def _streams(index: int) -> tuple[torch.cuda.Stream, ...]:
    with torch.cuda.device(index):
        return tuple(torch.cuda.Stream() for _ in range(LANES))  # type: ignore[no-untyped-call]


Way: TypeAlias = Callable[[int], None]
"""Does some work so many times."""


class Recording:
    """Work without arguments, to be done many times. Without a GPU it is done as it is written."""

    def __init__(self, work: Callable[[], object], at_once: Sequence[int] = (), ways: Sequence[Way] = ()) -> None:
        """`at_once` are numbers of times that further graphs do the work, where it is done often: each start takes
        time. Of several `ways` to do so the fastest is kept; the work one after the other, if there is none."""
        self.work: Callable[[], object] | None = work
        self.at_once = sorted(at_once, reverse=True)
        self.ways: tuple[Way, ...] = tuple(ways) or (partial(_repeat, work),)
        self.graph: Graph | None = None
        self.several: dict[int, Graph] = {}
        """By how often they do the work, the largest first."""

    def __call__(self, times: int = 1) -> None:
        for at_once, several in self.several.items():
            for _ in range(times // at_once):
                several.replay()
            times %= at_once
        again: Any = self.work if self.graph is None else self.graph.replay
        for _ in range(times):
            again()

    def let_go(self) -> None:
        """Hold nothing any more of what was recorded."""
        self.work, self.ways = None, ()


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


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
            recording.graph = _captured(work, pool, reset)
            _record_several(recording, pool, reset)
            recording.let_go()


def _record_several(recording: Recording, pool: Any, reset: Callable[[], None]) -> None:
    """Which way is the fastest is tried with few."""
    found, ways = dict[int, Graph](), recording.ways
    for times in reversed(recording.at_once):
        graphs = [_captured(partial(way, times), pool, reset) for way in ways]
        if len(ways) > 1:
            costs = [min(_milliseconds(graph, reset) for _ in range(ROUNDS)) for graph in graphs]
            best = costs.index(min(costs))
            ways, graphs = ways[best : best + 1], graphs[best : best + 1]
        found = {times: graphs[0], **found}
    recording.several = found


def _captured(work: Callable[[], object], pool: Any, reset: Callable[[], None]) -> Graph:
    reset()
    graph = Graph()
    with REMAINS.kept(), torch.cuda.graph(graph.own, pool=pool, capture_error_mode="thread_local"):
        work()
    return graph


def _milliseconds(graph: Graph, reset: Callable[[], None]) -> float:
    reset()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _warm_up(work: Callable[[], object], reset: Callable[[], None]) -> None:
    """Runs on a stream of its own, as PyTorch's notes on CUDA graphs say."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            reset()
            work()
    torch.cuda.current_stream().wait_stream(side)
