"""`audit`: is this model a flow? Predictions decide, evidence explains."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from windermere.auditing.axes import by_sample
from windermere.auditing.candidates import Candidate, default_candidates, in_order, within_span
from windermere.auditing.comparable import why_not_comparable
from windermere.auditing.conclusion import Asked, Examined, conclude
from windermere.auditing.evidence import Drawn, gather_evidence
from windermere.auditing.intake import as_subject
from windermere.auditing.judge import Judge, Kind, check_one_each
from windermere.auditing.labels import as_classes
from windermere.auditing.metrics import Function, Metric
from windermere.auditing.options import Question, as_candidates, as_question, as_shared, check_axis, check_numbers
from windermere.auditing.progress import EVIDENCE, FLOW, OWN, TABLE, Report, ReportRaised, Watched
from windermere.auditing.reference import UNKNOWN, reference_flow
from windermere.auditing.rounding import HALF, unrounded, why_rounded
from windermere.auditing.safe_step import ladder, sampler_ladder
from windermere.auditing.samples import Batch, choose, size
from windermere.auditing.scene import Scene
from windermere.auditing.scene_stage import Stage
from windermere.auditing.scoring import Batched, join_results, result_of, try_out, without_repeats
from windermere.auditing.sets.distance import SetDistance
from windermere.auditing.subject import Pass, Subject, finest
from windermere.auditing.threads import threads_for
from windermere.auditing.verdict import Verdict
from windermere.errors import MissedSolvesError, UsageError
from windermere.nn.functions import telling_of_missing_forwards
from windermere.solvers import Adaptive, Solver


@contextmanager
def _out_of_inference_mode() -> Iterator[None]:
    """Evidence differentiates, wherever it is asked for; leaving the mode alone would turn gradients on for all."""
    graded = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(graded):
        yield


@contextmanager
def _ended_by_its_report() -> Iterator[None]:
    """A report may end an audit, by whatever it raises."""
    try:
        yield
    except ReportRaised as raised:
        raise raised.error from raised.error.__cause__


@_ended_by_its_report()
@_out_of_inference_mode()
def audit(
    model: nn.Module | Callable[..., Any] | Subject,
    batches: Any,
    *,
    trained_with: Solver | None = None,
    data: Any = None,
    metric: Metric | Function | SetDistance | str | None = None,
    threshold: float | None = None,
    outputs: str | None = None,
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
        Dataset. Inputs alone, without labels, will do: then the verdict is about how far outputs move.
    trained_with: the solver that the model was trained with, if `model` is a function.
    data: for a sampler, whose batches are noise: real samples, [n, ...], as a tensor or an array. The verdict is about
        how far the generated set is from them, under all solvers from the same noise.
    metric: "accuracy", "rmse", "mse", "mae", "r2", "nll" or "energy-drift", a `windermere.Metric`, or a plain function
        metric(outputs, labels) that gives every sample's score. Default: accuracy, where there are labels. With data: a
        `windermere.SetDistance`, or the name of its kind. Default: the energy distance.
    threshold: scores this far apart count as different, and errors this many times the own one. Default: the metric's
        own, 0.1 for accuracy and 1.5 for errors; a plain function needs one. With data it is the noise of as many real
        samples. Without labels it is the share of decisions that may change, 0.1, or the share of their spread by which
        outputs may move, 0.01.
    outputs: "classes" or "numbers": what outputs are, where there are no labels. Default: numbers, unless they are
        probabilities.
    agreement: the share of the flow's decisions that a safe step has to reproduce, where outputs are classes.
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
    question = as_question(metric, threshold, outputs, model, data)
    tried = as_candidates(candidates)
    check_numbers(agreement=agreement, samples=samples, seed=seed, budget=budget)
    check_axis(batch_axis)
    common = as_shared(shared)
    called = None if trained_with is not None else model
    chosen, population = choose(batches, samples, seed, shared=common, called=called)
    pieces = iter(chosen)
    first = next(pieces, None)
    if first is None:
        raise UsageError("an audit needs samples, but there are none in the batches given")
    with telling_of_missing_forwards(model):
        found = by_sample(as_subject(model, first[0], trained_with), first[0], batch_axis)
    subject = Watched(found, report, len(chosen) if isinstance(chosen, list) else None)
    with threads_for(found, first[0]):
        return _verdict(subject, first, pieces, question, tried, population, agreement, budget, evidence, data)


def _verdict(
    subject: Watched,
    first: Batch,
    pieces: Iterator[Batch],
    question: Question,
    tried: Sequence[Candidate] | None,
    population: str,
    agreement: float,
    budget: int | None,
    evidence: bool,
    data: Any,
) -> Verdict:
    """The verdict on the first batch and the pieces after it, once all that `audit` was given has been looked at."""
    done = own_pass(subject, 1, first)
    judge = question.judge(done, first[1])
    alone = own_only(subject, done, first, judge)
    asked = Asked(judge=judge, agreement=agreement, population=population)

    def undecided(why: str) -> Verdict:
        """Without a sweep: its numbers would mean nothing."""
        whole = next(pieces, None) is None
        told = asked if whole else replace(asked, population="the first batch")
        return conclude(alone, [], Drawn(), subject, told, why)

    if (why := why_not_comparable(subject, first[0], done)) is not None:
        return undecided(why)
    own = finest(subject.solvers)
    swept = default_candidates(own) if tried is None else tried
    steps = sampler_ladder(own, done.evaluations) if judge.kind is Kind.SETS else ladder(own)
    solvers = within_span(in_order([*swept, *steps]), subject, first[0])
    try:
        parts = [examine(subject, alone, first, solvers, judge, budget)]
        parts += [examine(subject, *each, solvers, judge, budget) for each in _others(subject, pieces, judge)]
    except MissedSolvesError as error:
        return undecided(str(error))
    whole = _join(parts)
    doubt = _doubt(subject, judge, whole)
    whole = replace(whole, results=without_repeats(whole.results))
    rungs = [c for c in steps if c.method == own.method and c in whole.results]
    seen, drawn = parts[0], Drawn()
    if evidence:
        subject.enter(EVIDENCE)
        drawn = gather_evidence(subject, first, seen.done, seen.own, seen.reference)
    verdict = conclude(whole, rungs, drawn, subject, asked, doubt)
    if not evidence:
        return verdict
    return replace(verdict, scene=_scene(subject.subject, first, seen, judge, doubt, data))


def _others(subject: Watched, pieces: Iterator[Batch], judge: Judge) -> Iterator[tuple[Examined, Batch]]:
    """The batches after the first, each with what its own pass tells."""
    for number, batch in enumerate(pieces, start=2):
        yield own_only(subject, own_pass(subject, number, batch), batch, judge), batch


def _doubt(subject: Subject, judge: Judge, whole: Examined) -> str | None:
    """Why nothing can be said, once all solvers were tried."""
    if (why := why_not_solving(subject, whole)) is not None:
        return why
    if not whole.reference.converged:
        return f"the reference flow did not converge: {whole.reference.reason}"
    return why_rounded(judge, whole.own, whole.flow, whole.unrounded)


def _scene(subject: Subject, batch: Batch, seen: Examined, judge: Judge, doubt: str | None, data: Any) -> Scene:
    """What a page is made from, if one is asked for."""
    flow = seen.reference.done if seen.reference.converged and doubt is None else None
    known = Stage(subject=subject, inputs=batch[0], targets=batch[1], own=seen.done, flow=flow, judge=judge, real=data)
    return Scene(known)


def own_pass(subject: Watched, number: int, batch: Batch) -> Pass:
    """One batch under its own solver."""
    subject.begin(number, size(batch[0]))
    subject.enter(OWN)
    done = subject.forward(batch[0], None)
    check_one_each(done, size(batch[0]))
    return done


def own_only(subject: Watched, done: Pass, batch: Batch, judge: Judge) -> Examined:
    """What is known of a batch by its own pass alone."""
    targets = batch[1]
    judge.check(done, targets)
    own = result_of(judge, finest(subject.solvers), done, Batched(targets, done))
    classes = as_classes(targets).double().numpy() if judge.kind is Kind.CLASSES else None
    return Examined(done=done, own=own, flow=None, results={}, reference=UNKNOWN, classes=classes)


def examine(
    subject: Watched, alone: Examined, batch: Batch, asked: Sequence[Candidate], judge: Judge, budget: int | None
) -> Examined:
    """One batch, which was solved by its own solver, under the reference flow and all solvers asked for."""
    x, targets = batch
    solvers = {c: tuple(c(each) for each in subject.solvers) for c in asked}
    subject.enter(FLOW)
    reference = reference_flow(
        subject,
        x,
        alone.done,
        still=lambda one, other: judge.still(one, other, targets),
        flaw=lambda done: judge.flaw(done, targets),
        place=judge.place,
        budget=budget,
        keep=() if alone.done.dtype in HALF else set(solvers.values()),  # the table is in the own dtype
    )
    found, solver = reference.done if reference.converged else None, finest(subject.solvers)
    known = Batched(targets, alone.done, found)
    own = result_of(judge, solver, alone.done, known)
    flow = None if found is None else result_of(judge, solver, found, known)
    subject.enter(TABLE)
    solved = reference.solved
    results = {c: try_out(subject, x, c, judge, known, done=solved.get(solvers[c])) for c in asked}
    exact = unrounded(subject, x, judge, known)
    return replace(alone, own=own, flow=flow, results=results, reference=replace(reference, solved={}), unrounded=exact)


def why_not_solving(subject: Subject, whole: Examined) -> str | None:
    """A predict that passes its solver over would seem to be the perfect flow, and one that hears its method alone as
    good as that: refinements with any step would be the same, and pass for the flow itself."""
    if subject.library != "predict" or whole.flow is None:
        return None
    ends: dict[str, set[bytes]] = {}
    exact = False
    for result in (whole.own, *whole.results.values()):
        if result.error is not None:
            ends.setdefault(result.method, set()).add(result.error.tobytes())
            exact = exact or not result.error.any()
    if not exact or any(len(different) > 1 for different in ends.values()):
        return None
    precision = "tolerance" if isinstance(subject.solvers[-1], Adaptive) else "step"
    solver = "solver" if len(set().union(*ends.values())) == 1 else f"solver's {precision}"
    return (
        f"predict(x, solver) gives the same outputs whatever the {solver}: let it solve with the one that it is given"
    )


def _join(parts: Sequence[Examined]) -> Examined:
    """The flow is known where that of every batch is."""
    if len(parts) == 1:
        return parts[0]
    worst = min(parts, key=lambda part: part.reference.converged)
    flows = [part.flow for part in parts if part.flow is not None]
    labels = [part.classes for part in parts if part.classes is not None]
    exact = [part.unrounded for part in parts if part.unrounded is not None]
    return replace(
        worst,
        own=join_results([part.own for part in parts]),
        flow=join_results(flows) if len(flows) == len(parts) else None,
        results={c: join_results([part.results[c] for part in parts]) for c in parts[0].results},
        unrounded=join_results(exact) if len(exact) == len(parts) else None,
        classes=np.concatenate(labels) if labels else None,
    )
