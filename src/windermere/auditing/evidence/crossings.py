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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windermere.auditing.evidence.exact_crossings import exact_crossings
from windermere.auditing.evidence.pieces import Band, Pieces
from windermere.auditing.evidence.predicates import (
    ROUNDING,
    Floats,
    Index,
    Mask,
    Signs,
    at,
)
from windermere.errors import UsageError

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
        pieces = Pieces.of(points, classes)
        for certain, undecided in _blocks(pieces):
            count += certain
            pairs.append(undecided)
            waiting += len(undecided[0])
            if waiting > BATCH:
                count, waiting, pairs = count + _settle(pieces, pairs), 0, []
        return count + _settle(pieces, pairs)


def _tally(pieces: Pieces, one: Index, other: Index, crossing: Mask) -> Crossings:
    total = int(np.count_nonzero(crossing))
    between = np.count_nonzero(crossing & (pieces.label[one] != pieces.label[other])) if total else 0
    return Crossings(total=total, between_classes=int(between))


def _as_trajectories(trajectories: ArrayLike) -> Floats:
    points = np.asarray(trajectories, dtype=np.float64)
    bad = np.count_nonzero(~np.isfinite(points).all(axis=(0, 2)))
    if bad:
        raise UsageError(
            f"{bad} of {points.shape[1]} trajectories are not finite, so their crossings mean nothing: leave them out"
        )
    return points


def _blocks(pieces: Pieces) -> Iterator[tuple[Crossings, tuple[Index, Index]]]:
    """Every pair of interest once: how many of a block surely cross, and the pairs that exact signs decide."""
    order = np.argsort(pieces.low[0], kind="stable")
    for band in Band(pieces, order, -np.inf).split():
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
                yield _tally(pieces, *found, sure), (found[0][~sure], found[1][~sure])


# What matrix products know of a block of pairs.


def _geometry(pieces: Pieces, some: Index) -> Floats:
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


def _settle(pieces: Pieces, pairs: list[tuple[Index, Index]]) -> Crossings:
    if not pairs:
        return Crossings(total=0, between_classes=0)
    one, other = (np.concatenate(some) for some in zip(*pairs, strict=True))
    found = Crossings(total=0, between_classes=0)
    for i in range(0, len(one), BATCH):
        found += _tally(pieces, *exact_crossings(pieces, one[i : i + BATCH], other[i : i + BATCH]))
    return found
