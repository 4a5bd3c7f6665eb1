"""The verdict: FLOW, TIED, COARSE, MOVED or UNDECIDED, and all that it rests on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windermere.auditing.judge import Judge, Kind
from windermere.auditing.safe_step import Safe
from windermere.auditing.schema import read_verdict, written
from windermere.auditing.scoring import Result
from windermere.auditing.statistics import Gap
from windermere.auditing.table import verdict_table
from windermere.report.audit_data import AuditFigure, Plane, SolverPoint
from windermere.report.numbers import Digits
from windermere.report.words import OF_FLOW_ALONE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDING = 1e-3
"""By how much, relatively, rounding may change an error: the same steps in another library's float32 end elsewhere."""


class Outcome(StrEnum):
    """What a model is: a flow, or not, and how so. Compares equal to its name.

    FLOW: every solver at least as accurate as its own scores the same, and so does the flow itself. TIED: one of them
    scores worse. COARSE: none scores worse and some better, so that the field is fine and its solver too coarse. MOVED:
    there are no labels, and outputs are others under the flow. UNDECIDED: nobody knows.

    >>> import windermere as wm
    >>> wm.Outcome("TIED") == "TIED", [str(outcome) for outcome in wm.Outcome]
    (True, ['FLOW', 'TIED', 'COARSE', 'MOVED', 'UNDECIDED'])
    """

    FLOW = "FLOW"
    TIED = "TIED"
    COARSE = "COARSE"
    MOVED = "MOVED"
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
    """Median over samples of the distance from the reference flow; None where that is not known."""
    evaluations: int
    gap: Gap | None
    """Between the own solver and this one, on the same samples."""
    counts: bool
    """Whether its measured error is no larger than the own solver's, so that the rule looks at it; never where outputs
    lie on straight lines between its steps."""
    failed: str | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One piece of evidence: what was found, what it proves, and what it does not.

    >>> import torch
    >>> import windermere as wm
    >>> field = wm.Autonomous(torch.nn.Linear(2, 2))
    >>> verdict = wm.audit(wm.ODEBlock(field, wm.FixedStep("euler", step=1 / 4)), torch.randn(30, 2))
    >>> piece = verdict.evidence[0]
    >>> print(piece.name, "-", piece.proves)
    crossings - Solutions of an autonomous ODE do not cross: crossings beyond the flow's own chords are the solver's.
    """

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

    `outcome` is FLOW, TIED, COARSE, MOVED or UNDECIDED; `sentence` says why, and `recommendation` what to do.
    `safe_step` is the coarsest step or tolerance that is safe at test time. `gap` is how far the scores under its own
    solver and under the flow are apart, with a 95% interval; `agreement` the share of samples that both judge alike;
    all of these are None where the flow is not known. `table` has a `Line` for each solver that was tried, `own` that
    of the model's own; `reference` says how well the flow is known; `evidence` explains, and `notes` are what a reader
    has to know besides. `save(path)` makes a page, `plot(path)` draws, `to_dict()` is for JSON, and
    `Verdict.from_dict` reads that back.

    >>> import torch
    >>> import windermere as wm
    >>> _ = torch.manual_seed(0)
    >>> field = wm.Autonomous(torch.nn.Linear(2, 2))
    >>> verdict = wm.audit(wm.ODEBlock(field, wm.FixedStep("rk4", step=1 / 16)), torch.randn(30, 2), evidence=False)
    >>> print(verdict.outcome, verdict.safe.solver, wm.Verdict.from_dict(verdict.to_dict()).safe_step)
    FLOW rk4, h = 1/2 0.5
    """

    outcome: Outcome
    sentence: str
    recommendation: str
    kind: Kind
    """By what it was judged: classes, scores, errors, a likelihood or, without labels, decisions or movement."""
    summary: tuple[str, ...]
    """Scores and agreement in a sentence each."""
    threshold: float
    metric: str
    band: tuple[float, float] | None
    """Between which scores the rule wants those of all others; None where the own one is not known."""
    samples: int
    precision_name: str
    """`step` or `tolerance`."""
    population: str
    """What the samples are: all, or a random subsample of how many."""
    own: Line
    reference: ReferenceFacts
    gap: Gap | None
    """Between own solver and reference flow, on the same samples, with its 95% interval; None where the flow is not
    known."""
    agreement: float | None
    """Share of samples that own solver and reference flow judge alike; None where it is not known."""
    table: tuple[Line, ...]
    safe: Safe
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...]
    evaluations: float
    """Spent on all of this, in units of one pass with the own solver."""
    plane: Plane | None = field(default=None, repr=False, compare=False)
    """Trajectories for `plot`, where states have two entries."""
    scene: Callable[[], dict[str, Any] | None] | None = field(default=None, repr=False, compare=False)
    """Makes the arrays of a page to play with, from the model; None where no evidence was asked for."""

    @property
    def safe_step(self) -> float | None:
        """The coarsest safe step or tolerance of the training method, None where there is none."""
        return self.safe.precision

    @property
    def digits(self) -> Digits:
        """How its scores are written."""
        return self.kind.digits(self.threshold)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def facts(self) -> list[str]:
        """Scores, agreement and the quality of the reference, a sentence each."""
        return [*self.summary, str(self.reference)]

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
            band=self.band,
            relative=self.kind is Kind.ERRORS,
            of_flow_alone=self.kind in OF_FLOW_ALONE,
            order=self.reference.order if self.reference.converged else None,
            plane=self.plane,
        )
        from windermere.report.audit_figure import draw_audit  # matplotlib, whose import takes a second

        return draw_audit(figure, path)

    def save(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        about: Mapping[str, Any] | None = None,
        date: str | None = None,
    ) -> None:
        """Saves it by the path's suffix: .html is a page to open in a browser and to send, with pictures to play with;
        .json makes the same page again (`windermere report verdict.json`); .png and .svg are figures, as by `plot`.

        name: what the model is called there. about: what else to tell of it, such as {"data": "test set", "seed": 0}.
        date: when the audit took place, today if it is not given.
        """
        from windermere.auditing.saving import FIGURES, page_path, record_of, save_records

        place = page_path(path)
        if place.suffix in FIGURES:
            self.plot(place)
        else:
            save_records([record_of(self, name=name, about=about, date=date)], place)

    def _repr_html_(self) -> str:
        """In notebooks: the sentence, the numbers and the table."""
        from windermere.report.html import short

        return short(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which `from_dict` reads back; their `schema` is the version."""
        return written(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Verdict":
        """The verdict that `to_dict` wrote, but for the trajectories of its figure; other versions are refused."""
        return read_verdict(cls, values)


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


def line_of(judge: Judge, result: Result, own: Result, flow: Result | None) -> Line:
    """A result in numbers. It counts where its error is no larger than the own solver's, but for rounding, and where it
    is the method's: straight lines between its steps tie no model to another solver."""
    there = result.failed is None
    error, its = (None if flow is None else each.median_error for each in (result, own))
    return Line(
        solver=result.solver,
        method=result.method,
        precision=result.precision,
        metric=judge.score(result.kept, own.kept) if there else None,
        agreement_own=judge.agreement(result.kept, own.kept) if there else None,
        agreement_reference=judge.agreement(result.kept, flow.kept) if there and flow is not None else None,
        error=error,
        evaluations=result.evaluations,
        gap=judge.compare(own.kept, result.kept) if there else None,
        counts=error is not None and its is not None and error <= its * (1 + ROUNDING) and not result.straight,
        failed=result.failed,
    )


def decide(gaps: Sequence[Gap], threshold: float, *, labelled: bool = True) -> Outcome:
    """The paper's rule, with a direction: every solver at least as accurate, and the flow itself, scores within the
    threshold. One that is worse goes before all; what could still be worse is undecided."""
    worse, better = ([getattr(gap, ask)(threshold) for gap in gaps] for ask in ("worse", "improves"))
    if True in worse:
        return Outcome.TIED if labelled else Outcome.MOVED
    if None in worse:
        return Outcome.UNDECIDED
    return Outcome.COARSE if True in better else Outcome.UNDECIDED if None in better else Outcome.FLOW


def _lines(verdict: Verdict) -> list[str]:
    table = ["", *verdict_table(verdict).lines()] if verdict.table else []
    evidence = ["", *(f"{e.name}: {e.finding}" for e in verdict.evidence)] if verdict.evidence else []
    notes = ["", *(f"note: {note}" for note in verdict.notes)] if verdict.notes else []
    return [verdict.sentence, verdict.recommendation, "", *verdict.facts(), *table, *evidence, *notes]
