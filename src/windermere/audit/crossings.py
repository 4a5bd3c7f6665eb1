"""Where the polygons that a solver walks in the plane cross: counted exactly, by sample and by class.

The solutions of an autonomous ODE never cross (Picard-Lindelöf), so crossings of what a solver walks are its error at
work; of a field that depends on t they prove nothing. A polygon is not the solution, though: chords of a perfect rotation
cross too, so compare with a reference at the same nodes. And few crossings prove nothing: none at one step says nothing of a
smaller one (the paper's Appendix A).

What counts. A crossing is a point where one sample's polygon passes from one side of another sample's to the other:
- Inside two pieces, or at a vertex of either or both, it counts once. Each visit of a polygon to a point counts by itself.
- Touching without changing sides, starting or ending on another polygon, and meeting at a common start or end do not count.
- Nor does a point from which both run on along the same line: two solutions on one orbit overlap and break no law, and
  those that a contraction has made equal in floating point merge.
- Steps of length zero (a fixed point) are as if not taken.
So the count is the same for any order of samples, with time reversed, and with pieces divided where floats allow it.

How. Pieces sorted by x are compared with those that begin before they end, within bands of y that are split for as long as
it saves work. Blocks of them are compared by two matrix products with a bound on their rounding; the few pairs left
undecided (all that touch or nearly do) get exact signs.

Shapes: s steps, n samples, m pieces (steps of positive length), k pairs of pieces, r rows and c columns of a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windermere.errors import UsageError

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Signs = NDArray[np.int8]
Mask = NDArray[np.bool_]

ROUNDING = 2.0**-53
ROWS, COLUMNS = 64, 4096
"""Pieces in a block: one float array of it fits a cache."""
BATCH = 1 << 17
"""Undecided pairs looked at together: enough to make up for NumPy's overhead, and few megabytes."""


@dataclass(frozen=True, kw_only=True)
class Crossings:
    """How often trajectories of different samples cross."""

    total: int
    between_classes: int
    """Those between samples with different labels; 0 where no labels were given."""

    def __add__(self, other: "Crossings") -> "Crossings":
        return Crossings(total=self.total + other.total, between_classes=self.between_classes + other.between_classes)


def count_crossings(trajectories: NDArray[np.float64], labels: NDArray[np.int64] | None = None) -> Crossings:
    """The crossings of `trajectories` [s + 1, n, 2], which visit their points in order; `labels` [n] are the classes."""
    points = _checked(trajectories)
    pieces = _Pieces.walked(points, np.zeros(points.shape[1], np.int64) if labels is None else _labels(labels, points))
    count, undecided, waiting = Crossings(total=0, between_classes=0), list[tuple[Index, Index]](), 0
    with np.errstate(all="ignore"):  # overflow and underflow leave a pair undecided, and so to exact arithmetic
        for one, other, sides in _blocks(pieces):
            count += pieces.tally(one[:, None], other, sides < 0)
            row, column = np.nonzero(sides == 0)
            undecided.append((one[row], other[column]))
            waiting += len(row)
            if waiting > BATCH:
                count, undecided, waiting = count + _settle(pieces, undecided), [], 0
        return count + _settle(pieces, undecided)


def _checked(trajectories: ArrayLike) -> Floats:
    points = np.asarray(trajectories)
    if points.ndim != 3 or points.shape[0] == 0 or points.shape[2] != 2:
        raise UsageError(f"crossings need trajectories of shape [steps + 1, samples, 2], not {list(points.shape)}")
    if points.dtype.kind not in "fiu":
        raise UsageError(f"crossings need trajectories of real numbers, not of {points.dtype}")
    bad = int((~np.isfinite(points)).any(axis=(0, 2)).sum())
    if bad:
        raise UsageError(
            f"{bad} of {points.shape[1]} trajectories are not finite, so their crossings mean nothing: leave them out"
        )
    return points.astype(np.float64)


