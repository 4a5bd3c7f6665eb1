"""Where the polygons that a solver walks in the plane cross: counted exactly, in all and between classes.

Solutions of an autonomous ODE never cross (Picard-Lindelöf): where a solver's polygons do, its error is at work. For a
field that depends on t crossings prove nothing. Nor are polygons the solutions: chords of a perfect rotation cross, so
subtract a reference's at the same nodes. And none at one step says nothing of a smaller step (the paper's Appendix A).

What counts: a point at which the polygon of one sample goes over from one side of another sample's to the other.
- It counts once, be it inside two pieces or at a vertex of one or both. A polygon that comes back counts anew.
- Touching without changing sides does not count, nor starting or ending on another polygon, nor a common start or end.
- Nor does a point where two polygons part or join along a line: solutions on the same orbit overlap and are unique all
  the same, and those that contraction has brought together up to the last bit merge.
- Steps of length zero (a fixed point) are as if not taken.
- Rounding is part of what was walked: polygons closer to each other than their dtype resolves cross by its noise.
So the order of samples and the direction of time do not matter, nor whether a straight piece takes one step or two.

How: pieces sorted by x are compared with those that begin before they end, in bands of y, which are halved as long as
it saves work. Where the boxes of few pairs of a block meet, these get exact signs. Else the block is compared by matrix
products with a bound on their rounding, and the few pairs that it leaves undecided (all that touch, or nearly do) get
them.

Shapes: s steps, n samples, m pieces (steps of positive length), k pairs of pieces, r rows and c columns of a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windermere.auditing.evidence.predicates import (
    ROUNDING,
    Floats,
    Index,
    Mask,
    Signs,
    area_sign,
    at,
    compare,
    everywhere,
)
from windermere.errors import UsageError

ROWS, COLUMNS = 64, 1024
"""Pieces in a block: it fits a cache, and its matrix products are too small for a BLAS to wake its threads up for."""
OVERHEAD = 512
"""As many pairs cost about as much as it costs to have one piece more in a band."""
FEW = 0.1
"""The share of a block's pairs whose boxes meet, up to which these are looked at one by one."""
BATCH = 1 << 15
"""Undecided pairs looked at together: enough to make up for NumPy's overhead, and a few megabytes."""


@dataclass(frozen=True, kw_only=True)
class Crossings:
    """How often trajectories of different samples cross."""

    total: int
    between_classes: int
    """Those between samples with different labels; 0 where no labels were given."""

    def __add__(self, other: "Crossings") -> "Crossings":
        return Crossings(total=self.total + other.total, between_classes=self.between_classes + other.between_classes)


def count_crossings(trajectories: NDArray[np.float64], labels: NDArray[np.int64] | None = None) -> Crossings:
    """How often `trajectories` [s + 1, n, 2] cross, each walked from point to point; `labels` [n] are their classes."""
    points = _as_trajectories(trajectories)
    classes = np.zeros(points.shape[1], np.int64) if labels is None else labels
    count, waiting, pairs = Crossings(total=0, between_classes=0), 0, list[tuple[Index, Index]]()
    with np.errstate(all="ignore"):  # overflow and underflow leave a pair undecided, and so to exact arithmetic
        pieces = _Pieces.of(points, classes)
        for certain, undecided in _blocks(pieces):
            count += certain
            pairs.append(undecided)
            waiting += len(undecided[0])
            if waiting > BATCH:
                count, waiting, pairs = count + _settle(pieces, pairs), 0, []
        return count + _settle(pieces, pairs)


def _as_trajectories(trajectories: ArrayLike) -> Floats:
    points = np.asarray(trajectories, dtype=np.float64)
    bad = np.count_nonzero(~np.isfinite(points).all(axis=(0, 2)))
    if bad:
        raise UsageError(
            f"{bad} of {points.shape[1]} trajectories are not finite, so their crossings mean nothing: leave them out"
        )
    return points


@dataclass(frozen=True, kw_only=True)
class _Pieces:
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
    def of(cls, points: Floats, labels: NDArray[np.int64]) -> "_Pieces":
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

    def tally(self, one: Index, other: Index, crossing: Mask) -> Crossings:
        total = int(np.count_nonzero(crossing))
        between = np.count_nonzero(crossing & (self.label[one] != self.label[other])) if total else 0
        return Crossings(total=total, between_classes=int(between))


