"""`audit`: is this model a flow? Predictions decide, evidence explains."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from windermere.arguments import takes_two
from windermere.audit.adapters import find_subject, refuse_solves_beside_blocks
from windermere.audit.axes import FEW, by_sample, half, on_fewer
from windermere.audit.copies import copy_of, without_replicas
from windermere.audit.evidence import Drawn, gather_evidence
from windermere.audit.functions import as_module, telling_of_missing_forwards
from windermere.audit.labels import as_classes
from windermere.audit.options import (
    check_axis,
    check_metric,
    check_numbers,
    checked_candidates,
    checked_shared,
    checked_threshold,
)
from windermere.audit.reference import UNKNOWN, Reference, reference_flow
from windermere.audit.safe_step import ladder, safe_elsewhere, safe_precision
from windermere.audit.samples import choose, size
from windermere.audit.samples import first as first_samples
from windermere.audit.shared import cut_places, share
from windermere.audit.statistics import no_better_than_chance, paired_gap
from windermere.audit.subject import ModelSubject, Pass, PredictSubject, Subject, one_step
from windermere.audit.sweep import (
    Candidate,
    Measure,
    Metric,
    Numbers,
    Row,
    accuracy,
    check_one_each,
    default_candidates,
    joined,
    try_out,
    without_repeats,
)
from windermere.audit.verdict import Outcome, ReferenceFacts, Verdict, decide, line_of
from windermere.audit.wording import FLOW_ITSELF, Compared, recommendation, sentence
from windermere.errors import (
    AuditError,
    DoublePrecisionError,
    MissedSolvesError,
    SolverError,
    UsageError,
    WindermereError,
)
from windermere.models import ODEBlock
from windermere.report.numbers import ACCURACY, Digits
from windermere.solvers import Adaptive, FixedStep, Solver, counting
from windermere.solvers.members import members_of


@dataclass(frozen=True, kw_only=True)
class Examined:
    """All rows of one batch."""

    done: Pass
    """With its own solver"""
    own: Row
    flow: Row | None
    """None where it is not known"""
    rows: dict[Candidate, Row]
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
) -> Verdict:
    """Ask a trained model whether it is a flow, or tied to its solver. Returns a `Verdict`; print it.

    model: a module with ODEBlocks, a module or a function that solves with torchdiffeq, torchdyn, torchode or diffrax,
        or a function predict(x, solver) together with `trained_with`.
    batches: a pair (inputs, labels), such as a split of windermere.data, an iterable of such pairs, or a torch
        Dataset.
    trained_with: the solver that the model was trained with, if `model` is a function.
    metric: metric(outputs, labels) gives every sample's score. Default: accuracy. For a regression take log10 of each
        sample's error.
    threshold: mean scores this far apart count as different. Default: 0.1 for accuracy; any other metric needs one,
        such as 0.3 for log10 of the error.
    agreement: the share of the flow's predictions that a safe step has to reproduce.
    samples: how many to draw at random, with `seed`; None takes all.
    candidates: the solvers to try, each a `windermere.audit.Candidate(method, factor)`, where the factor is that of the
        own precision. Default: coarser and finer ones.
    evidence: whether to gather evidence beside the verdict.
    budget: the most evaluations that the search for the reference flow may take.
    batch_axis: the axis of the model's outputs along which the samples lie. Default: the one that shrinks when the
        model gets fewer samples. The metric gets outputs with the samples along their first axis, whichever it was.
    shared: the inputs that all samples share, by name (an argument of forward, a key) or position: ("t",) or (1,) for
        the times of forward(x, t). They are never cut into samples. Numbers are shared without being named.

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
    check_axis(batch_axis)
    common = checked_shared(shared)
    chosen = choose(batches, samples, seed, shared=common, called=None if trained_with is not None else model)
    pieces = iter(chosen.batches)
    first = next(pieces, None)
    if first is None:
        raise UsageError("an audit needs samples, but there are none in the batches given")
    with telling_of_missing_forwards(model):
        subject = by_sample(as_subject(model, first[0], trained_with), first[0], batch_axis)
    measure = Measure(metric or accuracy, metric is None, threshold)

    def undecided(why: str) -> Verdict:
        """Without a sweep: its numbers would mean nothing."""
        population = chosen.population if next(pieces, None) is None else "the first batch"
        return _verdict(own_only(subject, *first, measure), [], Drawn(), subject, measure, agreement, population, why)

    if (why := why_not_comparable(subject, first[0])) is not None:
        return undecided(why)
    own = subject.solvers[-1]
    swept = default_candidates(own) if tried is None else tried
    asked = within_span(_ordered([*swept, *ladder(own)]), subject, first[0])
    try:
        parts = [examine(subject, x, y, asked, measure, budget) for x, y in (first, *pieces)]
    except MissedSolvesError as error:
        return undecided(str(error))
    whole = _joined(parts)
    whole = replace(whole, rows=without_repeats(whole.rows))
    rungs = [c for c in ladder(own) if c in whole.rows]
    doubt = why_not_solving(subject, whole) or _not_found(whole.reference)
    seen = parts[0]
    drawn = gather_evidence(subject, first, seen.done, seen.own, seen.reference) if evidence else Drawn()
    return _verdict(whole, rungs, drawn, subject, measure, agreement, chosen.population, doubt)


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
    """However a model came in; a module is copied, so that nobody else meets what is changed in it."""
    given = model = without_replicas(model)
    model = as_module(model, x) if trained_with is None else model
    if isinstance(model, nn.Module) and trained_with is None:
        model = copy_of(model)
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
            f"no solve was seen in this {type(given).__name__}: use windermere.ODEBlock, torchdiffeq, torchdyn or "
            "torchode inside, give diffrax's equinox module itself (not jax.vmap of it), wrap a function in a "
            "torch.nn.Module that has its networks as submodules, or give predict(x, solver) together with "
            "trained_with=..."
        )
    return found


