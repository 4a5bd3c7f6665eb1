"""Numbers that users give, looked at in one way: what is no such number can be refused in a sentence."""

from math import nan
from typing import Any

import numpy as np


def as_number(value: Any) -> float:
    """Not a number for what is none, so that it lies in no range."""
    try:
        return nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is a tensor's of several entries
        return nan


def is_whole(value: Any, *, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least
