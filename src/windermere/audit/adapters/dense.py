"""Solving at times that need not be on the solver's grid.

Other libraries walk a grid from the first time to the last and interpolate what lies between its nodes, where ours land
on every time asked for. A coarser grid must stay a coarser grid, so here the grid is walked as it is too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.audit.calls import parts_of
from windermere.solvers import Adaptive, Field, OnGrid, Solution, Solver, State, solve
from windermere.solvers.solver import SAME_STEP


def solve_at(rate: Field, z0: State, solver: Solver, times: Sequence[float]) -> Solution:
    """Solve with the solver's own grid from the first time to the last; adaptive solvers land on all times."""
    if len(times) == 2 or isinstance(solver, Adaptive):
        return solve(rate, z0, solver, times)
    plan = _Plan.of(solver.nodes(times[0], times[-1]), times)
    if plan.lands:
        return solve(rate, z0, solver, times)
    return _between(rate, z0, OnGrid(solver.method, tuple(plan.nodes.tolist())), plan)


@dataclass(frozen=True)
class _Plan:
    """Where the times asked for lie on a grid."""

    nodes: NDArray[np.float64]
    times: NDArray[np.float64]
    nearest: NDArray[np.int64]
    """For each time the nearest node."""
    on_node: NDArray[np.bool_]
    before: NDArray[np.int64]
    """For each time the step that passes it."""

    @classmethod
    def of(cls, nodes: NDArray[np.float64], times: Sequence[float]) -> "_Plan":
        asked, sign = np.asarray(times), np.sign(nodes[-1] - nodes[0])
        before = np.clip(np.searchsorted(sign * nodes, sign * asked, side="right") - 1, 0, len(nodes) - 2)
        nearest = before + (abs(nodes[before + 1] - asked) < abs(nodes[before] - asked))
        on_node = abs(nodes[nearest] - asked) <= SAME_STEP * abs(nodes[-1] - nodes[0])
        return cls(nodes, asked, nearest, on_node, before)

    @property
    def lands(self) -> bool:
        return bool(self.on_node.all())

    @property
    def needed(self) -> list[int]:
        """The nodes whose states tell those at all times: both ends, and those beside each time."""
        beside = self.before[~self.on_node]
        return sorted({0, len(self.nodes) - 1, *self.nearest[self.on_node].tolist(), *beside, *(beside + 1)})


@dataclass
class _Watched:
    """The rate, which remembers what it gave at chosen nodes: every step begins by asking there."""

    rate: Field
    stages: int
    wanted: set[int]
    calls: int = 0
    at: dict[int, Any] = field(default_factory=dict)

    def __call__(self, t: Tensor, z: Any) -> Any:
        node, stage = divmod(self.calls, self.stages)
        self.calls += 1
        k = self.rate(t, z)
        if stage == 0 and node in self.wanted:
            self.at[node] = k
        return k


def _between(rate: Field, z0: State, solver: OnGrid, plan: _Plan) -> Solution:
    needed = plan.needed
    watched = _Watched(rate, solver.tableau.propagating, set(needed))
    walked = solve(watched, z0, solver, plan.nodes[needed].tolist())
    parts = parts_of(walked.states)
    last, steps = len(plan.nodes) - 1, len(plan.nodes) - 1
    extra = int(bool((plan.before[~plan.on_node] == last - 1).any()))
    if extra:
        end = torch.as_tensor(plan.nodes[-1], dtype=parts[0].dtype, device=parts[0].device)
        watched.at[last] = rate(end, walked.final)
    rates = {node: parts_of(k) for node, k in watched.at.items()}
    row = {node: i for i, node in enumerate(needed)}
    columns = [_column(plan, part, row, {n: k[p] for n, k in rates.items()}) for p, part in enumerate(parts)]
    stats = replace(walked.stats, evaluations=watched.stages * steps + extra)
    states = tuple(columns) if isinstance(z0, tuple) else columns[0]
    return replace(walked, times=tuple(plan.times.tolist()), states=states, stats=stats)


def _column(plan: _Plan, states: Tensor, row: dict[int, int], rates: dict[int, Tensor]) -> Tensor:
    """One part of the state at all times asked for, from its states [needed, ...] and rates at nodes."""
    found = []
    for t, near, on_node, i in zip(plan.times, plan.nearest, plan.on_node, plan.before, strict=True):
        if on_node:
            found.append(states[row[int(near)]])
            continue
        ends = states[row[int(i)]], states[row[int(i) + 1]]
        found.append(_hermite(plan.nodes[i], plan.nodes[i + 1], *ends, rates[int(i)], rates[int(i) + 1], t))
    return torch.stack(found)


def _hermite(t0: float, t1: float, z0: Tensor, z1: Tensor, k0: Tensor, k1: Tensor, t: float) -> Tensor:
    """The cubic through both states with both rates: its error falls with the fourth power of the step."""
    h, s = float(t1 - t0), float((t - t0) / (t1 - t0))
    start, end = (1 + 2 * s) * (1 - s) ** 2, s * s * (3 - 2 * s)
    return start * z0 + end * z1 + h * (s * (1 - s) ** 2 * k0 + s * s * (s - 1) * k1)
