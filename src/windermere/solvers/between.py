"""States at times that steps pass over, by the continuous extension of their method.

Shapes: n times within a step; [*groups] for NumPy arrays.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.solvers.runge_kutta import Problem, Walked


class Between:
    """Gathers, step by step, what a walk passes between its two ends."""

    def __init__(self, problem: Problem, times: Sequence[float]) -> None:
        self.problem = problem
        self.times = np.asarray(times[1:-1]).reshape(-1, *(1,) * len(problem.layout.groups))
        self.states: list[Tensor | None] = [None] * len(self.times)

    def passed(
        self,
        start: NDArray[np.float64],
        end: NDArray[np.float64],
        moved: NDArray[np.bool_],
        z: Tensor,
        rates: Sequence[Tensor],
    ) -> None:
        """A step from `start` to `end`, taken by the groups that `moved`: from z, by these stages."""
        inside = moved & (self.times != start) & ((self.times - start) * (self.times - end) <= 0)
        found = np.flatnonzero(inside.any(axis=tuple(range(1, inside.ndim))))
        if not found.size:
            return
        whole = np.where(end == start, 1.0, end - start)
        values = self._within(np.clip((self.times[found] - start) / whole, 0, 1), end - start, z, rates)
        for i, value in zip(found.tolist(), values.unbind(0), strict=True):
            before = self.states[i]
            if before is not None or not inside[i].all():
                mask = self.problem.layout.columns(inside[i], z, torch.bool)
                value = torch.where(mask, value, z if before is None else before)
            self.states[i] = value

    def with_ends(self, walked: Walked) -> Walked:
        """All states asked for, of a walk from end to end; an empty batch passes nothing, and has none to give."""
        start, end = walked.states
        return replace(walked, states=[start, *(start if z is None else z for z in self.states), end])

    def _within(self, at: NDArray[np.float64], h: NDArray[np.float64], z: Tensor, rates: Sequence[Tensor]) -> Tensor:
        """[n, ...]: z + h sum_i b_i(s) k_i at the fractions s of a step, [n, *groups]."""
        layout, dense = self.problem.layout, np.asarray(self.problem.tableau.dense)
        weights = np.tensordot(dense, np.stack([at ** (j + 1) for j in range(dense.shape[1])]), axes=1) * h
        columns = layout.columns(weights, z)
        if not layout.groups:
            columns = columns.reshape(*columns.shape, *(1,) * z.ndim)
        value = z.unsqueeze(0)
        for column, rate in zip(columns.unbind(0), rates, strict=False):
            value = value + column * rate
        return value
