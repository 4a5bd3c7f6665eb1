"""The verdict: FLOW, TIED or UNDECIDED, by the paper's rule, and all that it rests on."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windermere.auditing.safe_step import Safe
from windermere.auditing.scoring import Result
from windermere.auditing.statistics import Gap, paired_gap
from windermere.auditing.table import verdict_table
from windermere.records import plain
from windermere.report.audit_data import AuditFigure, Plane, SolverPoint
from windermere.report.numbers import ACCURACY, Digits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDING = 1e-3
"""By how much, relatively, rounding may change an error: the same steps in another library's float32 end elsewhere."""


class Outcome(StrEnum):
    """Is the model a flow, is it tied to its solver, or could that not be decided? Compares equal to its name."""

    FLOW = "FLOW"
    TIED = "TIED"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One solver of the sweep beside the model's own. Numbers are None where it failed."""

    solver: str
    method: str
    precision: float
    metric: float | None
    agreement_own: float | None
    agreement_reference: float | None
    """None too where the flow is not known."""
    error: float | None
    """Median over samples of the distance from the reference flow at the end; None where that is not known."""
    evaluations: int
    gap: Gap | None
    """Score of the own solver minus this one's, paired."""
    counts: bool
    """Whether its measured error is no larger than the own solver's, so that the rule looks at it."""
    failed: str | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One piece of evidence: what was found, what it proves, and what it does not."""

    name: str
    finding: str
    proves: str
    limits: str
    numbers: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ReferenceFacts:
    """How well the flow itself is known. Where it did not converge, these are of the finest solve that was tried."""

    solver: str | None
    """None where there were not even three solves to judge it by."""
    dtype: str | None
    metric: float | None
    """The score under the flow, None where that is not known."""
    error: float | None
    """Median estimate of its own error."""
    order: float | None
    """Observed order of convergence."""
    converged: bool
    reason: str | None
    """Why it is not known."""

    def __str__(self) -> str:
        if self.solver is None:
            return "reference: none"
        error = "" if self.error is None else f", its error about {self.error:.1e}"
        order = "" if self.order is None else f", observed order {self.order:.1f}"
        found = "reference: " if self.converged else "reference: not found; the finest one tried was "
        return f"{found}{self.solver} in {self.dtype}{error}{order}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to: is this model a flow? Print it to read it.

    `outcome` is FLOW, TIED or UNDECIDED; `sentence` says why, and `recommendation` what to do. `safe_step` is the
    coarsest step or tolerance that is safe at test time. `gap` is the difference of the scores under its own solver and
    under the flow, with a 95% interval; `agreement` the share of predictions that both share; all of these are None
    where the flow is not known. `table` has a `Line` for each solver that was tried, `own` that of the model's own;
    `reference` says how well the flow is known; `evidence` explains, and `notes` are what a reader has to know besides.
    `plot(path)` draws, and `to_dict()` is for JSON.
    """

    outcome: Outcome
    sentence: str
    recommendation: str
    threshold: float
    metric: str
    samples: int
    precision_name: str
    """`step` or `tolerance`."""
    population: str
    """What the samples are: all, or a random subsample of how many."""
    own: Line
    reference: ReferenceFacts
    gap: Gap | None
    """Own solver minus reference flow, on the same samples, with its 95% interval; None where the flow is not known."""
    agreement: float | None
    """Share of samples that own solver and reference flow put into the same class; None where it is not known."""
    table: tuple[Line, ...]
    safe: Safe
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...]
    evaluations: float
    """Spent on all of this, in units of one pass with the own solver."""
    plane: Plane | None = field(default=None, repr=False, compare=False)
    """Trajectories for `plot`, where states have two entries."""

    @property
    def safe_step(self) -> float | None:
        """The coarsest safe step or tolerance of the training method, None where there is none."""
        return self.safe.precision

    @property
    def digits(self) -> Digits:
        """How its scores are written."""
        return Digits(self.threshold, shares=self.metric == ACCURACY)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def facts(self) -> list[str]:
        """Scores, agreement and the quality of the reference, a sentence each."""
        digits, gap = self.digits, self.gap
        own = f"{self.metric}: {digits(self.own.metric)} with its own solver ({self.own.solver})"
        samples = f"{self.samples} samples ({self.population})"
        if gap is None or self.agreement is None:
            return [f"{own}, on {samples}; not known under the flow", str(self.reference)]
        low, high = (digits(end, signed=True) for end in (gap.low, gap.high))
        return [
            f"{own}, {digits(self.reference.metric)} under the flow; the gap to the flow is "
            f"{digits(gap.value, signed=True)} (95%: {low} to {high})",
            f"own solver and flow agree on {self.agreement:.1%} of {samples}",
            str(self.reference),
        ]

    def plot(self, path: Path | str | None = None) -> "Figure":
        """A figure: scores under other solvers, errors against steps, and in 2-D trajectories and decision regions.

        It is saved where a `path` is given."""
        lines = [self.own, *(line for line in self.table if line.solver != self.own.solver)]
        points = [_point(line, own=line is self.own) for line in lines if line.failed is None]
        figure = AuditFigure(
            outcome=str(self.outcome),
            sentence=self.sentence,
            metric_name=self.metric,
            precision_name=self.precision_name,
            points=points,
            reference_metric=_or_nan(self.reference.metric),
            reference_error=_or_nan(self.reference.error if self.reference.converged else None),
            threshold=self.threshold,
            order=self.reference.order if self.reference.converged else None,
            plane=self.plane,
        )
        from windermere.report.audit_figure import draw_audit  # matplotlib, whose import takes a second

        return draw_audit(figure, path)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {**asdict(replace(self, plane=None)), "outcome": str(self.outcome)}
        del values["plane"]
        values |= {"safe_step": self.safe_step, "safe_solver": self.safe.solver}
        return {name: plain(value) for name, value in values.items()}


