"""Whole solves by steps that are replayed, there and back.

Shapes: N steps that were taken, m times asked for beside the first, K stages; a *table* is that of steps.py.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.captured.back import StepsBack
from windermere.fast.captured.reads import Reads
from windermere.fast.captured.recording import record
from windermere.fast.captured.steps import FixedSteps, Motion, table_of
from windermere.fast.captured.tries import LOOK_EVERY, Tries
from windermere.fast.captured.twins import Twins
from windermere.solvers.grid import Grid
from windermere.solvers.problem import Problem

MOST_ROOM, LEAST_ROOM, ROOM_BYTES = 64, 4, 1 << 28
"""Steps for which states are kept in place, as long as they take no more bytes; a longer solve is brought to memory of
its own piece by piece."""


@dataclass(frozen=True, eq=False)
class Taken:
    """The steps of one solve, kept for its way back."""

    states: Tensor
    """[N, ...]: before each step."""
    table: Tensor
    stops: tuple[int, ...]
    """After how many steps each time asked for was reached."""
    inner: "Inner | None" = None
    """How states between steps were interpolated."""
    nodes: Tensor | None = None
    """[N, 2, *groups]: from when to when each adaptive step goes; twice the same for a group that was at its end."""


@dataclass(frozen=True, eq=False)
class Inner:
    """States between the ends of a solve, interpolated: z + h sum_i b_i(s) k_i of the steps they lie in."""

    steps: Tensor
    """[m - 1]: the step that each lies in."""
    weights: Tensor
    """[m - 1, K]: h b_i(s)."""
    rates: Tensor
    """[N, K, ...]."""

    def values(self, states: Tensor, rates: Tensor) -> Tensor:
        """[m - 1, ...]."""
        weights = self.weights.reshape(*self.weights.shape, *(1,) * (states.ndim - 1))
        found = states[self.steps]
        for i in range(self.weights.shape[1]):
            found = found + weights[:, i] * rates[self.steps, i]
        return found


class Workplace:
    """Tensors that stay where they are: one solve after the other works on them."""

    def __init__(self, like: Tensor, twins: Twins) -> None:
        self.lock, self.device, self.twins = RLock(), like.device, twins
        self.used: torch.cuda.Event | None = None
        self.size = 0
        """Bytes of a GPU's memory that it takes."""

    @contextmanager
    def at_work(self, reads: Reads) -> Iterator[None]:
        """Whatever streams and threads solves are in, they come one after the other; each with its own tensors."""
        on_gpu = self.device.type == "cuda"
        with self.lock, torch.no_grad(), torch.cuda.device(self.device) if on_gpu else nullcontext():
            if self.used is not None:
                torch.cuda.current_stream().wait_event(self.used)
            try:
                self.twins.follow(reads.tensors)
                yield
            finally:
                if on_gpu:
                    self.used = torch.cuda.current_stream().record_event()

    def leave(self) -> None:
        """Wait until nobody works here any more: then its memory may be given to others."""
        if self.used is not None:
            self.used.synchronize()


