"""torchdiffeq's names of methods, its options and its tolerances, read as solvers of ours."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import numbers_in
from windermere.checks import as_number
from windermere.errors import UnknownNameError, UsageError, describe_value
from windermere.solvers.solver import SAME_STEP, Adaptive, FixedStep, OnGrid
from windermere.solvers.tableaus import METHODS
from windermere.solvers.times import check_times

FIXED = {"euler": "euler", "midpoint": "midpoint", "heun2": "heun", "heun3": "heun3", "rk4": "rk4_38"}
ADAPTIVE = {
    "dopri5": "dopri54",
    "tsit5": "tsit54",
    "bosh3": "bosh32",
    "fehlberg2": "fehlberg21",
    "adaptive_heun": "heun21",
}
"""Torchdiffeq's names and ours. Its rk4 is the 3/8 rule."""
INSTEAD = {
    "dopri8": "'dopri5' with a tighter tolerance",
    "scipy_solver": "'dopri5'",
    **dict.fromkeys(("explicit_adams", "implicit_adams", "fixed_adams"), "'rk4' or 'dopri5'"),
    **dict.fromkeys(("implicit_euler", "implicit_midpoint", "trapezoid", "radauIIA3", "gl4"), "'dopri5'"),
    **dict.fromkeys(("radauIIA5", "gl6", "sdirk2", "trbdf2"), "'dopri5'"),
}
"""Its methods that are missing here: no multistep, implicit or eighth-order ones, and none of SciPy's."""
FIXED_OPTIONS = ("step_size", "grid_constructor", "interp", "perturb", "norm")
ADAPTIVE_OPTIONS = (
    *("max_num_steps", "step_t", "jump_t", "first_step", "min_step", "max_step"),
    *("safety", "ifactor", "dfactor", "dtype", "norm"),
)
ALWAYS: Mapping[str, Any] = {
    "first_step": None,
    "min_step": 0,
    "max_step": inf,
    "safety": 0.9,
    "ifactor": 10.0,
    "dfactor": 0.2,
    "dtype": torch.float64,
    "norm": None,
    "perturb": False,
}
"""Options that have one value here, torchdiffeq's default."""
INTERPOLATIONS = ("linear", "cubic")
NO_LIMIT = 2**31 - 1
"""As many steps as torchdiffeq allows, if nothing is said."""
ROUNDINGS = 2.5
"""A relative tolerance is at least so many roundings of the state: below two, `Adaptive` refuses to solve."""


@dataclass(frozen=True)
class FixedSteps:
    """A grid of steps, and how states between its nodes are had."""

    solver: FixedStep | OnGrid
    nodes: Tensor
    """[N + 1], float64, with the gradient of the times that it was made from."""
    anchors: tuple[int, ...]
    """Nodes between which all move as one, if the times that the grid was made from move."""
    interp: str


@dataclass(frozen=True)
class AdaptiveSteps:
    """Steps by tolerance, that end at these times where they are among those passed."""

    solver: Adaptive
    step_t: tuple[float, ...]
    jump_t: tuple[float, ...]


def is_fixed(method: str | None) -> bool:
    """Whether a method of torchdiffeq's takes fixed steps; one that is missing here is refused."""
    name = "dopri5" if method is None else method
    if name in INSTEAD:
        raise UsageError(
            f"windermere.odeint has no '{name}', only explicit Runge-Kutta methods up to order 5: take "
            f"{INSTEAD[name]}, or torchdiffeq's own odeint"
        )
    if name not in FIXED and name not in ADAPTIVE:
        raise UnknownNameError("method", name, (*FIXED, *ADAPTIVE))
    return name in FIXED


def read_fixed(method: str, options: Mapping[str, Any], grid_of: Callable[[Any], Tensor], t: Tensor) -> FixedSteps:
    """The grid that is asked for: of one step size, of a constructor's (`grid_of` calls it), or t itself."""
    _check_options(method, options, FIXED_OPTIONS)
    interp, step, construct = options.get("interp", "linear"), options.get("step_size"), options.get("grid_constructor")
    if interp not in INTERPOLATIONS:
        raise UnknownNameError("interpolation", interp, INTERPOLATIONS)
    if step is not None and construct is not None:
        raise UsageError("step_size and grid_constructor are two grids: give one of them")
    if construct is not None and not callable(construct):
        raise UsageError(f"grid_constructor must be a function of func, y0 and t, not {_told(construct)}")
    name = FIXED[method]
    if step is not None:
        stepping = FixedStep(name, step=step)
        nodes = _stepped(stepping, t.double())
        last = len(nodes) - 1
        return FixedSteps(stepping, nodes, tuple(sorted({0, max(last - 1, 0), last})), interp)
    nodes = t.double() if construct is None else grid_of(construct)
    return FixedSteps(OnGrid(name, times_of(nodes)), nodes, tuple(range(len(nodes))), interp)


