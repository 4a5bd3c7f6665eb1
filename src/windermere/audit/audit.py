"""`audit`: is this model a flow? Predictions decide, evidence explains."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from windermere.arguments import takes_two
from windermere.audit.adapters import find_subject, refuse_solves_beside_blocks
from windermere.audit.evidence import Drawn, gather_evidence
from windermere.audit.functions import as_module
from windermere.audit.options import check_metric, check_numbers, checked_candidates, checked_threshold
from windermere.audit.reference import Reference, reference_flow
from windermere.audit.safe_step import ladder, safe_elsewhere, safe_precision
from windermere.audit.samples import choose, size
from windermere.audit.samples import first as first_samples
from windermere.audit.statistics import paired_gap
from windermere.audit.subject import ModelSubject, PredictSubject, Subject, one_step
from windermere.audit.sweep import (
    Candidate,
    Measure,
    Metric,
    Row,
    accuracy,
    check_one_each,
    default_candidates,
    joined,
    try_out,
)
from windermere.audit.verdict import Outcome, ReferenceFacts, Verdict, decide, line_of
from windermere.audit.wording import recommendation, sentence
from windermere.errors import AuditError, DoublePrecisionError, SolverError, UsageError, raised
from windermere.models import ODEBlock
from windermere.solvers import Adaptive, FixedStep, Solver, counting
from windermere.solvers.members import members_of

FEW = 8
"""Samples that show how many steps a model takes."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """All rows of one batch."""

    own: Row
    flow: Row
    rows: dict[Candidate, Row]
    reference: Reference


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
) -> Verdict:
    """Ask a trained model whether it is a flow, or tied to its solver. Returns a `Verdict`; print it.

    model: a module with ODEBlocks, a module or a function that solves with torchdiffeq, torchdyn, torchode or diffrax,
        or a function predict(x, solver) together with `trained_with`.
    batches: a pair (inputs, labels), such as a split of windermere.data, an iterable of such pairs, or a torch
        Dataset.
    trained_with: the solver that the model was trained with, if `model` is a function.
    metric: metric(outputs, labels) gives every sample's score. Default: accuracy.
    threshold: mean scores this far apart count as different. Default: 0.1 for accuracy; any other metric needs one.
    agreement: the share of the flow's predictions that a safe step has to reproduce.
    samples: how many to draw at random, with `seed`; None takes all.
    candidates: the solvers to try, each a `windermere.audit.Candidate(method, factor)`, where the factor is that of the
        own precision. Default: coarser and finer ones.
    evidence: whether to gather evidence beside the verdict.
    budget: the most evaluations that the search for the reference flow may take.

    >>> import torch
    >>> import windermere as wm
    >>> _ = torch.manual_seed(0)
    >>> field = wm.Autonomous(torch.nn.Linear(2, 2))
    >>> model = torch.nn.Sequential(wm.ODEBlock(field, wm.FixedStep("euler", step=1 / 32)), torch.nn.Linear(2, 2))
    >>> verdict = wm.audit(model, (torch.randn(200, 2), torch.zeros(200, dtype=torch.int64)))
    >>> print(verdict.outcome)
    FLOW
    """
    threshold = checked_threshold(threshold, metric)
    check_metric(metric)
    tried = checked_candidates(candidates)
    check_numbers(agreement=agreement, samples=samples, seed=seed, budget=budget)
    chosen = choose(batches, samples, seed)
    pieces = iter(chosen.batches)
    first = next(pieces, None)
    if first is None:
        raise UsageError("an audit needs samples, but there are none in the batches given")
    subject = as_subject(model, first[0], trained_with)
    unsteady = why_not_deterministic(subject, first[0])
    own = subject.solvers[-1]
    swept = default_candidates(own) if tried is None else tried
    asked = within_span(_ordered([*swept, *ladder(own)]), subject, first[0])
    rungs = [c for c in ladder(own) if c in asked]
    measure = Measure(metric or accuracy, metric is None, threshold)
    parts = [examine(subject, x, y, asked, measure, budget) for x, y in (first, *pieces)]
    whole = _joined(parts)
    unsteady = unsteady or why_not_solving(subject, whole)
    wanted = evidence and unsteady is None
    drawn = gather_evidence(subject, first, parts[0].own, parts[0].reference) if wanted else Drawn()
    return _verdict(whole, rungs, drawn, subject, measure, agreement, chosen.population, unsteady)


def within_span(candidates: Sequence[Candidate], subject: Subject, x: Any) -> list[Candidate]:
    """Without steps longer than the time span, which are all the same single step, nor the same grid twice."""
    own = subject.solvers[-1]
    if not isinstance(own, FixedStep):
        distinct = {tuple(c(solver) for solver in subject.solvers): c for c in reversed(candidates)}
        return list(reversed(distinct.values()))
    with counting() as count:
        taken = subject.forward(first_samples(x, FEW), None).evaluations / own.tableau.propagating
    # Of one solve: our own count tells them apart, where a block is called several times; others' are taken for alike.
    steps = float(np.max(count.longest)) or taken / len(subject.solvers)
    return [c for c in candidates if c.factor <= max(1.0, steps) or not steps]


def _ordered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """By method, then from fine to coarse; each once."""
    methods = list(dict.fromkeys(c.method for c in candidates))
    return sorted(set(candidates), key=lambda c: (methods.index(c.method), c.factor))


def as_subject(model: Any, x: Any, trained_with: Solver | None) -> Subject:
    """However a model came in."""
    model = as_module(model, x) if trained_with is None else model
    if isinstance(model, nn.Module) and any(isinstance(m, ODEBlock) for m in model.modules()):
        if trained_with is not None:
            raise UsageError(
                "trained_with is for predict(x, solver): a model with ODEBlocks has its own solvers; change those by "
                "windermere.using(model, solver), or leave it out"
            )
        blocks = ModelSubject(model)
        refuse_solves_beside_blocks(model, x)
        return blocks
    if hasattr(model, "forward") and hasattr(model, "solvers") and hasattr(model, "insight"):
        subject: Subject = model
        return subject
    if trained_with is not None and callable(model):
        if members_of(trained_with)[1] is not None or not takes_two(model):
            raise UsageError(
                "a function to audit is called as predict(x, solver), with one solver: let it take both, and give "
                "trained_with=... one that is no list"
            )
        return PredictSubject(model, trained_with)
    found: Subject | None = find_subject(model, x)
    if found is None:
        raise AuditError(
            f"no solve was seen in this {type(model).__name__}: use windermere.ODEBlock, torchdiffeq, torchdyn or "
            "torchode inside, give diffrax's equinox module itself (not jax.vmap of it), wrap a function in a "
            "torch.nn.Module that has its networks as submodules, or give predict(x, solver) together with "
            "trained_with=..."
        )
    return found


def why_not_deterministic(subject: Subject, x: Any) -> str | None:
    """The same batch twice, and a part of it alone: noise, dropout or batch statistics show here."""
    one, two = subject.forward(x, None), subject.forward(x, None)
    check_one_each(one, size(x))
    if _apart(one.outputs, two.outputs) > 1e-4:
        return "the same batch gives other outputs the second time: there is noise or dropout in the model"
    few = max(1, min(size(x) // 2, 8))
    # By one step: adaptive ones depend on the batch, and many of a chaotic field magnify rounding; neither counts.
    try:
        whole, part = (subject.forward(first_samples(x, n), one_step, double=True) for n in (2 * few, few))
    except (DoublePrecisionError, SolverError):
        return None
    except (RuntimeError, ValueError, IndexError) as error:
        raise AuditError(
            f"the model takes {size(x)} samples together, but not {2 * few} or {few} of them ({raised(error)}): an "
            "audit needs samples that do not depend on each other"
        ) from error
    if size(x) > 1 and _apart(whole.outputs[:few], part.outputs) > 1e-6:
        return "a sample's output depends on the batch it comes in: there are batch statistics in the model"
    return None


def why_not_solving(subject: Subject, whole: Examined) -> str | None:
    """A predict that passes its solver over would seem to be the perfect flow."""
    errors = [row.error for row in (whole.own, *whole.rows.values()) if row.error is not None]
    if subject.library != "predict" or any(error.any() for error in errors):
        return None
    return "predict(x, solver) gives the same outputs whatever the solver: let it solve with the one that it is given"


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max().clamp_min(1e-30))


def examine(
    subject: Subject, x: Any, y: Any, asked: Sequence[Candidate], measure: Measure, budget: int | None
) -> Examined:
    """One batch under its own solver, the reference flow and all solvers asked for."""
    solver = subject.solvers[-1]
    done = subject.forward(x, None)
    measure.check(done, y)
    reference = reference_flow(subject, x, done, still=lambda one, other: measure.still(one, other, y), budget=budget)
    own, flow = (measure.row(solver, each, y, reference.done) for each in (done, reference.done))
    rows = {c: try_out(subject, x, y, c, reference.done, measure) for c in asked}
    return Examined(own=own, flow=flow, rows=rows, reference=reference)


def _joined(parts: Sequence[Examined]) -> Examined:
    if len(parts) == 1:
        return parts[0]
    worst = min(parts, key=lambda part: part.reference.converged)
    return Examined(
        own=joined([part.own for part in parts]),
        flow=joined([part.flow for part in parts]),
        rows={c: joined([part.rows[c] for part in parts]) for c in parts[0].rows},
        reference=worst.reference,
    )


def _not_found(reference: Reference) -> str | None:
    return None if reference.converged else f"the reference flow did not converge: {reference.reason}"


def _facts(reference: Reference, flow: Row) -> ReferenceFacts:
    return ReferenceFacts(
        solver=reference.solver,
        dtype=reference.dtype,
        metric=flow.metric,
        error=float(np.median(reference.error)),
        order=reference.order,
        converged=reference.converged,
        reason=reference.reason,
    )


def _verdict(
    whole: Examined,
    rungs: Sequence[Candidate],
    drawn: Drawn,
    subject: Subject,
    measure: Measure,
    agreement: float,
    population: str,
    unsteady: str | None,
) -> Verdict:
    """Put the rule, the numbers and the words together."""
    own, flow, reference, threshold = whole.own, whole.flow, whole.reference, measure.threshold
    table = tuple(line_of(row, own, flow) for row in whole.rows.values())
    gap = paired_gap(own.scores, flow.scores)
    doubt = unsteady or _not_found(reference)
    gaps = [gap, *(line.gap for line in table if line.counts and line.gap is not None)]
    outcome = Outcome.UNDECIDED if doubt else decide(gaps, threshold)
    safe = safe_precision([whole.rows[c] for c in rungs], flow, agreement=agreement)
    other = safe_elsewhere(list(whole.rows.values()), own, flow, agreement=agreement)
    facts = _facts(reference, flow)
    # Three with its own solver: two to see whether it is deterministic, one that counts.
    spent = sum(row.evaluations for row in whole.rows.values()) + 3 * own.evaluations + reference.evaluations
    return Verdict(
        outcome=outcome,
        sentence=sentence(outcome, own, facts, gaps, threshold, measure.name, doubt),
        recommendation=recommendation(outcome, safe, other, own, flow, gaps, threshold, agreement, measure.classes),
        threshold=threshold,
        metric=measure.name,
        samples=len(own.scores),
        precision_name="tolerance" if isinstance(subject.solvers[-1], Adaptive) else "step",
        population=population,
        own=line_of(own, own, flow),
        reference=facts,
        gap=gap,
        agreement=own.agreement(flow),
        table=table,
        safe=safe,
        evidence=drawn.evidence,
        notes=subject.notes,
        evaluations=(spent / own.evaluations + drawn.passes) if own.evaluations else float("nan"),
        plane=drawn.plane,
    )