class Station(Workplace):
    """All that was captured for solves of one field from states of one shape by one method."""

    def __init__(self, motion: Motion, twins: Twins, *, adaptive: bool, graded: bool, dense: bool) -> None:
        super().__init__(motion.like, twins)
        self.motion, self.graded = motion, graded
        self.room = room = _room(motion, dense)
        self.fixed = None if adaptive else FixedSteps(motion, room, kept=graded)
        self.tries = Tries(motion, room, kept=graded or dense, dense=dense) if adaptive else None
        self.back = StepsBack(motion, room, dense=dense) if graded else None
        self.expected = LOOK_EVERY
        """Tries that the last solve took to each of its times."""
        self.walked: tuple[Grid, Tensor] | None = None
        """The last grid, and its table."""
        self._record()

    def _record(self) -> None:
        device = self.motion.like.device
        if self.fixed is not None:
            record([self.fixed.step], device, self.fixed.reset)
        if self.tries is not None:
            record([self.tries.start, self.tries.step], device, self.tries.reset)
        if self.back is not None:
            record([self.back.step], device, self.back.reset)
        for part in (self.fixed, self.tries, self.back):  # nothing here holds the field any more
            if part is not None:
                part.motion = self.motion.without_field()
        self.motion = self.motion.without_field()
        self.twins.let_go()

    def walk_grid(self, problem: Problem, reads: Reads) -> tuple[Tensor, Taken]:
        """The states [m, ...] at the times asked for, over the problem's grid."""
        steps, grid = self.fixed, problem.grid
        assert steps is not None
        stops = grid.stops[1:]
        kept: list[Tensor] = []
        found: list[Tensor] = []
        with self.at_work(reads):
            if self.walked is None or self.walked[0] is not grid:
                self.walked = grid, table_of(steps.motion, grid)
            table = self.walked[1]
            steps.z.copy_(problem.z0)
            for first in range(0, len(table), self.room):
                part = table[first : first + self.room]
                steps.table[: len(part)].copy_(part)
                steps.place.number.zero_()
                at = first
                for stop in (*(s for s in stops if first < s < first + len(part)), first + len(part)):
                    steps.step(stop - at)
                    at = stop
                    if stop in stops:
                        found.append(steps.z.clone())
                if self.graded:
                    kept.append(steps.states[: len(part)].clone())
        states = _joined(kept) if kept else steps.states[:0]
        return torch.stack(found), Taken(states, table, stops)

    def adapt(self, problem: Problem, reads: Reads) -> "tuple[Tensor, Taken, list[NDArray[np.int64]]] | None":
        """The same with steps that are chosen, and their costs; None where there is trouble."""
        tries = self.tries
        assert tries is not None
        kept: list[tuple[Tensor, ...]] = []
        found: list[Tensor] = []
        stops: list[int] = []
        with self.at_work(reads):
            tries.z.copy_(problem.z0)
            tries.aim(problem, problem.times)
            tries.start()
            ends = problem.times[-1:] if problem.interpolate else problem.times[1:]
            for end in ends:
                if len(ends) > 1:
                    tries.end.fill_(end)
                number = tries.reach(self.expected, lambda number: self._keep(tries, kept, number))
                if number is None:
                    return None
                found.append(tries.z.clone())
                stops.append(sum(len(part[0]) for part in kept) + number)
            self._keep(tries, kept, stops[-1] - sum(len(part[0]) for part in kept))
            costs = list(tries.spent)
        self.expected = -(-int((costs[1] + costs[2]).max()) // len(ends))
        if not kept:
            return torch.stack(found), Taken(tries.states[:0], tries.table[:0], tuple(stops)), costs
        states, table, nodes, rates = (_joined(parts) for parts in zip(*kept, strict=True))
        if not problem.interpolate:
            return torch.stack(found), Taken(states, table, tuple(stops), nodes=nodes), costs
        inner = _inner(problem, nodes, rates)
        taken = Taken(states, table, tuple(stops), inner, nodes)
        return torch.cat([inner.values(states, rates), torch.stack(found)]), taken, costs

    def _keep(self, tries: Tries, kept: list[tuple[Tensor, ...]], number: int) -> None:
        """Bring what was kept to memory of the solve's own."""
        if not tries.kept:
            return
        kept.append(tuple(part[:number].clone() for part in (tries.states, tries.table, tries.nodes, tries.rates)))
        tries.place.number.zero_()

    def pull_back(self, taken: Taken, reads: Reads, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The cotangents of the first state and of the parameters, from those [m, ...] of the times asked for."""
        back, inner = self.back, taken.inner
        assert back is not None
        with self.at_work(reads):
            on_states, on_rates = _through_inner(taken, grad) if inner is not None else (None, None)
            back.gathered.zero_()
            wanted: dict[int, Any] = {}
            for stop, given in zip(taken.stops, grad[-len(taken.stops) :], strict=True):
                wanted[stop] = wanted.get(stop, 0) + given
            total = len(taken.states)
            back.on_z.copy_(wanted.pop(total))  # the last time is always asked for
            for first in range((total - 1) // self.room * self.room, -1, -self.room):
                last = min(first + self.room, total)
                back.states[: last - first].copy_(taken.states[first:last])
                back.table[: last - first, : back.count].copy_(taken.table[first:last, : back.count])
                back.table[: last - first, -1].copy_(taken.table[first:last, -1])
                if on_rates is not None:
                    back.on_rates[: last - first].copy_(on_rates[first:last, : back.count])
                back.place.number.fill_(last - first - 1)
                stops = range(first, last) if on_states is not None else [s for s in wanted if first <= s < last]
                at = last
                for stop in sorted({*stops, first}, reverse=True):
                    back.step(at - stop)
                    at = stop
                    if stop in wanted:
                        back.on_z.add_(wanted[stop])
                    if on_states is not None:
                        back.on_z.add_(on_states[stop])
            return back.on_z.clone(), back.parts(back.gathered.clone())


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def _inner(problem: Problem, nodes: Tensor, rates: Tensor) -> Inner:
    """Where the times between the ends lie; all of the state is one group."""
    start, end = nodes.cpu().numpy().T
    sign = 1.0 if problem.times[-1] > problem.times[0] else -1.0
    times = sign * np.asarray(problem.times[1:-1])
    steps = np.searchsorted(sign * end, times, side="left").clip(max=len(end) - 1)
    size = (end - start)[steps]
    at = (sign * times - start[steps]) / size
    dense = np.asarray(problem.tableau.dense)
    weights = np.zeros((len(dense), at.size))
    for column in dense.T[::-1]:  # by Horner, as in dense_output.py
        weights = (weights + column[:, None]) * at
    device, dtype = rates.device, rates.dtype
    steps_there = torch.as_tensor(steps, device=device)
    return Inner(steps_there, torch.as_tensor((weights * size).T, dtype=dtype, device=device), rates)


def _through_inner(taken: Taken, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The cotangents of all steps' states and rates, from those of the states interpolated."""
    inner = taken.inner
    assert inner is not None
    on_inner = grad[: len(inner.steps)]
    on_states = torch.zeros_like(taken.states).index_add_(0, inner.steps, on_inner)
    weights = inner.weights.reshape(*inner.weights.shape, *(1,) * (on_inner.ndim - 1))
    shares = weights * on_inner.unsqueeze(1)
    on_rates = torch.zeros_like(inner.rates[:, : shares.shape[1]]).index_add_(0, inner.steps, shares)
    return on_states, on_rates


def _room(motion: Motion, dense: bool) -> int:
    """How many steps are kept in place."""
    size = motion.like.numel() * motion.like.element_size() * (motion.tableau.stages + 1 if dense else 1)
    return max(LEAST_ROOM, min(MOST_ROOM, ROOM_BYTES // max(1, size)))
