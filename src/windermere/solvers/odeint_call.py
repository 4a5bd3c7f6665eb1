"""What `odeint` does once its arguments are read: the states at all times asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import numbers_in
from windermere.solvers.field import Field
from windermere.solvers.gradients import Adjoint, Gradient
from windermere.solvers.layout import State
from windermere.solvers.legs import Knot, combined, solve_in_legs, stacked, unstacked
from windermere.solvers.odeint_options import AdaptiveSteps, FixedSteps
from windermere.solvers.solve import solve
from windermere.solvers.solver import SAME_STEP, OnGrid, Solver
from windermere.solvers.torch_modes import has_tangent


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of `odeint`, with at least two times."""

    func: Any
    """The user's own."""
    field: Field
    """`func` on real tensors."""
    start: State
    t: Tensor
    times: tuple[float, ...]
    """The numbers in t."""
    dtype: torch.dtype
    """What `func` gets its time in."""
    steps: FixedSteps | AdaptiveSteps
    gradient: Gradient

    @property
    def solver(self) -> Solver:
        return self.steps.solver

    @property
    def is_moving(self) -> bool:
        """Whether the times need a gradient, or carry a derivative along."""
        return (self.t.requires_grad and torch.is_grad_enabled()) or has_tangent(self.t)

    @property
    def interpolates(self) -> bool:
        """Whether some of the times asked for lie between two nodes of fixed steps."""
        return isinstance(self.steps, FixedSteps) and not bool(_Places(self, self.steps).on_node.all())

    def states(self) -> State:
        """The states at all times, stacked along a first axis."""
        if self.is_moving and isinstance(self.gradient, Adjoint):
            return _moved_after_all(self)
        return _on_grid(self, self.steps) if isinstance(self.steps, FixedSteps) else _by_tolerance(self, self.steps)

    def notes(self) -> Iterator[str]:
        """In which way another solver answers this call otherwise."""
        if isinstance(self.steps, FixedSteps) and self.interpolates:
            yield (
                f"some of the {len(self.times)} times asked for lie between the steps of {self.solver}: "
                f"windermere.odeint interpolates there (interp='{self.steps.interp}'), and so do all fixed steps of an "
                "audit's table; its reference flow lands on each"
            )


def answer(call: Call) -> State:
    """The states that a call asks for. An audit puts a function of its own here, to answer with other solvers."""
    return call.states()


def _by_tolerance(call: Call, steps: AdaptiveSteps) -> State:
    """Where a field jumps, where steps are to end, and where times need a gradient, a leg ends; else there is one."""
    knots = _knots(call, steps)
    if len(knots) == 2 and not any(knot.jump or knot.shift is not None for knot in knots):
        return solve(call.field, call.start, call.solver, call.times, gradient=call.gradient).states
    return stacked(solve_in_legs(call.field, call.start, call.solver, knots, call.times, call.gradient))


def _knots(call: Call, steps: AdaptiveSteps) -> list[Knot]:
    low, high = sorted((call.times[0], call.times[-1]))
    knots = {t: Knot(t) for t in steps.step_t if low < t < high}
    if call.is_moving:
        shift = (call.t - call.t.detach()).unbind(0)
        knots |= {t: Knot(t, own) for t, own in zip(call.times, shift, strict=True)}
    else:
        knots |= {t: Knot(t) for t in (low, high)}
    jumps = [t for t in steps.jump_t if low <= t <= high]
    knots |= {t: Knot.at_jump(t, knots[t].shift if t in knots else None, call.dtype) for t in jumps}
    return [knots[t] for t in sorted(knots, reverse=call.times[0] > call.times[-1])]


class _Places:
    """Where the times asked for lie on a grid."""

    def __init__(self, call: Call, steps: FixedSteps) -> None:
        sign = 1.0 if call.times[-1] > call.times[0] else -1.0
        nodes, times = sign * np.asarray(numbers_in(steps.nodes)), sign * np.asarray(call.times)
        least = float(np.diff(nodes).min())
        rounding = 4 * torch.finfo(call.t.dtype).eps * float(np.abs(times).max())
        near = min(SAME_STEP * least + rounding, least / 4)
        self.after = np.searchsorted(nodes, times - near).clip(1, len(nodes) - 1)
        """The node at each time, or the first one behind it."""
        self.after[0] = 0
        self.on_node = np.abs(nodes[self.after] - times) <= near


