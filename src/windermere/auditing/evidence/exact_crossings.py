"""Whether two pieces of polygons that touch, or nearly do, cross: by exact signs. What counts is told in crossings.py.

Shapes: m pieces, k pairs of them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from windermere.auditing.evidence.pieces import Pieces
from windermere.auditing.evidence.predicates import (
    Floats,
    Index,
    Mask,
    area_sign,
    at,
    compare,
    everywhere,
)


def _only(mask: Mask, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    return [at(array, np.flatnonzero(mask)) for array in arrays]


def _boxes_meet(a: Floats, b: Floats, c: Floats, d: Floats) -> Mask:
    return everywhere(np.minimum(a, b) <= np.maximum(c, d), np.minimum(c, d) <= np.maximum(a, b))


def exact_crossings(pieces: Pieces, one: Index, other: Index) -> tuple[Index, Index, Mask]:
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


def _vertices_cross(pieces: Pieces, one: Index, other: Index) -> Mask:
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
