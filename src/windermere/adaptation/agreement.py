"""When two scores are the same: within a threshold, which is in the score's own units.

The paper's threshold of 0.1 is one for accuracies, and a controller cannot see what a score is: an error of 2e-5 looks
like a poor accuracy, and is the same as any other error below 0.1. So a threshold that was given is taken as it is; but
where none was, scores that cannot be accuracies are refused, and a threshold that hides a factor of two is told of.
"""

import warnings
from dataclasses import dataclass
from math import isnan

from windermere.adaptation.controller import PrecisionControl, check_positive
from windermere.adaptation.score import Score
from windermere.errors import ThresholdWarning, UsageError

PAPERS_THRESHOLD = 0.1
"""Accuracies further apart than this are not the same."""
ROUNDING = 1e-9
"""Scores are quotients: 0.4 is by a little more than 0.1 above 0.3, and 0.9 by a little less above 0.8."""
FACTOR = 2.0
"""Scores that differ by more than this are hardly the same, whatever their units."""
INSTEAD = (
    "for another score give the controller threshold=... in the score's units (log10 of an error, with threshold=0.3), "
    "or take a steady controller with relative_distance"
)


@dataclass(frozen=True, kw_only=True)
class ThresholdControl(PrecisionControl):
    """What both of the paper's algorithms share: they compare scores."""

    threshold: float | None = None
    """Scores further apart than this are not the same. None takes the paper's 0.1, and refuses scores that cannot be
    accuracies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None:
            check_positive(threshold=self.threshold)


def differ(one: Score, other: Score, threshold: float | None) -> bool:
    """Whether two scores are not the same; one that is not a number is never the same as another. None takes the
    paper's threshold, for accuracies."""
    allowed = PAPERS_THRESHOLD if threshold is None else threshold
    apart = not abs(one.value - other.value) <= allowed * (1 + ROUNDING)
    if threshold is None:
        _refuse_what_is_no_accuracy(one.value, other.value)
        if not apart:
            _tell_of_a_hidden_factor(one.value, other.value)
    return apart


def _refuse_what_is_no_accuracy(*values: float) -> None:
    for value in values:
        if not (-ROUNDING <= value <= 1 + ROUNDING or isnan(value)):
            raise UsageError(
                f"a score of {value:g} is no accuracy from 0 to 1, for which the paper's threshold of "
                f"{PAPERS_THRESHOLD} is meant: {INSTEAD}"
            )


def _tell_of_a_hidden_factor(one: float, other: float) -> None:
    if max(one, other) > FACTOR * min(one, other) * (1 + ROUNDING):
        warnings.warn(
            f"two scores that differ by a factor of more than {FACTOR:g} pass for the same, since the paper's "
            f"threshold of {PAPERS_THRESHOLD} is meant for accuracies above it: {INSTEAD}; if they are accuracies, "
            f"threshold={PAPERS_THRESHOLD} says that it is meant for them",
            ThresholdWarning,
            stacklevel=6,  # whoever called `review`, past the controller's generator
        )
