"""How sure a difference is that was measured on the same samples.

Shapes: n samples, T times, m units: what is taken to vary by itself, which is a sample or, where there are few of them,
a block of a sample's times.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, log, sqrt
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Better: TypeAlias = Literal["higher", "lower"]

CONFIDENT = 1.96
"""Standard deviations on either side: a 95% interval."""
ENOUGH, SHORTEST, FEWEST = 20, 4, 4
"""From so many samples on they are the units; else blocks of no fewer times than that; and the fewest units that have
an interval of a ratio."""
RESAMPLES, GROUPS = 999, 1000
"""How often the bootstrap draws, and how many units at most: more are added up in groups first."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far the scores under two solvers are apart on the same samples, with a 95% interval.

    It is the own solver's score minus the other's, or, where `ratio` is true, the other's error over the own one's.
    """

    value: float
    low: float
    high: float
    samples: int
    better: Better | None = None
    """Which scores are better; None where nobody has said it, and where there is nothing to be better at."""
    ratio: bool = False
    blocks: bool = False
    """Whether `samples` counts blocks of time, for there were few samples."""

    def rooted(self) -> "Gap":
        """The gap between roots, where this one is between mean squares."""
        value, low, high = (each**0.5 for each in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    def worse(self, threshold: float) -> bool | None:
        """Whether the other solver surely scores worse by more than the threshold; None if not sure. Without a
        direction any difference is taken for worse."""
        if self.better is None:
            return self.exceeds(threshold)
        (low, high), limit = self._harm(), self._limit(threshold)
        return True if low > limit else False if high <= limit else None

    def improves(self, threshold: float) -> bool | None:
        """Whether the other solver surely scores better by more than the threshold; None if not sure."""
        if self.better is None:
            return False
        (low, high), limit = self._harm(), self._limit(threshold)
        return True if high < -limit else False if low >= -limit else None

    def exceeds(self, threshold: float) -> bool | None:
        """Whether the true difference, in either direction, is larger than the threshold; None if not sure."""
        (low, high), limit = self._harm(), self._limit(threshold)
        if low > limit or high < -limit:
            return True
        return False if -limit <= low and high <= limit else None

    def is_within(self, threshold: float) -> bool:
        """Whether the difference as measured, its interval aside, is no larger than the threshold."""
        return self.size <= self._limit(threshold)

    @property
    def size(self) -> float:
        """How large it is, for comparing gaps: without its sign, and the logarithm of a ratio."""
        return abs(self._harm_of(self.value))

    def more_samples(self, threshold: float) -> float:
        """How many more samples would bring the interval to one side, should the difference stay as it is."""
        (low, high), value = self._harm(), self._harm_of(self.value)
        distance = abs(self.size - self._limit(threshold))
        if distance == 0:
            return inf
        upwards = (value >= 0) == (self.size < self._limit(threshold))  # where the limit lies
        ratio = (high - value if upwards else value - low) / distance
        more = self.samples * (ratio * ratio - 1)  # a power would raise where this is infinite
        return max(0, ceil(more)) if more < inf else inf

    def _harm(self) -> tuple[float, float]:
        """Between what the other solver is worse, and by how much, in logarithms where it is a ratio."""
        ends = self._harm_of(self.low), self._harm_of(self.high)
        return min(ends), max(ends)

    def _harm_of(self, value: float) -> float:
        if self.ratio:
            return log(value) if 0 < value < inf else (-inf if value <= 0 else inf)
        return -value if self.better == "lower" else value

    def _limit(self, threshold: float) -> float:
        return log(threshold) if self.ratio else threshold


def in_units(values: Numbers) -> tuple[Numbers, bool]:
    """The means of units, [m], of values [n] or [n, T], and whether the units are blocks of time: of few samples each
    is cut into as many blocks as make enough units, if there is something in each. What is not a number is left out."""
    if values.ndim == 1:
        return values, False
    times = values.shape[1]
    blocks = min(ceil(ENOUGH / max(1, len(values))), times // SHORTEST)
    if len(values) >= ENOUGH or blocks < 2:
        return over_times(values), False
    parts = np.array_split(values, blocks, axis=1)
    if not all(np.isfinite(part).any(axis=1).all() for part in parts):  # nothing is no mean of 0
        return over_times(values), False
    return np.concatenate([over_times(part) for part in parts]), True


def over_times(values: Numbers) -> Numbers:
    """The mean of each sample over its times, without what is not a number; 0 where nothing is left."""
    if values.ndim == 1:
        return values
    there = np.isfinite(values)
    found: Numbers = np.where(there, values, 0).sum(axis=1) / np.maximum(1, there.sum(axis=1))
    return found


def paired_gap(first: Numbers, second: Numbers, better: Better | None = None) -> Gap:
    """Mean of first - second, sample by sample, or by blocks of time where there are few samples with scores by time.

    For scores of 0 and 1 (right or wrong) the interval is Agresti and Min's (2005), which stays honest where no or few
    samples differ: no difference among 100 samples does not prove that there is none.
    """
    difference, blocks = in_units(first - second)
    n = len(difference)
    value = float(difference.mean())
    if _are_hits(first) and _are_hits(second) and not blocks:
        gained, lost, total = (difference > 0).sum() + 0.5, (difference < 0).sum() + 0.5, n + 2
        centre = float((gained - lost) / total)
        half = CONFIDENT * sqrt(max(0.0, gained + lost - (gained - lost) ** 2 / total)) / total
    else:
        centre = value
        wide = _persistence(difference - value, len(first)) if blocks else 1.0
        half = wide * _student(n - 1) * float(difference.std(ddof=1)) / sqrt(n) if n > 1 else inf
    return Gap(value=value, low=centre - half, high=centre + half, samples=n, better=better, blocks=blocks)


def _are_hits(scores: Numbers) -> bool:
    """Whether each sample is right or wrong as a whole: one that is right at some of its times is neither."""
    return bool(np.isin(over_times(scores), (0, 1)).all())


def share_gap(changed: NDArray[np.bool_]) -> Gap:
    """The share of samples that changed, with Agresti and Coull's interval: none among 100 does not prove that none
    would."""
    n = len(changed)
    centre = (changed.sum() + CONFIDENT**2 / 2) / (n + CONFIDENT**2)
    half = CONFIDENT * sqrt(centre * (1 - centre) / (n + CONFIDENT**2))
    return Gap(value=float(changed.mean()), low=max(0.0, centre - half), high=min(1.0, centre + half), samples=n)


def mean_ratio(above: Numbers, below: Numbers, *, floor: float = 0.0) -> Gap:
    """The mean error above over that below, both no smaller than a floor, with a 95% interval of its logarithm."""
    (a, blocks), (b, same) = in_units(above), in_units(below)
    if blocks != same:  # one of them is infinite for all of a block
        a, b, blocks = over_times(above), over_times(below), False
    value = _quotient(float(a.mean()), float(b.mean()), floor)
    low, high = _ratio_interval(a, b, value, floor, len(above) if blocks else None)
    return Gap(value=value, low=low, high=high, samples=len(a), better="lower", ratio=True, blocks=blocks)


def _ratio_interval(a: Numbers, b: Numbers, value: float, floor: float, in_blocks: int | None) -> tuple[float, float]:
    """By the bootstrap: a few samples whose errors are huge make it as wide as it has to be. `in_blocks` is how many
    samples were cut into blocks of time, if they were."""
    units = len(a)
    if units < FEWEST:
        return 0.0, inf
    if max(a.max(), b.max(), floor) == 0:
        return 1.0, 1.0
    weights = _resamples(min(units, GROUPS))
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.maximum(weights @ _grouped(a), floor) / np.maximum(weights @ _grouped(b), floor)
    drawn[np.isnan(drawn)] = 1.0  # nothing over nothing
    if not 0 < value < inf:
        low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")  # between infinities nothing lies
        return float(low), float(high)
    influence = a / max(float(a.mean()), floor) - b / max(float(b.mean()), floor)
    wide = _student(units - 1) / CONFIDENT * (_persistence(influence, in_blocks) if in_blocks else 1.0)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        logs = np.log(drawn)  # between infinite ones nothing lies
        ends = np.quantile(logs, [0.025, 0.975], method="linear" if np.isfinite(logs).all() else "nearest")
        low, high = np.exp(wide * (ends - log(value)) + log(value))
    return min(float(low), value), max(float(high), value)


def _quotient(above: float, below: float, floor: float) -> float:
    above, below = max(above, floor), max(below, floor)
    return 1.0 if above == below else inf if below == 0 else above / below


def _grouped(values: Numbers) -> Numbers:
    """No more than so many means of units: those of groups, which the bootstrap draws as well."""
    if len(values) <= GROUPS:
        return values
    counts = np.bincount(np.arange(len(values)) % GROUPS)
    found: Numbers = np.bincount(np.arange(len(values)) % GROUPS, weights=values) / counts
    return found


@lru_cache(maxsize=4)
def _resamples(units: int) -> Numbers:
    """[RESAMPLES, units]: how often each is drawn, over how many are; always the same ones."""
    generator = np.random.default_rng(0)
    drawn: Numbers = generator.multinomial(units, np.full(units, 1 / units), size=RESAMPLES) / units
    return drawn


def _student(freedom: int) -> float:
    """Student's 97.5% quantile, by its expansion in the normal one: 2.09 for 19 degrees of freedom, 3.16 for 3."""
    z = CONFIDENT
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _persistence(deviations: Numbers, samples: int) -> float:
    """By how much an interval widens where successive blocks of time deviate alike: sqrt((1 + r) / (1 - r)), with the
    correlation r of neighbours. Deviations are by block and then by sample."""
    table = deviations.reshape(-1, samples)
    total = float((table**2).sum())
    along = 0.0 if total == 0 else float((table[1:] * table[:-1]).sum()) / total
    r = min(max(along, 0.0), 0.8)
    return sqrt((1 + r) / (1 - r))


def no_better_than_chance(scores: Numbers, classes: Numbers) -> float | None:
    """What always giving the most frequent class scores, where these scores of 0 and 1 are not surely higher."""
    found, counts = np.unique(classes, return_counts=True)
    constant = (classes == found[counts.argmax()]).astype(np.float64)
    return float(constant.mean()) if paired_gap(scores, constant).low <= 0 else None
