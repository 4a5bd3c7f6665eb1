"""The times of a solve: what counts as a sequence of them."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from operator import gt, lt
from typing import Any, TypeAlias

import torch

from windermere.errors import UsageError, describe_value
from windermere.solvers.torch_modes import shows_tangent

Times: TypeAlias = tuple[Any, ...]
"""Floats; where each sample has times of its own, arrays [samples]."""
UNORDERED = (str, bytes, set, frozenset, dict)
"""Types that can be iterated over but do not hold a sequence of times in order: they are refused as times."""


def check_times(times: Sequence[float]) -> tuple[float, ...]:
    """At least two finite times, each after the one before, or each before it."""
    if isinstance(times, tuple | list) and len(times) > 1 and set(map(type, times)) == {float}:  # nearly always
        later = times[1:]
        if all(map(isfinite, times)) and (all(map(lt, times, later)) or all(map(gt, times, later))):
            return tuple(times)
    check_times_are_numbers(times)
    try:
        values = None if isinstance(times, UNORDERED) else tuple(float(t) for t in times)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        values = None
    if values is None:
        raise UsageError(f"times must be a sequence of numbers, not {describe_value(times)}")
    sides = {a < b if a != b else None for a, b in pairwise(values)}
    if not all(map(isfinite, values)) or sides not in ({True}, {False}):
        raise UsageError(f"times must be two or more, all rising or all falling, not {shortened(values)}")
    return values


def check_times_are_numbers(times: Any) -> None:
    """Times are numbers to a solve: those that need a gradient, or carry one along, would go without it."""
    if _needs_gradient(times):
        raise UsageError("a solve has no gradient with respect to its times: detach them, or scale the field by time")


def _needs_gradient(times: Any) -> bool:
    entries = times if isinstance(times, tuple | list) else (times,)
    return any(type(t) is not float and _wants_gradient(t) for t in entries)


def _wants_gradient(time: Any) -> bool:
    """Whether one time, or any in a row of times, asks for a gradient."""
    entries = time if isinstance(time, tuple | list) else (time,)
    wanting = torch.is_grad_enabled() and any(getattr(t, "requires_grad", False) for t in entries)
    return wanting or any(map(shows_tangent, entries))


def shortened(values: Sequence[float]) -> str:
    return str(list(values)) if len(values) < 6 else f"[{values[0]}, {values[1]}, ..., {values[-1]}]"
