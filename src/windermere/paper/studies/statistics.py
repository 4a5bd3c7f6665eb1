"""The tests by which claims are judged: Welch's, equivalence, non-inferiority, and analysis of variance.

SciPy is not needed to use the library, so the tails of Student's t and of F are computed here, by the regularised
incomplete beta function; the tests compare them with SciPy's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isinf, lgamma, log, log1p, sqrt
from statistics import fmean, stdev, variance

LEVEL = 0.05
"""The level of every test."""
SMALLEST, ROUNDING, TERMS = 1e-300, 1e-15, 10_000


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / _away_from_zero(1 + term * d), _away_from_zero(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < ROUNDING:
            break
    return front * fraction


def _away_from_zero(x: float) -> float:
    return x if abs(x) > SMALLEST else SMALLEST


def student_tail(t: float, freedom: float) -> float:
    """The probability that Student's t is larger."""
    if isinf(t):
        return float(t < 0)
    half = incomplete_beta(freedom / 2, 1 / 2, freedom / (freedom + t * t)) / 2
    return half if t > 0 else 1 - half


def f_tail(f: float, above: float, below: float) -> float:
    """The probability that F, with so many degrees of freedom above and below the fraction bar, is larger."""
    return 0.0 if isinf(f) else incomplete_beta(below / 2, above / 2, below / (below + above * f))


@dataclass(frozen=True)
class Sample:
    """A mean over seeds, as a table prints it."""

    mean: float
    spread: float
    """The standard deviation."""
    size: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


@dataclass(frozen=True)
class Difference:
    """A difference of means, with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: float

    def above(self, limit: float = 0.0) -> float:
        """The p-value of the claim that the true difference is larger than a limit."""
        return student_tail(self._in_errors(self.value - limit), self.freedom)

    def below(self, limit: float = 0.0) -> float:
        """The p-value of the claim that it is smaller than a limit."""
        return student_tail(self._in_errors(limit - self.value), self.freedom)

    @property
    def p(self) -> float:
        """The p-value of the claim that there is a difference at all (two-sided)."""
        return min(1.0, 2 * min(self.above(), self.below()))

    def within(self, margin: float) -> float:
        """The p-value of the claim that it is smaller than a margin in either direction: two one-sided tests."""
        return max(self.above(-margin), self.below(margin))

    def _in_errors(self, by: float) -> float:
        if self.error == 0:
            return 0.0 if by == 0 else inf if by > 0 else -inf
        return by / self.error


def welch(one: Sample, other: Sample) -> Difference:
    """The first mean minus the second; spreads need not be equal."""
    parts = [sample.spread**2 / sample.size for sample in (one, other)]
    total = sum(parts)
    below = sum(p * p / max(1, s.size - 1) for p, s in zip(parts, (one, other), strict=True))
    freedom = total * total / below if below else one.size + other.size - 2  # where nothing varies, any number does
    return Difference(one.mean - other.mean, sqrt(total), freedom)


def against(values: Sequence[float], expected: float = 0.0) -> Difference:
    """The mean of some values minus a number that is known."""
    sample = Sample.of(values)
    return Difference(sample.mean - expected, sample.spread / sqrt(sample.size), sample.size - 1)


def between_groups(groups: Sequence[Sequence[float]]) -> float:
    """The p-value of the claim that groups of equal size have different means: a one-way analysis of variance."""
    size, means = len(groups[0]), [fmean(group) for group in groups]
    within, apart = fmean(variance(group) for group in groups), size * variance(means)
    f = apart / within if within else (inf if apart else 0.0)
    return f_tail(f, len(groups) - 1, len(groups) * (size - 1))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of the line through the points, by least squares."""
    middle, mean = fmean(x), fmean(y)
    return sum((a - middle) * (b - mean) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def is_same(values: Sequence[float], printed: Sample, margin: float) -> tuple[bool | None, str]:
    """Whether a mean over seeds is as printed: it is where tests show them equivalent, and not where Welch's test shows
    them different; with the tests in words. Of one seed nothing is tested."""
    if len(values) < 2:
        return abs(values[0] - printed.mean) <= margin, ""
    apart = welch(Sample.of(values), printed)
    equivalent = apart.within(margin)
    return judged(equivalent, apart.p), f"Welch {told(apart.p)}, equivalence {told(equivalent)}"


def judged(holds: float, fails: float) -> bool | None:
    """What two p-values say, of a claim and of its opposite; None where neither is sure."""
    return True if holds < LEVEL else False if fails < LEVEL else None


def surely(limit: float, *groups: Sequence[float]) -> bool | None:
    """Whether the means over seeds are above a limit, all of them, by one-sided t-tests; of one seed, by itself. That
    one of several is not has as many chances to look so, and is corrected for them (Bonferroni)."""
    if any(len(values) < 2 for values in groups):
        return all(fmean(values) > limit for values in groups)
    tests = [against(values, limit) for values in groups]
    return judged(max(test.above() for test in tests), len(tests) * min(test.below() for test in tests))


def told(p: float) -> str:
    """A p-value in words."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
