"""States at times that steps pass over, by the continuous extension of their method.

Shapes: n times between the two ends, G groups in all, p pairs of a time and a group that passes it within one step;
[*groups] for NumPy arrays that are given.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.solvers.problem import Problem, Walked

Floats = NDArray[np.float64]


class Between:
    """Gathers, step by step, what a walk passes between its two ends."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.by_sample, times = problem, problem.by_sample, problem.times
        self.sign = np.where(np.less(times[-1], times[0]), -1.0, 1.0)
        """1 where time rises and -1 where it falls: [], or [G] where groups have times of their own."""
        self.times = self.sign * np.asarray(times[1:-1])
        """[n], rising; [n, G] where groups have times of their own: then infinite where one only repeats its end."""
        if self.by_sample:
            self.times[np.equal(times[1:-1], times[-1])] = np.inf
        self.places: list[NDArray[np.int64]] = []
        self.values: list[Tensor] = []
        """[p, ...] of each step, and where these belong among all times and groups."""

    def passed(self, start: Floats, end: Floats, moved: NDArray[np.bool_], z: Tensor, rates: Sequence[Tensor]) -> None:
        """A step from `start` to `end`, taken by the groups that `moved`: from z, by these stages."""
        start, end = self.sign * start.ravel(), self.sign * end.ravel()
        first, last = (self._up_to(node) for node in (start, end))
        counts = np.where(moved.ravel(), last - first, 0)
        if not counts.any():
            return
        group = np.repeat(np.arange(counts.size), counts)
        time = np.arange(group.size) + np.repeat(first - np.cumsum(counts) + counts, counts)
        h = (end - start)[group]
        at, sign = (self.times[time, group], self.sign[group]) if self.by_sample else (self.times[time], self.sign)
        self.places.append(time * counts.size + group)
        self.values.append(self._within((at - start[group]) / h, sign * h, group, z, rates))

    def with_ends(self, walked: Walked) -> Walked:
        """All states asked for, of a walk from end to end; an empty batch passes nothing, and has none to give."""
        start, end = walked.states
        self._repeat(end)
        if not self.values:
            return replace(walked, states=[start, *(start for _ in self.times), end])
        inner, places = torch.cat(self.values), np.concatenate(self.places)
        self.values.clear()
        if self.problem.layout.groups:
            order = torch.as_tensor(places.argsort(), device=inner.device)
            inner = inner[order].reshape(len(self.times), *start.shape)
        return replace(walked, states=[start, *inner.unbind(0), end])

    def _up_to(self, node: Floats) -> NDArray[np.int64]:
        """How many of its times each group has up to this one of its nodes."""
        if self.by_sample:
            return np.asarray((self.times <= node).sum(axis=0))
        return np.searchsorted(self.times, node, side="right")

    def _repeat(self, end: Tensor) -> None:
        """The end's state is that of all times which only repeat the end."""
        places = np.flatnonzero(np.isinf(self.times))
        if places.size:
            self.places.append(places)
            self.values.append(end[torch.as_tensor(places % len(end), device=end.device)])

    def _within(self, at: Floats, h: Floats, group: NDArray[np.int64], z: Tensor, rates: Sequence[Tensor]) -> Tensor:
        """[p, ...]: z + h sum_i b_i(s) k_i at the fractions s of steps h."""
        groups, dense = self.problem.layout.groups, np.asarray(self.problem.tableau.dense)
        weights = np.zeros((len(dense), at.size))
        for column in dense.T[::-1]:  # by Horner: a matrix product would round one time by the number of the others
            weights = (weights + column[:, None]) * at
        weights *= h
        rest = z.shape[len(groups) :]
        columns = torch.as_tensor(weights, dtype=z.dtype, device=z.device).reshape(*weights.shape, *(1,) * len(rest))
        chosen = torch.as_tensor(group, device=z.device)

        def theirs(value: Tensor) -> Tensor:
            return value.reshape(prod(groups), *rest)[chosen] if groups else value.unsqueeze(0)

        value = theirs(z)
        for row, column, rate in zip(dense, columns.unbind(0), rates, strict=False):
            if row.any():
                value = value + column * theirs(rate)
        return value
