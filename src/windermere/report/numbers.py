"""Scores, gaps and thresholds in writing, with the digits that they need."""

from dataclasses import dataclass
from math import floor, inf, isfinite, log10

ACCURACY = "accuracy"
"""The metric whose scores are shares of the samples."""
UNKNOWN = "-"
LARGE = 1e7
"""From here on no score is written out: a solver that blows up may score 1e30."""
MANY = 10.0
"""Outputs that move by so many times their spread are told by that number, and not in percents."""


@dataclass(frozen=True)
class Digits:
    """How scores are written that are judged by a threshold."""

    threshold: float
    shares: bool
    """Whether they are shares of the samples, as accuracies are: 0.002 of these is near nothing, of others it is not"""
    relative: bool = False
    """Whether the threshold is a ratio, which says nothing of how large scores are"""

    @property
    def places(self) -> int:
        """Decimals that show a tenth of the threshold; three at least, where it is no large number itself."""
        least = 3 if self.threshold < 10 else 0
        return least if self.threshold == 0 else max(least, 1 - floor(log10(self.threshold)))

    @property
    def limit(self) -> str:
        """The threshold itself."""
        return f"{self.threshold:.3g}" if self.threshold < 1000 else f"{self.threshold:g}"

    def __call__(self, value: float | None, *, signed: bool = False) -> str:
        if value is None:
            return UNKNOWN
        small = self.relative or (not self.shares and 0 < abs(value) < 10.0 ** (2 - self.places))
        kind = ".3g" if small else f".{self.places}f" if abs(value) < LARGE else ".6g"
        return f"{value:{'+' if signed else ''}{kind}}"


def share(value: float | None) -> str:
    """A share of the samples, written with three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def two_digits(value: float) -> str:
    """A size in two digits, up to a million without powers of ten."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if 100 <= abs(rounded) < 1e6 else f"{value:.2g}"


def moved_words(value: float) -> str:
    """How far outputs move, relative to their spread."""
    return f"{value:,.0f} times their spread" if MANY <= value < inf else f"{value:.1%} of their spread"


def rough(value: float | None) -> str:
    """An error, of which only the size matters."""
    return UNKNOWN if value is None or not isfinite(value) else f"{value:.1e}"
