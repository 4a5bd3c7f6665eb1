"""What the audit's figure is drawn from.

Shapes: K and K' steps, P points with trajectories, m any number of points in the plane.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from windermere.errors import UsageError
from windermere.report.frame import check_labels, check_states
from windermere.report.numbers import ACCURACY, Digits
from windermere.report.palette import Array

OUTCOMES = {"FLOW": "#007a5a", "TIED": "#b8390e", "COARSE": "#8a5a00", "MOVED": "#0b5fa5", "UNDECIDED": "#5c6670"}
"""Bluish green, vermilion, ochre, blue and grey, dark enough for text; the word stands there too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SolverPoint:
    """One solver: what the model scores with it, and how far from the flow it ends."""

    method: str
    precision: float
    """Its step or tolerance"""
    evaluations: int
    """0 where they could not be counted"""
    metric: float
    """Not a number where the solver failed"""
    error: float
    """Median distance from the reference flow; may be 0, and is not a number where the flow is not known"""
    counts: bool
    """At least as accurate as the training solver: the rule looks at it"""
    own: bool
    """The training solver itself"""

    def __post_init__(self) -> None:
        if not (isfinite(self.precision) and self.precision > 0):
            raise UsageError(f"the precision of {self.method} must be a positive number, not {self.precision}")
        if self.evaluations < 0 or self.error < 0:
            numbers = f"{self.evaluations} and {self.error}"
            raise UsageError(f"evaluations and error of {self.method} must not be negative, but are {numbers}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """States of two dimensions on their way, under the training solver and under the flow."""

    own: Array
    """[K + 1, P, 2]: trajectories as the training solver walks them"""
    flow: Array
    """[K' + 1, P, 2]: the reference flow of the same points"""
    labels: Array | None
    """[P], classes from 0 to 9; None where there are none, or more"""
    decide: Callable[[Array], Array] | None
    """Points [m, 2] to classes [m]: the decision layer, for regions"""

    def __post_init__(self) -> None:
        check_states("own", self.own)
        check_states("flow", self.flow)
        points, others = self.own.shape[1], self.flow.shape[1]
        if points != others:
            raise UsageError(f"own and flow must be trajectories of the same points, not of {points} and {others}")
        if self.labels is not None:
            check_labels("labels", self.labels, points)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditFigure:
    """All that the figure shows."""

    outcome: str
    """FLOW, TIED, COARSE, MOVED or UNDECIDED"""
    sentence: str
    """The verdict; it may begin with the outcome"""
    metric_name: str
    precision_name: str
    """`step` or `tolerance`"""
    points: Sequence[SolverPoint]
    """The training solver, once, and those it is compared with"""
    reference_metric: float
    """Not a number where the flow is not known"""
    reference_error: float
    """The reference's own error: a solver nearer to the reference than this is as good as the flow"""
    threshold: float
    """How far a metric may lie from the training solver's"""
    order: float | None
    """Observed order of convergence"""
    plane: Plane | None
    """None where states have more than two dimensions, or are hidden"""
    band: tuple[float, float] | None = None
    """Between which metrics the rule wants those of all others; None: within the threshold of the training solver's"""
    relative: bool = False
    """Whether the threshold is a multiple of the training solver's metric, which is an error"""
    of_flow_alone: bool = False
    """Whether the verdict looks at the flow, and at no other solver"""

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise UsageError(f"outcome must be FLOW, TIED, COARSE, MOVED or UNDECIDED, not {self.outcome!r}")
        if self.precision_name not in ("step", "tolerance"):
            raise UsageError(f"precision_name must be 'step' or 'tolerance', not {self.precision_name!r}")
        own = sum(point.own for point in self.points)
        if own != 1:
            raise UsageError(f"points must hold the training solver (own=True) once, not {own} times")
        if not (isfinite(self.threshold) and self.threshold >= 0):
            raise UsageError(f"threshold must be a number of at least 0, not {self.threshold}")

    @property
    def own(self) -> SolverPoint:
        """The training solver."""
        return next(point for point in self.points if point.own)

    @property
    def trained_with(self) -> str:
        """The training solver in words."""
        precision = fraction(self.own.precision) if self.precision_name == "step" else f"{self.own.precision:.3g}"
        return f"{self.own.method}, {self.precision_name} {precision}"

    @property
    def digits(self) -> Digits:
        """How its scores are written."""
        return Digits(self.threshold, shares=self.metric_name == ACCURACY, relative=self.relative)

    @property
    def limits(self) -> tuple[float, float]:
        """The two ends of the band that scores have to lie in."""
        return self.band or (self.own.metric - self.threshold, self.own.metric + self.threshold)

    @property
    def methods(self) -> list[str]:
        """The methods of the solvers that did not fail, each once."""
        return list(dict.fromkeys(point.method for point in self.points if isfinite(point.metric)))


def fraction(value: float) -> str:
    """0.015625 as 1/64, also where float32 has rounded it, and what is no such fraction in a few digits."""
    parts = round(1 / value)
    if 1 < parts < 10_000 and abs(parts * value - 1) < 1e-6:
        return f"1/{parts}"
    return f"{value:g}" if value >= 1 else f"{value:.3g}"
