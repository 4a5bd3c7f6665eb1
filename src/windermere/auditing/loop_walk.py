"""A loop step by step: what each step multiplied the velocity by, and what of it is something else.

Shapes: N steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import nan

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.loop_record import Call, Recording
from windermere.solvers.tableaus import Tableau

SAME_TIME = 1e-4
"""Times and steps within this share of the time span are the same: many loops add up their time in float32."""
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-4}
"""The share of the samples' size by which two walks over the same nodes may differ; more in coarser dtypes."""


@dataclass(frozen=True, eq=False)
class Walk:
    """A loop step by step, as its calls show it."""

    start: float
    end: float
    nodes: list[float]
    """[N]: the times of each step's first evaluation."""
    states: list[Tensor]
    """[N + 1] states: before each step, and the samples."""
    sizes: list[float]
    """[N]: the multiple of the velocity that fits each step best."""
    strays: list[float]
    """[N]: the share of each step that is no multiple of the velocity."""

    @classmethod
    def of(cls, recording: Recording, table: Tableau, start: float, end: float) -> "Walk":
        stages = table.propagating
        whole = len(recording.calls) // stages * stages
        grouped = [recording.calls[k : k + stages] for k in range(0, whole, stages)]
        states = [calls[0].state for calls in grouped] + [recording.final]
        moves = [_move(calls, table, after) for calls, after in zip(grouped, states[1:], strict=True)]
        nodes, strays = [calls[0].t for calls in grouped], [stray for _, stray in moves]
        return cls(start, end, nodes, states, _filled([size for size, _ in moves], [*nodes, end]), strays)

    @property
    def span(self) -> float:
        return self.end - self.start

    @property
    def places(self) -> list[float]:
        """[N + 1]: the times to which the steps have brought it."""
        return [self.start, *(self.start + np.cumsum(self.sizes)).tolist()]

    def is_same(self, one: float, other: float) -> bool:
        return abs(one - other) <= SAME_TIME * abs(self.span)


def _filled(sizes: Sequence[float], nodes: Sequence[float]) -> list[float]:
    """The sizes, and where one is not known that of the times, in the proportion that the others have to theirs."""
    known, meant = np.array(sizes), np.diff(nodes)
    sure = np.isfinite(known) & (meant != 0)
    ratio = float(np.median(known[sure] / meant[sure])) if sure.any() else 1.0
    return [float(size) for size in np.where(np.isfinite(known), known, ratio * meant)]


def _move(calls: Sequence[Call], table: Tableau, after: Tensor) -> tuple[float, float]:
    """The h for which a step is h times the method's mean of its rates, and the share of it that is not. Where the
    rates are next to nothing, h is not a number: any would do."""
    rate = sum(float(w) * call.rate.double() for w, call in zip(table.b, calls, strict=False))
    rate, change = torch.as_tensor(rate).flatten(), (after - calls[0].state).double().flatten()
    rounding = float(torch.finfo(after.dtype).eps) * float(after.double().norm())
    size = float(change @ rate / (rate @ rate).clamp(min=1e-300))
    left = max(0.0, float((change - size * rate).norm()) - 10 * rounding)
    stray = left / max(float(change.norm()), 1e-300)
    return (size if float(rate.norm()) > rounding / SAME_TIME else nan), stray


def is_grid(nodes: Sequence[float]) -> bool:
    """Whether there are several, which all rise or all fall."""
    return len({a < b for a, b in pairwise(nodes)}) == 1 and len(set(nodes)) == len(nodes)


def apart(one: Tensor, other: Tensor) -> float:
    scale = float(other.double().abs().max())
    return float((one.double() - other.double()).abs().max()) / max(scale, 1e-300)


def rounding_of(like: Tensor) -> float:
    return ROUNDING.get(like.dtype, 2e-2)
