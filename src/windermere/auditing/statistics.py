"""How sure a difference is that was measured on the same samples."""

from dataclasses import dataclass
from math import ceil, inf, sqrt

import numpy as np
from numpy.typing import NDArray

CONFIDENT = 1.96
"""Standard deviations on either side: a 95% interval."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The difference of two mean scores on the same samples, and its 95% interval."""

    value: float
    low: float
    high: float
    samples: int

    def exceeds(self, threshold: float) -> bool | None:
        """Whether the true difference, in either direction, is larger than the threshold; None if not sure."""
        if self.low > threshold or self.high < -threshold:
            return True
        return False if -threshold <= self.low and self.high <= threshold else None

    def more_samples(self, threshold: float) -> float:
        """How many more samples would bring the interval to one side, should the difference stay as it is."""
        distance = abs(abs(self.value) - threshold)
        half = (self.high - self.low) / 2
        if distance == 0:
            return inf
        ratio = half / distance
        more = self.samples * (ratio * ratio - 1)  # a power would raise where this is infinite
        return max(0, ceil(more)) if more < inf else inf


def paired_gap(first: NDArray[np.float64], second: NDArray[np.float64]) -> Gap:
    """Mean of first - second, sample by sample.

    For scores of 0 and 1 (right or wrong) the interval is Agresti and Min's (2005), which stays honest where no or few
    samples differ: no difference among 100 samples does not prove that there is none.
    """
    difference, n = first - second, len(first)
    value = float(difference.mean())
    if np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all():
        gained, lost, total = (difference > 0).sum() + 0.5, (difference < 0).sum() + 0.5, n + 2
        centre = float((gained - lost) / total)
        half = CONFIDENT * sqrt(max(0.0, gained + lost - (gained - lost) ** 2 / total)) / total
    else:
        centre = value
        half = CONFIDENT * float(difference.std(ddof=1)) / sqrt(n) if n > 1 else inf
    return Gap(value=value, low=centre - half, high=centre + half, samples=n)


def no_better_than_chance(scores: NDArray[np.float64], classes: NDArray[np.float64]) -> float | None:
    """What always giving the most frequent class scores, where these scores of 0 and 1 are not surely higher."""
    found, counts = np.unique(classes, return_counts=True)
    constant = (classes == found[counts.argmax()]).astype(np.float64)
    return float(constant.mean()) if paired_gap(scores, constant).low <= 0 else None
