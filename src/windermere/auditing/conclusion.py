"""From all results to a verdict: the rule, the numbers and the words together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from windermere.auditing.candidates import Candidate
from windermere.auditing.evidence import Drawn
from windermere.auditing.judge import Judge, Kind
from windermere.auditing.progress import Watched
from windermere.auditing.reference import Reference
from windermere.auditing.safe_step import Standard, precision_for, safe_elsewhere, safe_precision
from windermere.auditing.scoring import Result
from windermere.auditing.statistics import Numbers, no_better_than_chance
from windermere.auditing.subject import Pass
from windermere.auditing.table import FLOW_ITSELF
from windermere.auditing.verdict import Line, Outcome, ReferenceFacts, Verdict, decide, line_of
from windermere.auditing.wording import Findings, recommendation, sentence, summary
from windermere.auditing.words import Compared
from windermere.report.audit_data import fraction
from windermere.solvers import Adaptive, Solver


@dataclass(frozen=True, kw_only=True)
class Examined:
    """All results of one batch, or of all."""

    done: Pass
    """With its own solver; of several batches, that of one"""
    own: Result
    flow: Result | None
    """None where it is not known"""
    results: dict[Candidate, Result]
    reference: Reference
    unrounded: Result | None = None
    """With its own solver in float64, where its own dtype rounds much"""
    classes: Numbers | None
    """Labels, None where they are something else"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user asked for, and of which samples."""

    judge: Judge
    agreement: float
    population: str


def conclude(
    whole: Examined, rungs: Sequence[Candidate], drawn: Drawn, subject: Watched, asked: Asked, doubt: str | None
) -> Verdict:
    """Where there is a doubt, nothing is said of the flow."""
    judge, own = asked.judge, _of_all_methods(whole.own, subject.solvers)
    known = replace(whole, own=own, flow=None if doubt else whole.flow)
    table = tuple(line_of(judge, result, own, known.flow) for result in known.results.values())
    found = _findings(known, rungs, table, asked, doubt)
    return Verdict(
        outcome=found.outcome,
        sentence=sentence(found),
        recommendation=recommendation(found),
        kind=judge.kind,
        summary=summary(found),
        threshold=judge.threshold,
        metric=judge.name,
        band=None if found.own.metric is None else judge.band(found.own.metric),
        samples=found.samples,
        precision_name="tolerance" if isinstance(subject.solvers[-1], Adaptive) else "step",
        population=asked.population,
        own=found.own,
        reference=found.reference,
        gap=found.compared[0].gap if found.compared else None,
        agreement=found.agreement,
        table=table,
        safe=found.safe,
        evidence=drawn.evidence,
        notes=(*([judge.note] if judge.note else []), *_of_several(subject.solvers), *subject.notes),
        evaluations=(subject.evaluations / own.evaluations + drawn.passes) if own.evaluations else float("nan"),
        plane=drawn.plane,
    )


def _findings(
    known: Examined, rungs: Sequence[Candidate], table: Sequence[Line], asked: Asked, doubt: str | None
) -> Findings:
    """All that the verdict is worded from, by the rule."""
    judge, own, flow = asked.judge, known.own, known.flow
    compared = [] if flow is None else _compared(judge, own, flow, table)
    gaps = [each.gap for each in compared]
    standard = None if flow is None else Standard(judge, flow, asked.agreement)
    along = [known.results[c] for c in rungs]
    return Findings(
        judge=judge,
        outcome=decide(gaps, judge.threshold, labelled=judge.labelled) if gaps else Outcome.UNDECIDED,
        own=line_of(judge, own, own, flow),
        reference=_facts(judge, known, doubt),
        compared=compared,
        safe=safe_precision(along, standard),
        other=safe_elsewhere(list(known.results.values()), own, standard),
        wanted=asked.agreement,
        needed=precision_for(along, standard),
        doubt=doubt,
        chance=None if known.classes is None else no_better_than_chance(own.scores, known.classes),
        headless=judge.kind is Kind.CLASSES and _is_state(known.done),
        population=asked.population,
        samples=len(own.scores),
        agreement=None if flow is None else judge.agreement(own.kept, flow.kept),
    )


def _compared(judge: Judge, own: Result, flow: Result, table: Sequence[Line]) -> list[Compared]:
    """What the rule looks at: the flow, and the solvers of the table that count."""
    seen = [line for line in table if line.counts] if judge.sees_solvers else []
    accurate = [Compared(line.solver, line.gap) for line in seen if line.gap is not None]
    return [Compared(FLOW_ITSELF, judge.compare(own.kept, flow.kept)), *accurate]


def _of_several(solvers: Sequence[Solver]) -> tuple[str, ...]:
    """How rows are to be read where not all solves have the same solver."""
    names = list(dict.fromkeys(solver.method for solver in solvers))
    if len(names) > 1:
        return (
            f"its solves have several methods ({', '.join(names)}): a row of the table has one for them all, at a "
            "multiple of each one's own precision, so that no row is the model as it is",
        )
    adaptive = isinstance(solvers[-1], Adaptive)
    called, told = ("tolerances", "{:.3g}".format) if adaptive else ("steps", fraction)
    low, high = (told(end(solver.precision for solver in solvers)) for end in (min, max))
    if low == high:
        return ()
    return (
        f"its solves have several {called} ({low} to {high}): a row of the table changes all by one factor, and has "
        "the name of the finest",
    )


def _of_all_methods(own: Result, solvers: Sequence[Solver]) -> Result:
    """Its own solver by the names of all, where no row of the table is the model as it is."""
    if len({solver.method for solver in solvers}) == 1:
        return own
    return replace(own, solver=" and then ".join(dict.fromkeys(map(str, solvers))))


def _facts(judge: Judge, known: Examined, doubt: str | None) -> ReferenceFacts:
    reference, flow = known.reference, known.flow
    error = None if reference.error is None else float(np.median(reference.error))
    return ReferenceFacts(
        solver=reference.solver,
        dtype=reference.dtype,
        metric=None if flow is None else judge.score(flow.kept, known.own.kept),
        error=error if error is not None and isfinite(error) else None,
        order=reference.order,
        converged=flow is not None,
        reason=reference.reason or doubt,
    )


def _is_state(done: Pass) -> bool:
    """Whether the outputs are where the solve ended, as they are without layers after it."""
    outputs = done.outputs.reshape(len(done.outputs), -1)
    return done.states is not None and done.states.shape == outputs.shape and bool((done.states == outputs).all())
