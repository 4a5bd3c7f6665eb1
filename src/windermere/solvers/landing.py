"""Solves that land on every time asked for, whatever their callers say: so that no interpolation errs in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

MOST_LANDINGS = 10_000
"""More times than this lie so densely that a step to each would take hours: they are passed over."""


@dataclass
class Landings:
    """What was landed on so far."""

    times: int = 0
    """Between the ends of their solves."""


_landings: ContextVar[Landings | None] = ContextVar("landings", default=None)


@contextmanager
def landing() -> Iterator[Landings]:
    """Within `with landing():`, every solve lands on all its times, and a grid is made to stop at them."""
    found = Landings()
    token = _landings.set(found)
    try:
        yield found
    finally:
        _landings.reset(token)


def is_landing() -> bool:
    """Whether this is within `with landing():`."""
    return _landings.get() is not None


def has_to_land(between: int) -> bool:
    """Whether a solve with so many times between its ends has to land on them; they are counted."""
    found = _landings.get()
    if found is None or not 0 < between <= MOST_LANDINGS:
        return False
    found.times += between
    return True
