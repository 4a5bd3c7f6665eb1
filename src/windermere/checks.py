"""Numbers and functions that users give, looked at in one way: what is none can be refused in a sentence."""

import inspect
from math import nan
from typing import Any

import numpy as np


def as_number(value: Any) -> float:
    """Not a number for what is none, so that it lies in no range."""
    try:
        return nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is a tensor's of several entries
        return nan


def is_whole(value: Any, *, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least


def tidy(value: float, rounding: float = 1e-14) -> float:
    """The 1/N, or the number of few digits, that a calculation meant: 0.003 for 0.0029999999999999996.

    What is no such number up to a relative rounding error stays as it is.
    """
    if not 1e-300 < value < 1e300:
        return value
    simple = (1 / max(1, round(1 / value)), *(float(f"{value:.{digits}g}") for digits in range(1, 13)))
    return next((number for number in simple if abs(number - value) <= rounding * value), value)


def takes_two(function: Any) -> bool:
    """Whether a function or a module can be called with two arguments; yes where nothing is known of it."""
    try:
        inspect.signature(getattr(function, "forward", function)).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # of what is written in C nothing may be known
        pass
    return True