def _labels(labels: ArrayLike, points: Floats) -> NDArray[np.int64]:
    classes = np.asarray(labels)
    if classes.shape != points.shape[1:2] or classes.dtype.kind not in "iub":
        raise UsageError(
            f"crossings need one whole number as the label of each of {points.shape[1]} samples, "
            f"not {classes.dtype} of shape {list(classes.shape)}"
        )
    return classes.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class _Pieces:
    """Every step of positive length."""

    start: Floats
    """[m, 2]"""
    end: Floats
    """[m, 2]"""
    before: Floats
    """[m, 2]: where the piece before started; the start itself where there is none."""
    sample: NDArray[np.int32]
    """[m]"""
    label: NDArray[np.int64]
    """[m]"""

    @classmethod
    def walked(cls, points: Floats, labels: NDArray[np.int64]) -> "_Pieces":
        sample, step = np.nonzero((points[1:] != points[:-1]).any(axis=-1).T)
        start = points[step, sample]
        first = np.diff(sample, prepend=-1) != 0
        before = np.where(first[:, None], start, np.roll(start, 1, axis=0))
        end = points[step + 1, sample]
        return cls(start=start, end=end, before=before, sample=sample.astype(np.int32), label=labels[sample])

    @cached_property
    def low(self) -> Floats:
        return np.minimum(self.start, self.end)

    @cached_property
    def high(self) -> Floats:
        return np.maximum(self.start, self.end)

    def tally(self, one: Index, other: Index, crossing: Mask) -> Crossings:
        between = crossing & (self.label[one] != self.label[other])
        return Crossings(total=int(np.count_nonzero(crossing)), between_classes=int(np.count_nonzero(between)))


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
        begin, end = self.pieces.low[self.members, 0], self.pieces.high[self.members, 0]
        return np.searchsorted(begin, end, side="right")

    @cached_property
    def reach(self) -> Index:
        """[m]: with how many later members each one is compared."""
        return self.until - np.arange(len(self.members)) - 1

    @cached_property
    def work(self) -> int:
        """Pairs to compare; a piece by itself costs about as much as 256 of them."""
        return int(self.reach.sum()) + 256 * len(self.members)

    def split(self) -> list["_Band"]:
        low, high = self.pieces.low[self.members, 1], self.pieces.high[self.members, 1]
        cut = float(np.median(low)) if len(low) else 0.0
        halves = [
            _Band(self.pieces, self.members[low < cut], self.floor),
            _Band(self.pieces, self.members[high >= cut], cut),
        ]
        if sum(half.work for half in halves) > 0.8 * self.work:
            return [self]
        return [band for half in halves for band in half.split()]

    def blocks(self) -> Iterator[tuple[Index, slice]]:
        """Rows and the columns to compare them with: rows of like reach together, so that a long one burdens no others."""
        kind = np.frexp(self.reach.astype(np.float64))[1]
        for rows in (np.flatnonzero(kind == one) for one in np.unique(kind[self.reach > 0])):
            for block in (rows[i : i + ROWS] for i in range(0, len(rows), ROWS)):
                last = int(self.until[block].max())
                for column in range(int(block[0]) + 1, last, COLUMNS):
                    yield block, slice(column, min(column + COLUMNS, last))


def _blocks(pieces: _Pieces) -> Iterator[tuple[Index, Index, Signs]]:
    """Pieces of rows [r] and columns [c] with what is known of each pair [r, c], every pair of interest once."""
    order = np.argsort(pieces.low[:, 0], kind="stable")
    for band in _Band(pieces, order, -np.inf).split():
        inside = pieces.low[band.members, 1] >= band.floor
        sample = pieces.sample[band.members]
        place = np.arange(len(order), dtype=np.int32)
        for row, columns in band.blocks():
            one, other = band.members[row], band.members[columns]
            wanted = (sample[row, None] != sample[columns]) & (place[row, None] < place[columns])
            wanted &= inside[row, None] | inside[columns]
            yield one, other, np.where(wanted, _sides(pieces, one, other), np.int8(1))


