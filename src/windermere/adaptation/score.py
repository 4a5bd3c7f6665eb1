"""How a solver did on the batch under review: what a controller is told."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any, SupportsFloat

from windermere.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a solver did on the batch under review.

    `value` is accuracy, from 0 to 1, or another score in whose units the controller was given a `threshold`: the
    paper's algorithms look at it. `distance` says how far the outputs lie from the training solver's on the same batch
    (`moved_mass`, `relative_distance`): steady controllers need it. `steps` are those of the solve, of several the
    longest: `ToleranceAdaptation` needs them of the training solver, and raises nothing where there are hardly any.
    None is for what nobody measured.

    Numbers may come as tensors or arrays of one entry, and are kept as plain ones: a state that outlives its batch must
    not hold on to the batch's graph.

    >>> import torch
    >>> import windermere as wm
    >>> wm.Score(value=torch.tensor(0.75), steps=8).value
    0.75
    """

    value: float
    distance: float | None = None
    steps: int | None = None
    evaluations: int = 0

    def __init__(
        self,
        *,
        value: SupportsFloat,
        distance: SupportsFloat | None = None,
        steps: SupportsFloat | None = None,
        evaluations: SupportsFloat = 0,
    ) -> None:
        object.__setattr__(self, "value", _plain("value", value, float))
        object.__setattr__(self, "distance", None if distance is None else _at_least_0("distance", distance, float))
        object.__setattr__(self, "steps", None if steps is None else _at_least_0("steps", steps, int))
        object.__setattr__(self, "evaluations", _at_least_0("evaluations", evaluations, int))


def as_score(who: str, given: Any) -> Score:
    """What a user's function gave, if it is a score."""
    if not isinstance(given, Score):
        raise UsageError(f"{who} a windermere.Score(value=...), not a {type(given).__name__}")
    return given


def _plain(name: str, given: Any, kind: type[float] | type[int]) -> float | int:
    """The number itself, off autograd's tape."""
    try:
        number = float(given.detach() if hasattr(given, "detach") else given)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        shape = getattr(given, "shape", None)
        what = f"of type {type(given).__name__}" if shape is None else f"of shape {list(shape)}"
        raise UsageError(f"a score's {name} is one number, not something {what}") from error
    if kind is int and not number.is_integer():
        raise UsageError(f"a score's {name} is a whole number, not {number:g}")
    return kind(number)


def _at_least_0(name: str, given: Any, kind: type[float] | type[int]) -> float | int:
    number = _plain(name, given, kind)
    if number < 0:
        raise UsageError(f"a score's {name} is at least 0, not {number:g}")
    return number


FAILED = Score(value=nan, distance=inf)
"""The score of a solver that cannot solve the batch: it agrees with no other score."""
