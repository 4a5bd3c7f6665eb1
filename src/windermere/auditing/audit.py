"""`audit`: is this model a flow? Predictions decide, evidence explains."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import nn

from windermere.auditing.axes import by_sample
from windermere.auditing.candidates import Candidate, default_candidates, in_order, within_span
from windermere.auditing.comparable import why_not_comparable
from windermere.auditing.evidence import Drawn, gather_evidence
from windermere.auditing.intake import as_subject
from windermere.auditing.labels import as_classes
from windermere.auditing.options import (
    as_candidates,
    as_shared,
    as_threshold,
    check_axis,
    check_metric,
    check_numbers,
)
from windermere.auditing.progress import EVIDENCE, FLOW, OWN, TABLE, Report, Watched
from windermere.auditing.reference import UNKNOWN, Reference, reference_flow
from windermere.auditing.safe_step import ladder, safe_elsewhere, safe_precision
from windermere.auditing.samples import Batch, choose, size
from windermere.auditing.scoring import (
    Measure,
    Metric,
    Numbers,
    Result,
    accuracy,
    join_results,
    try_out,
    without_repeats,
)
from windermere.auditing.statistics import no_better_than_chance, paired_gap
from windermere.auditing.subject import Pass, Subject
from windermere.auditing.table import FLOW_ITSELF
from windermere.auditing.verdict import Outcome, ReferenceFacts, Verdict, decide, line_of
from windermere.auditing.wording import Compared, recommendation, sentence
from windermere.errors import (
    MissedSolvesError,
    UsageError,
)
from windermere.nn.functions import telling_of_missing_forwards
from windermere.report.numbers import ACCURACY, Digits
from windermere.solvers import Adaptive, Solver


@dataclass(frozen=True, kw_only=True)
class Examined:
    """All results of one batch."""

    done: Pass
    """With its own solver"""
    own: Result
    flow: Result | None
    """None where it is not known"""
    results: dict[Candidate, Result]
    reference: Reference
    classes: Numbers | None
    """Labels, None where they are something else"""


@contextmanager
def _out_of_inference_mode() -> Iterator[None]:
    """Evidence differentiates, wherever it is asked for; leaving the mode alone would turn gradients on for all."""
    graded = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(graded):
        yield


@_out_of_inference_mode()
def audit(
    model: nn.Module | Callable[..., Any] | Subject,
    batches: Any,
    *,
    trained_with: Solver | None = None,
    metric: Metric | None = None,
    threshold: float | None = None,
    agreement: float = 0.99,
    samples: int | None = 1000,
    seed: int = 0,
    candidates: Iterable[Candidate] | None = None,
    evidence: bool = True,
    budget: int | None = None,
    batch_axis: int | None = None,
    shared: Iterable[str | int] | str | int = (),
    report: Report | None = None,
) -> Verdict:
    """Ask a trained model whether it is a flow, or tied to its solver. Returns a `Verdict`; print it.

    model: a module with ODEBlocks, a module or a function that solves with `odeint`, torchdiffeq, torchdyn, torchode or
        diffrax, or a function predict(x, solver) together with `trained_with`.
    batches: a pair (inputs, labels), such as a split of windermere.paper.data, an iterable of such pairs, or a torch
        Dataset.
    trained_with: the solver that the model was trained with, if `model` is a function.
    metric: metric(outputs, labels) gives every sample's score. Default: accuracy. For a regression take log10 of each
        sample's error.
    threshold: mean scores this far apart count as different. Default: 0.1 for accuracy; any other metric needs one,
        such as 0.3 for log10 of the error.
    agreement: the share of the flow's predictions that a safe step has to reproduce.
    samples: how many to draw at random, with `seed`; None takes all.
    candidates: the solvers to try, each a `windermere.Candidate(method, factor)`, where the factor is that of the
        own precision. Default: coarser and finer ones.
    evidence: whether to gather evidence beside the verdict.
    budget: the most evaluations that the search for the reference flow may take.
    batch_axis: the axis of the model's outputs along which the samples lie. Default: the one that shrinks when the
        model gets fewer samples. The metric gets outputs with the samples along their first axis, whichever it was.
    shared: the inputs that all samples share, by name (an argument of forward, a key) or position: ("t",) or (1,) for
        the times of forward(x, t). They are never cut into samples. Numbers are shared without being named.
    report: is called with a `windermere.auditing.AuditProgress` before each pass, to show how far the audit is.

    >>> import torch
    >>> import windermere as wm
    >>> _ = torch.manual_seed(0)
    >>> field = wm.Autonomous(torch.nn.Linear(2, 2))
    >>> model = torch.nn.Sequential(wm.ODEBlock(field, wm.FixedStep("euler", step=1 / 32)), torch.nn.Linear(2, 2))
    >>> verdict = wm.audit(model, (torch.randn(200, 2), torch.zeros(200, dtype=torch.int64)))
    >>> print(verdict.outcome)
    FLOW
    """
    threshold = as_threshold(threshold, metric)
    check_metric(metric)
    tried = as_candidates(candidates)
    check_numbers(agreement=agreement, samples=samples, seed=seed, budget=budget)
    check_axis(batch_axis)
    common = as_shared(shared)
    chosen = choose(batches, samples, seed, shared=common, called=None if trained_with is not None else model)
    pieces = iter(chosen.batches)
    first = next(pieces, None)
    if first is None:
        raise UsageError("an audit needs samples, but there are none in the batches given")
    with telling_of_missing_forwards(model):
        found = by_sample(as_subject(model, first[0], trained_with), first[0], batch_axis)
    subject = Watched(found, report, len(chosen.batches) if isinstance(chosen.batches, list) else None)
    measure = Measure(metric or accuracy, metric is None, threshold)
    alone = own_only(subject, 1, first, measure)

    def undecided(why: str) -> Verdict:
        """Without a sweep: its numbers would mean nothing."""
        population = chosen.population if next(pieces, None) is None else "the first batch"
        return _verdict(alone, [], Drawn(), subject, measure, agreement, population, why)

    if (why := why_not_comparable(subject, first[0], alone.done)) is not None:
        return undecided(why)
    own = subject.solvers[-1]
    swept = default_candidates(own) if tried is None else tried
    asked = within_span(in_order([*swept, *ladder(own)]), subject, first[0])
    try:
        parts = [examine(subject, alone, first, asked, measure, budget)]
        for number, batch in enumerate(pieces, start=2):
            parts.append(examine(subject, own_only(subject, number, batch, measure), batch, asked, measure, budget))
    except MissedSolvesError as error:
        return undecided(str(error))
    whole = _join(parts)
    whole = replace(whole, results=without_repeats(whole.results))
    rungs = [c for c in ladder(own) if c in whole.results]
    doubt = why_not_solving(subject, whole) or _not_found(whole.reference)
    seen = parts[0]
    drawn = Drawn()
    if evidence:
        subject.enter(EVIDENCE)
        drawn = gather_evidence(subject, first, seen.done, seen.own, seen.reference)
    return _verdict(whole, rungs, drawn, subject, measure, agreement, chosen.population, doubt)


def why_not_solving(subject: Subject, whole: Examined) -> str | None:
    """A predict that passes its solver over would seem to be the perfect flow."""
    errors = [result.error for result in (whole.own, *whole.results.values()) if result.error is not None]
    if subject.library != "predict" or whole.flow is None or any(error.any() for error in errors):
        return None
    return "predict(x, solver) gives the same outputs whatever the solver: let it solve with the one that it is given"


def examine(
    subject: Watched, alone: Examined, batch: Batch, asked: Sequence[Candidate], measure: Measure, budget: int | None
) -> Examined:
    """One batch, which was solved by its own solver, under the reference flow and all solvers asked for."""
    x, y = batch
    solvers = {c: tuple(c(each) for each in subject.solvers) for c in asked}
    subject.enter(FLOW)
    reference = reference_flow(
        subject,
        x,
        alone.done,
        still=lambda one, other: measure.still(one, other, y),
        flaw=lambda done: measure.flaw(done, y),
        budget=budget,
        keep=set(solvers.values()),
    )
    found, solver = reference.done if reference.converged else None, subject.solvers[-1]
    own = measure.result(solver, alone.done, y, found)
    flow = None if found is None else measure.result(solver, found, y, found)
    subject.enter(TABLE)
    solved = reference.solved
    results = {c: try_out(subject, x, y, c, found, measure, done=solved.get(solvers[c])) for c in asked}
    return replace(alone, own=own, flow=flow, results=results, reference=replace(reference, solved={}))


def own_only(subject: Watched, number: int, batch: Batch, measure: Measure) -> Examined:
    """One batch under its own solver."""
    x, y = batch
    subject.begin(number, size(x))
    subject.enter(OWN)
    done = subject.forward(x, None)
    measure.check(done, y)
    own = measure.result(subject.solvers[-1], done, y, None)
    classes = as_classes(y).double().numpy() if measure.classes else None
    return Examined(done=done, own=own, flow=None, results={}, reference=UNKNOWN, classes=classes)


def _join(parts: Sequence[Examined]) -> Examined:
    """The flow is known where that of every batch is."""
    if len(parts) == 1:
        return parts[0]
    worst = min(parts, key=lambda part: part.reference.converged)
    flows = [part.flow for part in parts if part.flow is not None]
    labels = [part.classes for part in parts if part.classes is not None]
    return replace(
        worst,
        own=join_results([part.own for part in parts]),
        flow=join_results(flows) if len(flows) == len(parts) else None,
        results={c: join_results([part.results[c] for part in parts]) for c in parts[0].results},
        classes=np.concatenate(labels) if labels else None,
    )


def _not_found(reference: Reference) -> str | None:
    return None if reference.converged else f"the reference flow did not converge: {reference.reason}"


def _facts(reference: Reference, flow: Result | None, doubt: str | None) -> ReferenceFacts:
    error = None if reference.error is None else float(np.median(reference.error))
    return ReferenceFacts(
        solver=reference.solver,
        dtype=reference.dtype,
        metric=None if flow is None else flow.metric,
        error=error if error is not None and isfinite(error) else None,
        order=reference.order,
        converged=flow is not None,
        reason=reference.reason or doubt,
    )


def _verdict(
    whole: Examined,
    rungs: Sequence[Candidate],
    drawn: Drawn,
    subject: Watched,
    measure: Measure,
    agreement: float,
    population: str,
    doubt: str | None,
) -> Verdict:
    """Put the rule, the numbers and the words together. Where there is a doubt, nothing is said of the flow."""
    own, flow, threshold = whole.own, None if doubt else whole.flow, measure.threshold
    line, facts = line_of(own, own, flow), _facts(whole.reference, flow, doubt)
    table = tuple(line_of(result, own, flow) for result in whole.results.values())
    gap = None if flow is None else paired_gap(own.scores, flow.scores)
    accurate = [Compared(each.solver, each.gap) for each in table if each.counts and each.gap is not None]
    compared = [] if gap is None else [Compared(FLOW_ITSELF, gap), *accurate]
    outcome = decide([each.gap for each in compared], threshold) if compared else Outcome.UNDECIDED
    safe = safe_precision([whole.results[c] for c in rungs], flow, agreement=agreement)
    other = safe_elsewhere(list(whole.results.values()), own, flow, agreement=agreement)
    chance = None if whole.classes is None else no_better_than_chance(own.scores, whole.classes)
    digits = Digits(threshold, shares=measure.name == ACCURACY)
    return Verdict(
        outcome=outcome,
        sentence=sentence(outcome, line, facts, compared, digits, measure.name, doubt, chance),
        recommendation=recommendation(outcome, safe, other, line, compared, threshold, agreement, measure.classes),
        threshold=threshold,
        metric=measure.name,
        samples=len(own.scores),
        precision_name="tolerance" if isinstance(subject.solvers[-1], Adaptive) else "step",
        population=population,
        own=line,
        reference=facts,
        gap=gap,
        agreement=None if flow is None else own.agreement(flow),
        table=table,
        safe=safe,
        evidence=drawn.evidence,
        notes=subject.notes,
        evaluations=(subject.evaluations / own.evaluations + drawn.passes) if own.evaluations else float("nan"),
        plane=drawn.plane,
    )