def _point(line: Line, *, own: bool) -> SolverPoint:
    return SolverPoint(
        method=line.method,
        precision=line.precision,
        evaluations=line.evaluations,
        metric=_or_nan(line.metric),
        error=_or_nan(line.error),
        counts=line.counts,
        own=own,
    )


def _or_nan(value: float | None) -> float:
    """As figures have it."""
    return nan if value is None else value


def line_of(result: Result, own: Result, flow: Result | None) -> Line:
    """A result in numbers. It counts where its error is no larger than the own solver's, but for rounding."""
    there = result.failed is None
    error, its = (None if flow is None else each.median_error for each in (result, own))
    return Line(
        solver=result.solver,
        method=result.method,
        precision=result.precision,
        metric=result.metric if there else None,
        agreement_own=result.agreement(own) if there else None,
        agreement_reference=result.agreement(flow) if there and flow is not None else None,
        error=error,
        evaluations=result.evaluations,
        gap=paired_gap(own.scores, result.scores) if there else None,
        counts=error is not None and its is not None and error <= its * (1 + ROUNDING),
        failed=result.failed,
    )


def decide(gaps: Sequence[Gap], threshold: float) -> Outcome:
    """The paper's rule: every solver at least as accurate, and the flow itself, scores within the threshold."""
    answers = [gap.exceeds(threshold) for gap in gaps]
    if any(answer is True for answer in answers):
        return Outcome.TIED
    return Outcome.UNDECIDED if any(answer is None for answer in answers) else Outcome.FLOW


def _lines(verdict: Verdict) -> list[str]:
    table = ["", *verdict_table(verdict).lines()] if verdict.table else []
    evidence = ["", *(f"{e.name}: {e.finding}" for e in verdict.evidence)] if verdict.evidence else []
    notes = ["", *(f"note: {note}" for note in verdict.notes)] if verdict.notes else []
    return [verdict.sentence, verdict.recommendation, "", *verdict.facts(), *table, *evidence, *notes]