# What two matrix products know of a block of pairs.


def _sides(pieces: _Pieces, one: Index, other: Index) -> Signs:
    """[r, c]: -1 where the pieces surely cross inside, 1 where they surely do not meet, 0 where rounding may decide."""
    origin = pieces.start[one[0]]
    unit = float(np.median(np.abs(pieces.start[other] - origin).max(axis=1))) or 1.0
    lines, ends = _homogeneous(pieces, one, origin, unit)
    other_lines, other_ends = _homogeneous(pieces, other, origin, unit)
    of_others = _surely(lines @ other_ends[0].T) * _surely(lines @ other_ends[1].T)
    of_ones = _surely(ends[0] @ other_lines.T) * _surely(ends[1] @ other_lines.T)
    return np.maximum(of_others, of_ones)


def _surely(side: Floats) -> Signs:
    return (side > 1).view(np.int8) - (side < -1).view(np.int8)


def _homogeneous(pieces: _Pieces, some: Index, origin: Floats, unit: float) -> tuple[Floats, Floats]:
    """Lines [m, 3] and end points [2, m, 3], whose products exceed 1 only where rounding can't have decided their sign.

    In coordinates about `origin`, a piece within `size` of it and a point within `other_size` have a product that is off by
    at most 20 roundings times max(size, other_size); dividing by both (each at least 1) and by 32 roundings is enough.
    """
    ends = (np.stack([pieces.start[some], pieces.end[some]]) - origin) / unit
    size = np.maximum(np.abs(ends).max(axis=(0, 2)), 1.0)
    along = pieces.end[some] - pieces.start[some]
    dx, dy = (along / np.abs(along).sum(axis=1, keepdims=True)).T
    x, y = ends[0].T
    lines = np.stack([-dy, dx, dy * x - dx * y], axis=1) / size[:, None]
    points = np.concatenate([ends, np.ones_like(ends[..., :1])], axis=2) / size[:, None]
    return lines, points / (32 * ROUNDING)


# Pairs that touch, or nearly: exact signs.


def _settle(pieces: _Pieces, pairs: list[tuple[Index, Index]]) -> Crossings:
    if not pairs:
        return Crossings(total=0, between_classes=0)
    one, other = (np.concatenate(some) for some in zip(*pairs, strict=True))
    near = ((pieces.low[one] <= pieces.high[other]) & (pieces.low[other] <= pieces.high[one])).all(axis=1)
    one, other = one[near], other[near]
    for _ in range(2):  # the second time round the roles are exchanged
        apart = _piece_to_points(pieces, one, other)
        one, other = other[apart <= 0], one[apart <= 0]
    return pieces.tally(one, other, _cross(pieces, one, other))


def _piece_to_points(pieces: _Pieces, one: Index, other: Index) -> Signs:
    """[k]: 1 where both ends of `other` lie on the same side of `one`'s line, -1 on different ones, 0 where one is on it."""
    start, end = pieces.start[one], pieces.end[one]
    return _orientation(start, end, pieces.start[other]) * _orientation(start, end, pieces.end[other])


def _cross(pieces: _Pieces, one: Index, other: Index) -> Mask:
    """[k]: whether polygons change sides inside both pieces, where one's start is inside the other, or where both start.

    A piece owns its start and not its end, so that a crossing at a vertex is found by one pair of pieces only.
    """
    crossing = (_piece_to_points(pieces, one, other) < 0) & (_piece_to_points(pieces, other, one) < 0)
    for through, turning in ((one, other), (other, one)):
        crossing |= _start_crosses(pieces, turning, through)
    together = np.flatnonzero((pieces.start[one] == pieces.start[other]).all(axis=1))
    crossing[together] = _vertices_cross(pieces, one[together], other[together])
    return crossing