def read_adaptive(
    method: str | None, options: Mapping[str, Any], rtol: Any, atol: Any, dtype: torch.dtype, intervals: int
) -> AdaptiveSteps:
    """The tolerances that are asked for, as far as the dtype resolves them."""
    name = "dopri5" if method is None else method
    _check_options(name, options, ADAPTIVE_OPTIONS)
    budget = options.get("max_num_steps", NO_LIMIT)  # torchdiffeq's is for each interval between two times
    limit = min(int(budget) * intervals, NO_LIMIT) if as_number(budget).is_integer() else budget
    solver = Adaptive(
        ADAPTIVE[name], rtol=_resolved(_smallest("rtol", rtol), dtype), atol=_smallest("atol", atol), max_steps=limit
    )
    return AdaptiveSteps(solver, stops_in("step_t", options), stops_in("jump_t", options))


def times_of(t: Any) -> tuple[float, ...]:
    """The times of a 1-D tensor as numbers: one, or several that rise or fall."""
    if not isinstance(t, Tensor) or t.ndim != 1 or not t.is_floating_point() or not len(t):
        raise UsageError(f"t must be a 1-D floating tensor of times, as torch.tensor([0.0, 1.0]), not {_told(t)}")
    values = numbers_in(t)
    return (float(values[0]),) if len(values) == 1 else check_times(values)


def constructed(construct: Callable[..., Any], func: Any, y0: Any, t: Tensor) -> Tensor:
    """The grid of a user's `grid_constructor`, which begins and ends where t does."""
    nodes = construct(func, y0, t)
    times, ends = times_of(nodes), times_of(t)
    if abs(times[0] - ends[0]) + abs(times[-1] - ends[-1]) > SAME_STEP * abs(ends[-1] - ends[0]):
        raise UsageError(
            f"the grid of grid_constructor goes from {times[0]} to {times[-1]}, but t from {ends[0]} to {ends[-1]}: "
            "let both begin and end alike"
        )
    return nodes.to(torch.float64)  # type: ignore[no-any-return]


def _stepped(solver: FixedStep, t: Tensor) -> Tensor:
    """A grid of equal steps: all of its nodes move with the first time, but the last one."""
    first, *_, last = numbers_in(t)
    values = torch.as_tensor(solver.nodes(first, last), device=t.device)
    shift = t - t.detach()
    return values + torch.cat([shift[:1].expand(len(values) - 1), shift[-1:]])


def _check_options(method: str, options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name, value in options.items():
        if name not in known:
            _refuse_option(method, name, known)
        if name in ALWAYS and not _is_same(value, ALWAYS[name]) and not (name == "norm" and value == "seminorm"):
            raise UsageError(
                f"windermere.odeint solves with {name}={ALWAYS[name]} only, not {_told(value)}: leave the option "
                f"'{name}' out, or take torchdiffeq's own odeint"
            )


def _refuse_option(method: str, name: str, known: tuple[str, ...]) -> None:
    if name not in FIXED_OPTIONS + ADAPTIVE_OPTIONS:
        raise UnknownNameError(f"option for '{method}' called", name, known)
    what, other, alike = ("fixed", "adaptive", ADAPTIVE) if method in FIXED else ("adaptive", "fixed", FIXED)
    raise UsageError(
        f"'{method}' has {what} steps, and '{name}' is an option of {other} ones: leave it out, or take a method with "
        f"{other} steps ({', '.join(alike)})"
    )


def _is_same(value: Any, own: Any) -> bool:
    return value is own or (isinstance(own, float | int) and as_number(value) == own)


def _smallest(name: str, value: Any) -> float:
    """One tolerance. Of several, for entries or parts of the state, the tightest, which keeps within all of them."""
    try:
        parts = value if isinstance(value, tuple | list) else (value,)
        found = [float(part.min() if isinstance(part, Tensor) else part) for part in parts]
        if any(map(isnan, found)):
            raise ValueError
        return min(found)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UsageError(f"{name} must be a number, a tensor or a tuple of these, not {_told(value)}") from error


def needs_float64(method: str | None, rtol: Any, dtype: torch.dtype) -> bool:
    """Whether the state is to be kept in float64, for a tolerance that its dtype does not resolve. The error of methods
    of order 2 is in proportion to their tolerance, so that a looser one would show."""
    name = ADAPTIVE["dopri5" if method is None else method]
    return METHODS[name].order == 2 and _smallest("rtol", rtol) < _least(dtype)


def _least(dtype: torch.dtype) -> float:
    return ROUNDINGS * torch.finfo(dtype).eps


def _resolved(rtol: float, dtype: torch.dtype) -> float:
    least = _least(dtype)
    if 0 <= rtol < least:
        kind = str(dtype).removeprefix("torch.")
        _say(f"{kind} cannot resolve rtol={rtol:.3g}: windermere.odeint solves with rtol={least:.2g} in its place")
        return least
    return rtol


@cache
def _say(what: str) -> None:
    """Logs one line as a warning; the same line only once in a process."""
    logging.getLogger("windermere").warning(what)


def stops_in(name: str, options: Mapping[str, Any]) -> tuple[float, ...]:
    """The times that an option names, none where it is not given."""
    value = options.get(name)
    if value is None:
        return ()
    try:
        times = np.atleast_1d(np.asarray(torch.as_tensor(value).detach().cpu(), dtype=np.float64))
        if times.ndim > 1:
            raise ValueError
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name} must be a 1-D tensor of times, not {_told(value)}") from error
    return tuple(times.tolist())


def _told(value: Any) -> str:
    if isinstance(value, Tensor) and value.numel() != 1:
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return describe_value(value)