def why_not_comparable(subject: Subject, x: Any) -> str | None:
    """The same batch twice, and a part of it with another solver: noise, dropout, batch statistics and solves that no
    other solver reaches show here."""
    one, two = subject.forward(x, None), subject.forward(x, None)
    check_one_each(one, size(x))
    if _apart(one.outputs, two.outputs) > 1e-4:
        return "the same batch gives other outputs the second time: there is noise or dropout in the model"
    try:
        if _is_independent(subject, x):
            return None
    except (DoublePrecisionError, SolverError):
        return None
    except MissedSolvesError as error:
        return str(error)
    apart = "a sample's output depends on the batch it comes in"
    for place in _left_whole(subject, x):
        sharing = f"if all samples share it, give shared=({place!r},)"
        return f"{apart}, but no more where the input {place!r} is left whole: {sharing}"
    return f"{apart}: there are batch statistics in the model"


def _is_independent(subject: Subject, x: Any) -> bool:
    """Whether a few samples have the same outputs without the rest. By one step: adaptive ones depend on the batch, and
    many of a chaotic field magnify rounding; neither counts."""
    whole, part = on_fewer(subject, x, one_step, double=True)
    return size(x) == 1 or _apart(whole.outputs[: half(x)], part.outputs) <= 1e-6


def _left_whole(subject: Subject, x: Any) -> Iterator[Any]:
    """Each of several inputs that makes samples independent if it is not cut into them."""
    places = cut_places(x)
    for place in places if len(places) > 1 else ():
        try:
            if _is_independent(subject, share(x, (place,))):
                yield place
        except WindermereError:  # a model need not take it so
            continue


def why_not_solving(subject: Subject, whole: Examined) -> str | None:
    """A predict that passes its solver over would seem to be the perfect flow."""
    errors = [row.error for row in (whole.own, *whole.rows.values()) if row.error is not None]
    if subject.library != "predict" or whole.flow is None or any(error.any() for error in errors):
        return None
    return "predict(x, solver) gives the same outputs whatever the solver: let it solve with the one that it is given"


