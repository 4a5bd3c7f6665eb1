"""The verdict: FLOW, TIED or UNDECIDED, by the paper's rule, and all that it rests on."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from windermere.audit.safe_step import Safe
from windermere.audit.statistics import Gap, paired_gap
from windermere.audit.sweep import Row
from windermere.records import plain
from windermere.report import AuditFigure, Plane, SolverPoint, draw_audit

ROUNDING = 1e-3
"""By how much, relatively, rounding may change an error: the same steps in another library's float32 end elsewhere."""
STARRED = "* at least as accurate as its own solver: the verdict looks at these"


class Outcome(StrEnum):
    """Is the model a flow?"""

    FLOW = "FLOW"
    TIED = "TIED"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One solver of the sweep beside the model's own."""

    solver: str
    method: str
    precision: float
    metric: float
    agreement_own: float
    agreement_reference: float
    error: float
    """Median over samples of the distance from the reference flow at the end."""
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
    """How well the flow itself is known."""

    solver: str
    dtype: str
    metric: float
    error: float
    """Median estimate of its own error."""
    order: float | None
    """Observed order of convergence."""
    converged: bool
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to: is this model a flow? Print it to read it.

    `outcome` is FLOW, TIED or UNDECIDED; `sentence` says why, and `recommendation` what to do. `safe_step` is the
    coarsest step or tolerance that is safe at test time. `gap` is the difference of the scores under its own solver and
    under the flow, with a 95% interval; `agreement` the share of predictions that both share. `table` has a `Line` for
    each solver that was tried, `own` that of the model's own; `reference` says how well the flow is known; `evidence`
    explains, and `notes` are what a reader has to know besides. `plot(path)` draws, and `to_dict()` is for JSON.
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
    gap: Gap
    """Own solver minus reference flow, on the same samples, with its 95% interval."""
    agreement: float
    """Share of samples that own solver and reference flow put into the same class."""
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

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def facts(self) -> list[str]:
        """Scores, agreement and the quality of the reference, a sentence each."""
        own, reference, gap = self.own, self.reference, self.gap
        order = f", observed order {reference.order:.1f}" if reference.order is not None else ""
        return [
            f"{self.metric}: {own.metric:.3f} with its own solver ({own.solver}), {reference.metric:.3f} under the "
            f"flow; gap {gap.value:+.3f} (95%: {gap.low:+.3f} to {gap.high:+.3f})",
            f"own solver and flow agree on {self.agreement:.1%} of {self.samples} samples ({self.population})",
            f"reference: {reference.solver} in {reference.dtype}, its error about {reference.error:.1e}{order}",
        ]

    def plot(self, path: Path | str | None = None) -> Figure:
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
            reference_metric=self.reference.metric,
            reference_error=self.reference.error,
            threshold=self.threshold,
            order=self.reference.order,
            plane=self.plane,
        )
        return draw_audit(figure, path)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {**asdict(replace(self, plane=None)), "outcome": str(self.outcome)}
        del values["plane"]
        return {name: plain(value) for name, value in values.items()}


def _point(line: Line, *, own: bool) -> SolverPoint:
    return SolverPoint(
        method=line.method,
        precision=line.precision,
        evaluations=line.evaluations,
        metric=line.metric,
        error=line.error,
        counts=line.counts,
        own=own,
    )


def line_of(row: Row, own: Row, reference: Row) -> Line:
    """A row in numbers. It counts where its error is no larger than the own solver's, but for rounding."""
    if row.failed is not None:
        missing = float("nan")
        return Line(
            solver=row.solver, method=row.method, precision=row.precision, metric=missing, agreement_own=missing,
            agreement_reference=missing, error=missing, evaluations=0, gap=None, counts=False, failed=row.failed,
        )  # fmt: skip
    return Line(
        solver=row.solver,
        method=row.method,
        precision=row.precision,
        metric=row.metric,
        agreement_own=row.agreement(own),
        agreement_reference=row.agreement(reference),
        error=row.median_error,
        evaluations=row.evaluations,
        gap=paired_gap(own.scores, row.scores),
        counts=row.median_error <= own.median_error * (1 + ROUNDING),
        failed=None,
    )


def decide(gaps: Sequence[Gap], threshold: float) -> Outcome:
    """The paper's rule: every solver at least as accurate, and the flow itself, scores within the threshold."""
    answers = [gap.exceeds(threshold) for gap in gaps]
    if any(answer is True for answer in answers):
        return Outcome.TIED
    return Outcome.UNDECIDED if any(answer is None for answer in answers) else Outcome.FLOW


def _lines(verdict: Verdict) -> list[str]:
    name, width = max([24, *(len(line.solver) for line in verdict.table)]), max(10, len(verdict.metric) + 2)
    title = f"{'solver':<{name}}  {verdict.metric:>{width}}{'as own':>9}{'as flow':>9}{'error':>10}{'evals':>8}"
    rows = [title, *(_row_text(line, name, width) for line in verdict.table), STARRED]
    evidence = ["", *(f"{e.name}: {e.finding}" for e in verdict.evidence)] if verdict.evidence else []
    notes = ["", *(f"note: {note}" for note in verdict.notes)] if verdict.notes else []
    return [verdict.sentence, verdict.recommendation, "", *verdict.facts(), "", *rows, *evidence, *notes]


def _row_text(line: Line, name: int, width: int) -> str:
    if line.failed is not None:
        return f"{line.solver:<{name}}    failed: {line.failed}"
    mark = "*" if line.counts else " "
    shares = f"{line.metric:>{width}.3f}{line.agreement_own:>9.3f}{line.agreement_reference:>9.3f}"
    return f"{line.solver:<{name}} {mark}{shares}{line.error:>10.1e}{line.evaluations:>8}"