# Which pieces to compare: a sweep along x within bands of y.


@dataclass(frozen=True)
class _Band:
    """Pieces that reach a band of y. A pair belongs to the band where the upper one of its two lowest points lies."""

    pieces: _Pieces
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

    def split(self) -> list["_Band"]:
        """Bands with less work in all, as far as halving them at the median saves any."""
        low, high = self.pieces.low[1, self.members], self.pieces.high[1, self.members]
        cut = np.sort(low)[len(low) // 2] if len(low) else 0.0
        below, above = self.members[low < cut], self.members[high >= cut]
        halves = [_Band(self.pieces, below, self.floor), _Band(self.pieces, above, cut)]
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


def _blocks(pieces: _Pieces) -> Iterator[tuple[Crossings, tuple[Index, Index]]]:
    """Every pair of interest once: how many of a block surely cross, and the pairs that exact signs decide."""
    order = np.argsort(pieces.low[0], kind="stable")
    for band in _Band(pieces, order, -np.inf).split():
        low, high = (ends[1, band.members] for ends in (pieces.low, pieces.high))
        inside, sample, geometry = low >= band.floor, pieces.sample[band.members], _geometry(pieces, band.members)
        for row, columns in band.blocks():
            near = (low[row, None] <= high[columns]) & (low[columns] <= high[row, None])
            column: Index = np.arange(columns.start, columns.stop)
            sides = None
            if np.count_nonzero(near) > FEW * near.size:
                sides = _sides(geometry[:, row], geometry[:, columns])
                near &= sides <= 0
            r, c = np.divmod(np.flatnonzero(near), len(column))
            one, other = row[r], column[c]
            wanted = np.flatnonzero((sample[one] != sample[other]) & (one < other) & (inside[one] | inside[other]))
            found = band.members[one[wanted]], band.members[other[wanted]]
            if sides is None:
                yield Crossings(total=0, between_classes=0), found
            else:
                sure = sides[r[wanted], c[wanted]] < 0
                yield pieces.tally(*found, sure), (found[0][~sure], found[1][~sure])


# What matrix products know of a block of pairs.


def _geometry(pieces: _Pieces, some: Index) -> Floats:
    """[6, m]: x and y of start and end, and the direction, of length 1 by the sum of its coordinates."""
    start, end = at(pieces.start, some), at(pieces.end, some)
    return np.concatenate([start, end, (end - start) / np.abs(end - start).sum(axis=0)])


def _sides(one: Floats, other: Floats) -> Signs:
    """[r, c]: -1 where pieces surely cross inside, 1 where they surely do not meet, 0 where rounding might decide."""
    middle = one.shape[1] // 2
    origin = np.tile(np.sort(one[:2])[:, middle : middle + 1], (2, 1))
    unit = np.sort(np.abs(one[:4] - origin).max(axis=0))[middle]
    lines, start, end = _homogeneous(one, origin, unit)
    other_lines, other_start, other_end = _homogeneous(other, origin, unit)
    of_other = _surely(lines.T @ other_start) * _surely(lines.T @ other_end)
    of_one = _surely(start.T @ other_lines) * _surely(end.T @ other_lines)
    sides: Signs = np.maximum(of_other, of_one)
    return sides


def _surely(side: Floats) -> Signs:
    return (side > 1).view(np.int8) - (side < -1).view(np.int8)


def _homogeneous(geometry: Floats, origin: Floats, unit: np.float64) -> tuple[Floats, Floats, Floats]:
    """Lines, starts and ends [3, m]: a line times a point is surely of its sign where it is beyond -1 or 1.

    In these coordinates a piece within `size` of the origin times a point within another's `size` is off by at most 20
    roundings times the larger one: dividing by both (each at least 1) and by 24 roundings is enough.
    """
    ends = (geometry[:4] - origin) / unit
    size = np.maximum(np.abs(ends).max(axis=0), 1.0)
    (x, y), (dx, dy), one = ends[:2], geometry[4:], np.ones_like(ends[:1])
    lines = np.stack([-dy, dx, dy * x - dx * y]) / size
    scale = size * (24 * ROUNDING)
    return lines, np.concatenate([ends[:2], one]) / scale, np.concatenate([ends[2:], one]) / scale


# Pairs that touch, or nearly do: exact signs.


def _settle(pieces: _Pieces, pairs: list[tuple[Index, Index]]) -> Crossings:
    if not pairs:
        return Crossings(total=0, between_classes=0)
    one, other = (np.concatenate(some) for some in zip(*pairs, strict=True))
    found = Crossings(total=0, between_classes=0)
    for i in range(0, len(one), BATCH):
        found += pieces.tally(*_crossing(pieces, one[i : i + BATCH], other[i : i + BATCH]))
    return found


def _only(mask: Mask, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    return [at(array, np.flatnonzero(mask)) for array in arrays]


def _boxes_meet(a: Floats, b: Floats, c: Floats, d: Floats) -> Mask:
    return everywhere(np.minimum(a, b) <= np.maximum(c, d), np.minimum(c, d) <= np.maximum(a, b))


def _crossing(pieces: _Pieces, one: Index, other: Index) -> tuple[Index, Index, Mask]:
    """Those [k] of the pairs that may meet, and whether their polygons cross there.

    A piece owns its start and not its end, so that a crossing is found by one pair of pieces only: inside both of them,
    where one starts inside the other, or where both start.
    """
    a, b, c, d = (at(ends, some) for some in (one, other) for ends in (pieces.start, pieces.end))
    one, other, a, b, c, d = _only(_boxes_meet(a, b, c, d), one, other, a, b, c, d)
    of_c, of_d, together = area_sign(a, b, c), area_sign(a, b, d), everywhere(a == c)
    open_ = (of_c * of_d <= 0) & ((of_c != of_d) | together)  # pieces on one line may meet at their starts only
    one, other, of_c, of_d, together = _only(open_, one, other, of_c, of_d, together)
    a, b, c, d = _only(open_, a, b, c, d)
    of_a, of_b = area_sign(c, d, a), area_sign(c, d, b)
    found = (of_c * of_d < 0) & (of_a * of_b < 0)
    turn = np.flatnonzero((of_c == 0) & (of_a * of_b < 0))
    found[turn] = area_sign(at(a, turn), at(b, turn), at(pieces.before, other[turn])) * of_d[turn] < 0
    turn = np.flatnonzero((of_a == 0) & (of_c * of_d < 0))
    found[turn] = area_sign(at(c, turn), at(d, turn), at(pieces.before, one[turn])) * of_b[turn] < 0
    turn = np.flatnonzero(together)
    found[turn] = _vertices_cross(pieces, one[turn], other[turn])
    return one, other, found


def _vertices_cross(pieces: _Pieces, one: Index, other: Index) -> Mask:
    """[k]: whether two polygons with a common vertex, where both pieces start, change sides there.

    They do where the other's way in and way out lie in different sectors between one's way in and way out.
    """
    vertex, way_in, way_out = at(pieces.start, one), at(pieces.before, one), at(pieces.end, one)
    left, along = _sector(vertex, way_out, way_in, at(pieces.before, other))
    other_left, other_along = _sector(vertex, way_out, way_in, at(pieces.end, other))
    passing = (way_in != vertex).any(axis=0) & (at(pieces.before, other) != vertex).any(axis=0)
    changes: Mask = passing & ~along & ~other_along & (left != other_left)
    return changes


def _sector(vertex: Floats, first: Floats, last: Floats, ray: Floats) -> tuple[Mask, Mask]:
    """[k] each: whether a ray lies in the sector from the ray `first` anticlockwise to `last`, whether on its rim.

    As no piece goes straight on, the two rays are on one line only where a polygon turns back: an empty sector.
    """
    from_first, from_last = area_sign(vertex, first, ray), area_sign(vertex, last, ray)
    width = area_sign(vertex, first, last)
    along = (from_first == 0) & _same_way(vertex, first, ray) | (from_last == 0) & _same_way(vertex, last, ray)
    narrow, wide = (from_first > 0) & (from_last < 0), (from_first > 0) | (from_last < 0)
    return np.where(width > 0, narrow, (width < 0) & wide), along


def _same_way(vertex: Floats, one: Floats, other: Floats) -> Mask:
    """[k]: of points on one line through the vertex, whether they lie on the same side of it."""
    return everywhere(compare(one, vertex) == compare(other, vertex))
