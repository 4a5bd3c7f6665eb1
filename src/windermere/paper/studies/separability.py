"""Whether a line has all points of one class on one side and all others on the other: decided exactly."""

from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Point = tuple[Fraction, Fraction]


def linearly_separable(points: Floats, labels: NDArray[np.int64]) -> bool:
    """Whether a line parts the points [n, 2] with label 0 from all others, none of them on it.

    Floats are fractions, and fractions do not round, so there is no tolerance. A normal w of such a line has w·d > 0
    for every difference d of a point of one class and one of the other: these lie in an open half plane. They do where
    all others are less than half a turn anticlockwise of one of them.
    """
    exact = [(Fraction(x), Fraction(y)) for x, y in np.asarray(points, dtype=np.float64).tolist()]
    one = [point for point, label in zip(exact, labels, strict=True) if label == 0]
    other = [point for point, label in zip(exact, labels, strict=True) if label != 0]
    differences = [(a[0] - b[0], a[1] - b[1]) for a, b in product(one, other)]
    if not differences:
        return True
    return any(all(_within_half_a_turn(u, v) for v in differences) for u in differences)


def _within_half_a_turn(u: Point, v: Point) -> bool:
    turn = u[0] * v[1] - u[1] * v[0]
    return turn > 0 or (turn == 0 and u[0] * v[0] + u[1] * v[1] > 0)


def widest_line(points: Floats, labels: NDArray[np.int64]) -> tuple[float, float, float]:
    """(a, b, c) of the line a x + b y = c in the middle of the widest gap between points that are separable.

    The gap is as wide as the shortest way from a point of one class to a segment between two of the other.
    """
    zero, other = points[labels == 0], points[labels != 0]
    ways = [(q, p) for p in other for q in _nearest(p, zero)] + [(p, q) for p in zero for q in _nearest(p, other)]
    start, end = min(ways, key=lambda way: float(np.linalg.norm(way[1] - way[0])))
    normal = (end - start) / np.linalg.norm(end - start)
    return float(normal[0]), float(normal[1]), float(normal @ (start + end) / 2)


def _nearest(p: Floats, ends: Floats) -> list[Floats]:
    """The nearest place to p on each segment between two of the ends (which may be the same)."""
    return [a + (b - a) * _share(p, a, b) for a, b in product(ends, ends)]


def _share(p: Floats, a: Floats, b: Floats) -> float:
    length = float((b - a) @ (b - a))
    return 0.0 if length == 0 else float(np.clip((p - a) @ (b - a) / length, 0, 1))
