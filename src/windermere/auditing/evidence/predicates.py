"""The exact sign of a triangle's area: which way three points turn, whatever rounding would say.

Shapes: k triangles; points are [2, k].
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Signs = NDArray[np.int8]
Mask = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)

ROUNDING = 2.0**-53


def area_sign(a: Floats, b: Floats, c: Floats) -> Signs:
    """[k]: 1 where a, b, c turn anticlockwise, -1 where clockwise, 0 where they lie on one line, exactly."""
    (ux, uy), (vx, vy) = a - c, b - c
    left, right = ux * vy, uy * vx
    # Shewchuk (1997): (3 + 16 u) u bounds the relative error; the last term leaves underflow out of it.
    unsure = ~(np.abs(left - right) > 4 * ROUNDING * (np.abs(left) + np.abs(right)) + 1e-290)
    sign = compare(left, right)
    rest = np.flatnonzero(unsure & ~(((ux == 0) | (vy == 0)) & ((uy == 0) | (vx == 0))))
    if len(rest):
        sign[rest] = _area_sign_where_close(at(a, rest), at(b, rest), at(c, rest))
    return sign


def _area_sign_where_close(a: Floats, b: Floats, c: Floats) -> Signs:
    """[k]: the same where rounding might decide.

    Where differences are exact, unequal products keep their order when rounded and equal ones differ in their errors.
    """
    u, v = a - c, b - c
    left, right = u[0] * v[1], u[1] * v[0]
    sign = compare(left, right)
    tie = np.flatnonzero(left == right)
    (ux, uy), (vx, vy), product = at(u, tie), at(v, tie), left[tie]
    sign[tie] = compare(_error(ux, vy, product), _error(uy, vx, product))
    safe = (np.abs(left) > 1e-250) & (np.abs(u) < 1e150).all(axis=0) & (np.abs(v) < 1e150).all(axis=0)
    exact = safe & everywhere(u + c == a, a - u == c, v + c == b, b - v == c)
    rest = np.flatnonzero(~exact)
    if len(rest):
        sign[rest] = _area_sign_in_whole_numbers(at(a, rest), at(b, rest), at(c, rest))
    return sign


def _error(one: Floats, other: Floats, product: Floats) -> Floats:
    """[k]: what rounding took from a product (Dekker 1971)."""
    (a, b), (c, d) = _halves(one), _halves(other)
    return b * d - (((product - a * c) - b * c) - a * d)


def _halves(value: Floats) -> tuple[Floats, Floats]:
    big = value * (2.0**27 + 1)
    high = big - (big - value)
    return high, value - high


def _area_sign_in_whole_numbers(a: Floats, b: Floats, c: Floats) -> Signs:
    """[k]: the same in whole numbers of any length, which floats are times a power of two."""
    mantissa, exponent = np.frexp(np.stack([a, b, c]))
    shift = exponent - exponent.min(axis=(0, 1))
    (ax, ay), (bx, by), (cx, cy) = (mantissa * 2.0**53).astype(np.int64).astype(object) << shift.astype(object)
    return compare((ax - cx) * (by - cy), (ay - cy) * (bx - cx))


def compare(one: NDArray[Any], other: NDArray[Any]) -> Signs:
    more, less = np.asarray(one > other, np.bool_), np.asarray(one < other, np.bool_)
    return more.view(np.int8) - less.view(np.int8)


def at(array: NDArray[Number], some: Index) -> NDArray[Number]:
    return array.take(some, axis=-1)  # several times as fast as array[..., some]


def everywhere(*conditions: Mask) -> Mask:
    """[k]: whether conditions [2, k] hold in both coordinates."""
    both: Mask = np.logical_and.reduce([row for condition in conditions for row in condition])
    return both
