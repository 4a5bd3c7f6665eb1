"""Fixed grids: one for all, in an ensemble one for each member, or one for each sample with times of its own.

Shapes: N steps, S members (or samples). Members with fewer steps than the longest stay at the end (steps of size 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windermere.solvers.solver import MOST_STEPS, SAME_STEP, FixedStep, OnGrid, may_vanish
from windermere.solvers.times import Times


@dataclass(frozen=True, eq=False)
class Grid:
    """The nodes to walk, and which of them were asked for. A grid is kept and made use of as one object."""

    nodes: NDArray[np.float64]
    """[N + 1], or [S, N + 1] where members differ."""
    stops: tuple[int, ...]
    """Index of each time asked for."""

    @cached_property
    def steps(self) -> NDArray[np.float64]:
        """Signed step sizes, [N] or [S, N]; 0 where a member is through."""
        return np.ascontiguousarray(np.diff(self.nodes, axis=-1))

    @cached_property
    def taken(self) -> NDArray[np.int64]:
        """Number of steps, by member where members differ."""
        return np.asarray((self.steps != 0).sum(axis=-1), dtype=np.int64)


class Steps(NamedTuple):
    """Every member's grid as tensors, which may change in place between two replays of a captured solve."""

    sizes: Tensor
    """[S, N]; 0 beyond a member's last step."""
    counts: Tensor
    """[S], int32: the number of steps."""


def make_grid(solvers: Sequence[FixedStep | OnGrid], times: Times) -> Grid:
    """One grid for solvers that are all the same, else one for each, as long as the longest."""
    if isinstance(times[0], np.ndarray) and isinstance(solvers[0], FixedStep):
        return _grid_by_sample(solvers[0], times)
    alone = len(solvers) == 1 or all(s is solvers[0] or s == solvers[0] for s in solvers)
    return _grid(tuple(solvers[:1] if alone else solvers), tuple(times))


@lru_cache(maxsize=8)
def _grid(distinct: tuple[FixedStep | OnGrid, ...], times: tuple[float, ...]) -> Grid:
    """Kept, as a training asks for the same one at each iteration."""
    pieces, stops = [np.full((len(distinct), 1), times[0])], [0]
    for start, end in pairwise(times):
        legs = [solver.nodes(start, end)[1:] for solver in distinct]
        longest = max(map(len, legs))
        pieces.append(np.stack([np.pad(leg, (0, longest - len(leg)), constant_values=end) for leg in legs]))
        stops.append(stops[-1] + longest)
    nodes = np.concatenate(pieces, axis=1)
    return Grid(nodes[0] if len(distinct) == 1 else nodes, tuple(stops))


def _grid_by_sample(solver: FixedStep, times: Times) -> Grid:
    """For each sample the grid that it would have alone, between the same two of its times as long as the longest."""
    legs = [_legs(solver, start, end) for start, end in pairwise(times)]
    stops = np.cumsum([0, *(leg.shape[1] for leg in legs)])
    return Grid(np.concatenate([times[0][:, None], *legs], axis=1), tuple(stops.tolist()))


def _legs(solver: FixedStep, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """[S, N]: `solver.nodes` without the first, of all samples at once, with the last one repeated."""
    span = end - start
    exact = abs(span) / solver.step
    for i in np.flatnonzero((exact > MOST_STEPS) | may_vanish(solver.step, start, end)):
        solver.nodes(float(start[i]), float(end[i]))  # says what is wrong, if anything is
    whole = np.round(exact)
    even = abs(whole - exact) <= SAME_STEP * exact
    steps = np.where(even, whole, np.ceil(exact))[:, None]
    size = np.where(even, span / np.maximum(whole, 1), np.copysign(solver.step, span))[:, None]
    none = float(not steps.size)  # an empty batch takes one step: its field is seen, and has gradients of zero
    place = np.arange(1.0, steps.max(initial=none) + 1)
    return np.where(place < steps, place * size + start[:, None], end[:, None])
