"""The slow reference of crossings: every pair of pieces, in fractions, and rays sorted by angle."""

from fractions import Fraction
from functools import cmp_to_key
from itertools import combinations, pairwise, product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from windermere.auditing.evidence.crossings import Crossings

Floats: TypeAlias = NDArray[np.float64]
Point: TypeAlias = tuple[Fraction, Fraction]
Passage: TypeAlias = tuple[Point, Point]
"""The ways in and out of a polygon at a point of it, as directions from it."""


def minus(a: Point, b: Point) -> Point:
    return a[0] - b[0], a[1] - b[1]


def cross(a: Point, b: Point) -> Fraction:
    return a[0] * b[1] - a[1] * b[0]


def same_angle(a: Point, b: Point) -> bool:
    return cross(a, b) == 0 and a[0] * b[0] + a[1] * b[1] > 0


def by_angle(a: Point, b: Point) -> int:
    def half(p: Point) -> bool:
        return p[1] < 0 or (p[1] == 0 and p[0] < 0)

    order = half(a) - half(b) or -cross(a, b)
    return int(order > 0) - int(order < 0)


def interleave(one: Passage, other: Passage) -> bool:
    if any(same_angle(a, b) for a, b in combinations(one + other, 2)):
        return False
    around = [ray in one for ray in sorted(one + other, key=cmp_to_key(by_angle))]
    return around in ([True, False, True, False], [False, True, False, True])


def meeting(a: Point, b: Point, c: Point, d: Point) -> tuple[Fraction, Fraction] | None:
    """How far along [a, b) and [c, d) the one point lies that both have; None where there is none, or a common line."""
    u, v, w = minus(b, a), minus(d, c), minus(c, a)
    if cross(u, v) == 0:
        return (Fraction(0), Fraction(0)) if a == c else None
    s, t = cross(w, v) / cross(u, v), cross(w, u) / cross(u, v)
    return (s, t) if 0 <= s < 1 and 0 <= t < 1 else None


def passage(path: list[Point], i: int, along: Fraction) -> Passage | None:
    if along > 0:
        return minus(path[i], path[i + 1]), minus(path[i + 1], path[i])
    return (minus(path[i - 1], path[i]), minus(path[i + 1], path[i])) if i > 0 else None


def crossings_of_two(one: list[Point], other: list[Point]) -> int:
    count = 0
    for i, j in product(range(len(one) - 1), range(len(other) - 1)):
        met = meeting(one[i], one[i + 1], other[j], other[j + 1])
        ways = met and (passage(one, i, met[0]), passage(other, j, met[1]))
        count += bool(ways and ways[0] and ways[1] and interleave(ways[0], ways[1]))
    return count


def slow_count(trajectories: Floats, labels: NDArray[np.int64]) -> Crossings:
    paths = [[(Fraction(x), Fraction(y)) for x, y in path] for path in trajectories.transpose(1, 0, 2).tolist()]
    paths = [path[:1] + [b for a, b in pairwise(path) if a != b] for path in paths]
    counts = {(i, j): crossings_of_two(paths[i], paths[j]) for i, j in combinations(range(len(paths)), 2)}
    between = sum(count for (i, j), count in counts.items() if labels[i] != labels[j])
    return Crossings(total=sum(counts.values()), between_classes=between)
