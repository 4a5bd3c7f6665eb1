"""Pieces of polygons in the plane, and which pairs of them to compare: a sweep along x within bands of y.

Shapes: s steps, n samples, m pieces (steps of positive length).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from windermere.auditing.evidence.predicates import (
    Floats,
    Index,
    area_sign,
    at,
    compare,
    everywhere,
)

ROWS, COLUMNS = 64, 1024
"""Pieces in a block: it fits a cache, and its matrix products are too small for a BLAS to wake its threads up for."""
OVERHEAD = 512
"""As many pairs cost about as much as it costs to have one piece more in a band."""


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Every step of positive length; steps straight on are one piece, which changes no count and saves much work."""

    start: Floats
    """[2, m]"""
    end: Floats
    """[2, m]"""
    before: Floats
    """[2, m]: where the sample's piece before started; the start itself where there is none."""
    sample: NDArray[np.int32]
    """[m]"""
    label: NDArray[np.int64]
    """[m]"""

    @classmethod
    def of(cls, points: Floats, labels: NDArray[np.int64]) -> "Pieces":
        sample, step = np.nonzero((points[1:] != points[:-1]).any(axis=-1).T)
        start, end = (np.ascontiguousarray(points[node, sample].T) for node in (step, step + 1))
        before = np.where(np.diff(sample, prepend=-1) != 0, start, np.roll(start, 1, axis=1))
        onward = everywhere(compare(start, before) == compare(end, start)) & (area_sign(before, start, end) == 0)
        turns, lasts = np.flatnonzero(~onward), np.flatnonzero(~np.roll(onward, -1))
        start, before, end, sample = at(start, turns), at(before, turns), at(end, lasts), at(sample, turns)
        return cls(start=start, end=end, before=before, sample=sample.astype(np.int32), label=labels[sample])

    @cached_property
    def low(self) -> Floats:
        return np.minimum(self.start, self.end)

    @cached_property
    def high(self) -> Floats:
        return np.maximum(self.start, self.end)


@dataclass(frozen=True)
class Band:
    """Pieces that reach a band of y. A pair belongs to the band where the upper one of its two lowest points lies."""

    pieces: Pieces
    members: Index
    """[m], by the x at which they begin."""
    floor: float

    @cached_property
    def until(self) -> Index:
        """[m]: the first member that begins after this one ends."""
        begin, end = (at(ends, self.members)[0] for ends in (self.pieces.low, self.pieces.high))
        until: Index = np.searchsorted(begin, end, side="right")
        return until

    @cached_property
    def reach(self) -> Index:
        """[m]: how many members begin while this one lasts."""
        reach: Index = self.until - np.arange(len(self.members)) - 1
        return reach

    @cached_property
    def work(self) -> int:
        """Pairs to compare, and what a piece costs by itself."""
        return int(self.reach.sum()) + OVERHEAD * len(self.members)

    def split(self) -> list["Band"]:
        """Bands with less work in all, as far as halving them at the median saves any."""
        low, high = self.pieces.low[1, self.members], self.pieces.high[1, self.members]
        cut = np.sort(low)[len(low) // 2] if len(low) else 0.0
        below, above = self.members[low < cut], self.members[high >= cut]
        halves = [Band(self.pieces, below, self.floor), Band(self.pieces, above, cut)]
        if sum(half.work for half in halves) >= 0.9 * self.work:
            return [self]
        return [band for half in halves for band in half.split()]

    def blocks(self) -> Iterator[tuple[Index, slice]]:
        """Rows and the columns to compare them with; rows are of like reach, so that no long one burdens others."""
        kind = np.frexp(self.reach.astype(np.float64))[1]
        for rows in (np.flatnonzero(kind == one) for one in np.unique(kind[self.reach > 0])):
            for block in (rows[i : i + ROWS] for i in range(0, len(rows), ROWS)):
                last = int(self.until[block].max())
                for column in range(int(block[0]) + 1, last, COLUMNS):
                    yield block, slice(column, min(column + COLUMNS, last))