def _start_crosses(pieces: _Pieces, turning: Index, through: Index) -> Mask:
    """[k]: whether the vertex where `turning` starts lies inside `through` and its polygon changes sides there."""
    start, end, vertex = pieces.start[through], pieces.end[through], pieces.start[turning]
    inside = (vertex != start).any(axis=1) & (vertex != end).any(axis=1) & _within(pieces, through, vertex)
    inside &= _orientation(start, end, vertex) == 0
    changes = _orientation(start, end, pieces.before[turning]) * _orientation(start, end, pieces.end[turning]) < 0
    return inside & changes


def _within(pieces: _Pieces, some: Index, point: Floats) -> Mask:
    return ((pieces.low[some] <= point) & (point <= pieces.high[some])).all(axis=1)


def _vertices_cross(pieces: _Pieces, one: Index, other: Index) -> Mask:
    """[k]: whether two polygons with a common vertex, where both pieces start, change sides there.

    They do where the other's way in and way out lie in different sectors between one's way in and way out.
    """
    vertex, way_in, way_out = pieces.start[one], pieces.before[one], pieces.end[one]
    passing = (way_in != vertex).any(axis=1) & (pieces.before[other] != vertex).any(axis=1)
    left, along = zip(*(_sector(vertex, way_out, way_in, ray[other]) for ray in (pieces.before, pieces.end)), strict=True)
    return passing & ~along[0] & ~along[1] & (left[0] != left[1])


def _sector(vertex: Floats, first: Floats, last: Floats, ray: Floats) -> tuple[Mask, Mask]:
    """[k] each: whether a ray lies in the sector from the ray `first` anticlockwise to `last`, and whether on either."""
    from_first, from_last = _orientation(vertex, first, ray), _orientation(vertex, last, ray)
    width = _orientation(vertex, first, last)
    along = (from_first == 0) & _same_way(vertex, first, ray) | (from_last == 0) & _same_way(vertex, last, ray)
    narrow, wide = (from_first > 0) & (from_last < 0), (from_first > 0) | (from_last < 0)
    flat = ~_same_way(vertex, first, last) & (from_first > 0)
    return np.where(width > 0, narrow, np.where(width < 0, wide, flat)), along


def _same_way(vertex: Floats, one: Floats, other: Floats) -> Mask:
    """[k]: of points on one line through the vertex, whether they lie on the same side of it."""
    return (_compare(one, vertex) == _compare(other, vertex)).all(axis=1)


def _compare(one: NDArray[np.generic], other: NDArray[np.generic]) -> Signs:
    return (one > other).view(np.int8) - (one < other).view(np.int8)  # type: ignore[operator,no-any-return]


# The exact sign of a triangle's area.


def _orientation(a: Floats, b: Floats, c: Floats) -> Signs:
    """[k]: 1 where a, b, c turn anticlockwise, -1 where clockwise, 0 where they lie on one line, exactly."""
    (ux, uy), (vx, vy) = (a - c).T, (b - c).T
    left, right = ux * vy, uy * vx
    sign = _compare(left, right)
    # Shewchuk (1997): (3 + 16 u) u bounds the relative error; the last term leaves underflow out of it.
    sure = np.abs(left - right) > 4 * ROUNDING * (np.abs(left) + np.abs(right)) + 1e-290
    sure |= ((ux == 0) | (vy == 0)) & ((uy == 0) | (vx == 0))
    rest = np.flatnonzero(~sure)
    if len(rest):
        sign[rest] = _exact_orientation(a[rest], b[rest], c[rest])
    return sign


def _exact_orientation(a: Floats, b: Floats, c: Floats) -> Signs:
    """[k]: the same in whole numbers of any length: every float is one, times a power of two that the three may share."""
    mantissa, exponent = np.frexp(np.stack([a, b, c]))
    shift = exponent - exponent.min(axis=(0, 2), keepdims=True)
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object) << shift.astype(object)
    (ux, uy), (vx, vy) = (whole[0] - whole[2]).T, (whole[1] - whole[2]).T
    return _compare(ux * vy, uy * vx)