def _apart(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return inf
    return float((one - other).abs().max() / one.abs().max().clamp_min(1e-30))


def examine(
    subject: Subject, x: Any, y: Any, asked: Sequence[Candidate], measure: Measure, budget: int | None
) -> Examined:
    """One batch under its own solver, the reference flow and all solvers asked for."""
    alone = own_only(subject, x, y, measure)
    reference = reference_flow(
        subject,
        x,
        alone.done,
        still=lambda one, other: measure.still(one, other, y),
        flaw=lambda done: measure.flaw(done, y),
        budget=budget,
    )
    found, solver = reference.done if reference.converged else None, subject.solvers[-1]
    own = measure.row(solver, alone.done, y, found)
    flow = None if found is None else measure.row(solver, found, y, found)
    rows = {c: try_out(subject, x, y, c, found, measure) for c in asked}
    return replace(alone, own=own, flow=flow, rows=rows, reference=reference)


def own_only(subject: Subject, x: Any, y: Any, measure: Measure) -> Examined:
    """One batch under its own solver."""
    done = subject.forward(x, None)
    measure.check(done, y)
    own = measure.row(subject.solvers[-1], done, y, None)
    classes = as_classes(y).double().numpy() if measure.classes else None
    return Examined(done=done, own=own, flow=None, rows={}, reference=UNKNOWN, classes=classes)


def _joined(parts: Sequence[Examined]) -> Examined:
    """The flow is known where that of every batch is."""
    if len(parts) == 1:
        return parts[0]
    worst = min(parts, key=lambda part: part.reference.converged)
    flows = [part.flow for part in parts if part.flow is not None]
    labels = [part.classes for part in parts if part.classes is not None]
    return replace(
        worst,
        own=joined([part.own for part in parts]),
        flow=joined(flows) if len(flows) == len(parts) else None,
        rows={c: joined([part.rows[c] for part in parts]) for c in parts[0].rows},
        classes=np.concatenate(labels) if labels else None,
    )


def _not_found(reference: Reference) -> str | None:
    return None if reference.converged else f"the reference flow did not converge: {reference.reason}"


def _facts(reference: Reference, flow: Row | None, doubt: str | None) -> ReferenceFacts:
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
    subject: Subject,
    measure: Measure,
    agreement: float,
    population: str,
    doubt: str | None,
) -> Verdict:
    """Put the rule, the numbers and the words together. Where there is a doubt, nothing is said of the flow."""
    own, flow, threshold = whole.own, None if doubt else whole.flow, measure.threshold
    line, facts = line_of(own, own, flow), _facts(whole.reference, flow, doubt)
    table = tuple(line_of(row, own, flow) for row in whole.rows.values())
    gap = None if flow is None else paired_gap(own.scores, flow.scores)
    accurate = [Compared(each.solver, each.gap) for each in table if each.counts and each.gap is not None]
    compared = [] if gap is None else [Compared(FLOW_ITSELF, gap), *accurate]
    outcome = decide([each.gap for each in compared], threshold) if compared else Outcome.UNDECIDED
    safe = safe_precision([whole.rows[c] for c in rungs], flow, agreement=agreement)
    other = safe_elsewhere(list(whole.rows.values()), own, flow, agreement=agreement)
    chance = None if whole.classes is None else no_better_than_chance(own.scores, whole.classes)
    digits = Digits(threshold, shares=measure.name == ACCURACY)
    # Three with its own solver: two to see whether it is deterministic, one that counts.
    spent = sum(row.evaluations for row in whole.rows.values()) + 3 * own.evaluations + whole.reference.evaluations
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
        evaluations=(spent / own.evaluations + drawn.passes) if own.evaluations else float("nan"),
        plane=drawn.plane,
    )