def _on_grid(call: Call, steps: FixedSteps) -> State:
    """Walk the grid, and interpolate between two nodes where a time lies there."""
    places, values = _Places(call, steps), numbers_in(steps.nodes)
    after: list[int] = places.after.tolist()
    if not call.is_moving and places.on_node.all() and len(set(after)) == len(after):
        return _at_nodes(call, steps, [values[i] for i in after])
    between = [j > 0 and (call.is_moving or not on_node) for j, on_node in enumerate(places.on_node)]
    needed = sorted({*after, *(i - 1 for i, inside in zip(after, between, strict=True) if inside)})
    asked = [values[i] for i in needed]
    found = _with_moving_nodes(call, steps, asked) if call.is_moving else unstacked(_at_nodes(call, steps, asked))
    at = dict(zip(needed, found, strict=True))
    interpolate = _cubic if steps.interp == "cubic" else _straight
    nodes, moments = (times if call.is_moving else times.detach() for times in (steps.nodes, call.t.double()))
    return stacked(
        [
            interpolate(call.field, nodes[i - 1], nodes[i], at[i - 1], at[i], moment) if inside else at[i]
            for i, moment, inside in zip(after, moments.unbind(0), between, strict=True)
        ]
    )


def _at_nodes(call: Call, steps: FixedSteps, times: list[float]) -> State:
    gradient = _landing_on(times, call.gradient)
    return solve(call.field, call.start, steps.solver, times, gradient=gradient).states


def _with_moving_nodes(call: Call, steps: FixedSteps, times: list[float]) -> list[State]:
    values, shift = numbers_in(steps.nodes), (steps.nodes - steps.nodes.detach()).unbind(0)
    knots = [Knot(values[i], shift[i]) for i in steps.anchors]
    grid = OnGrid(steps.solver.method, tuple(values))
    return solve_in_legs(call.field, call.start, grid, knots, times, call.gradient)


def _landing_on(times: list[float], gradient: Gradient) -> Gradient:
    """The adjoint's grid stops at these nodes of the forward one."""
    if isinstance(gradient, Adjoint) and isinstance(gradient.solver, OnGrid):
        return replace(gradient, solver=gradient.solver.stopping_at(times))
    return gradient


def _straight(field: Field, first: Tensor, last: Tensor, before: State, after: State, moment: Tensor) -> State:
    """The straight line between the two steps around a time."""
    back = (moment - last) / (last - first)
    return combined(lambda a, b: b + back.to(b) * (b - a), before, after)


def _cubic(field: Field, first: Tensor, last: Tensor, before: State, after: State, moment: Tensor) -> State:
    """The cubic that has the states and their rates at the two steps around a time: two evaluations more."""
    h = last - first
    x = (moment - first) / h

    def hermite(a: Tensor, b: Tensor, slope: Tensor, end_slope: Tensor) -> Tensor:
        s, size = x.to(a), h.to(a)
        rise = b - a
        curve = (1 - s) * (size * slope - rise) - s * (size * end_slope - rise)
        return a + s * rise + s * (1 - s) * curve

    return combined(hermite, before, after, _rate(field, first, before), _rate(field, last, after))


def _moved_after_all(call: Call) -> State:
    """The adjoint's gradient with respect to the times: a later end moves the state there by the field, and a later
    start moves the first state back by it."""
    shift = call.t - call.t.detach()

    def moved(time: float, z: State, by: Tensor) -> State:
        with torch.no_grad():
            rate = _rate(call.field, call.t.new_tensor(time), z)
        return combined(lambda part, k: part + by.to(part) * k, z, rate)

    start = moved(call.times[0], call.start, -shift[0])
    _, *later = unstacked(replace(call, start=start, t=call.t.detach()).states())
    return stacked([call.start, *map(moved, call.times[1:], later, shift[1:].unbind(0))])


def _rate(field: Field, t: Tensor, z: State) -> Any:
    return field(t.to(z if isinstance(z, Tensor) else z[0]), z)
