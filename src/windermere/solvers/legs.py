"""A solve in legs, between times at which its field may jump, or that need a gradient themselves.

On a leg from a to b the field is solved as dz/ds = (dt/ds) f(t(s), z), with t(s) the straight line through both ends:
t(s) = s and dt/ds = 1, but both have the gradient of a and b. A Runge-Kutta method takes the same steps either way, so
this gives the gradient of the very numbers computed with respect to the times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor

from windermere.solvers.field import Field
from windermere.solvers.gradients import Gradient
from windermere.solvers.layout import State
from windermere.solvers.solve import solve
from windermere.solvers.solver import Solver


@dataclass(frozen=True)
class Knot:
    """Where one leg ends and the next one begins."""

    time: float
    shift: Tensor | None = None
    """Zero, with the gradient of this time; None where it needs none."""
    jump: tuple[float, float] | None = None
    """Where the field jumps, the times just below and above that it can tell apart: no leg evaluates it at the jump."""

    @classmethod
    def at_jump(cls, time: float, shift: Tensor | None, dtype: torch.dtype) -> "Knot":
        """A knot where the field, which gets its time in this dtype, jumps."""
        here, side = torch.tensor(time, dtype=dtype), torch.tensor([-inf, inf], dtype=dtype)
        below, above = torch.nextafter(here, side).tolist()
        return cls(time, shift, (below, above))


def solve_in_legs(
    field: Field, y0: State, solver: Solver, knots: Sequence[Knot], times: Sequence[float], gradient: Gradient
) -> list[State]:
    """The states at these times, of which the first is the first knot's; every leg is a solve of its own."""
    states = [y0]
    for start, end in pairwise(knots):
        low, high = sorted((start.time, end.time))
        moments = (start.time, *(t for t in times if low < t < high), end.time)
        found = unstacked(solve(_on_leg(field, start, end), y0, solver, moments, gradient=gradient).states)
        y0 = found[-1]
        states += found[1:] if end.time in times else found[1:-1]
    return states


def _on_leg(field: Field, start: Knot, end: Knot) -> Field:
    if start.jump is not None or end.jump is not None:
        field = _within(field, *(sorted((start, end), key=lambda knot: knot.time)))
    if start.shift is None and end.shift is None:
        return field
    first, last = (knot.shift if knot.shift is not None else 0.0 for knot in (start, end))
    slope: Any = (last - first) / (end.time - start.time)

    def moved(t: Tensor, z: State) -> Any:
        shift = (first + (t - start.time) * slope).to(t)
        return scaled(field(t + shift, z), (1 + slope).to(t))

    return moved


def _within(field: Field, earlier: Knot, later: Knot) -> Field:
    """The field on one side of its jumps."""
    low = earlier.time if earlier.jump is None else earlier.jump[1]
    high = later.time if later.jump is None else later.jump[0]
    return lambda t, z: field(t.clamp(low, high), z)


def scaled(k: Any, factor: Tensor) -> Any:
    """A rate times a number, part by part where it is a tuple."""
    return factor * k if isinstance(k, Tensor) else tuple(factor * part for part in k)


def combined(function: Callable[..., Tensor], *states: State) -> State:
    """A function of tensors, for each part of states."""
    if isinstance(states[0], Tensor):
        return function(*states)
    return tuple(function(*parts) for parts in zip(*states, strict=True))


def stacked(states: Sequence[State]) -> State:
    """States along a first axis, each part of tuples for itself."""
    return combined(lambda *parts: torch.stack(parts), *states)


def unstacked(states: State) -> list[State]:
    """The states along a first axis, one by one."""
    if isinstance(states, Tensor):
        return list(states.unbind(0))
    return list(zip(*(part.unbind(0) for part in states), strict=True))
