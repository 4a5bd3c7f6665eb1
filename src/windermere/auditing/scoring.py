"""One model under many solvers: how each scores, and where it agrees with the own solver and with the reference flow.

Shapes: n samples. A result holds numbers for every sample; means are taken when it is shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.candidates import Candidate
from windermere.auditing.labels import as_classes, check_classes
from windermere.auditing.subject import Pass, Subject
from windermere.errors import AuditError, DoublePrecisionError, SolverError, ToleranceError, UsageError, describe_value
from windermere.report.numbers import ACCURACY
from windermere.solvers import Solver

Numbers: TypeAlias = NDArray[np.float64]
Metric: TypeAlias = Callable[[Any, Any], Any]
"""metric(outputs [n, ...], labels [n, ...]) gives every sample's score, [n]."""

FLIPS = 0.002
"""The share of decisions that may still change in the reference's last refinement."""
SHARE_OF_THRESHOLD = 0.02
"""By which share of the threshold a mean score may still move there."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One solver's results, by sample."""

    solver: str
    method: str
    precision: float
    scores: Numbers
    votes: Numbers
    """What agreement is about: classes, or where the metric is no accuracy the scores themselves."""
    slack: float
    """By how much votes may differ and still agree: 0 for classes."""
    error: Numbers | None
    """Distance of the end state (of the output, where states are hidden) from the reference's; None where there is no
    reference."""
    evaluations: int
    failed: str | None = None

    @property
    def metric(self) -> float:
        return float(self.scores.mean()) if len(self.scores) else float("nan")

    @property
    def median_error(self) -> float | None:
        return None if self.error is None else float(np.median(self.error))

    def agreement(self, other: "Result") -> float:
        """The share of samples on which both agree."""
        return float((np.abs(self.votes - other.votes) <= self.slack).mean())


def decisions(outputs: Tensor) -> Tensor:
    """The class of each sample: the largest output, or the sign of a single one."""
    table = outputs.flatten(1) if outputs.ndim > 1 else outputs.unsqueeze(1)
    return table.argmax(dim=1) if table.shape[1] > 1 else (table[:, 0] > 0).long()


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The default metric: 1 where the class is right."""
    return (decisions(outputs) == as_classes(labels)).double()


def score(metric: Metric, outputs: Tensor, labels: Any) -> Numbers:
    """Every sample's score, checked to be that."""
    given = metric(outputs, labels)
    try:
        values = np.asarray(torch.as_tensor(given), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"the metric must give one score for each of {len(outputs)} samples, but gave {describe_value(given)}"
        ) from error
    if values.shape != (len(outputs),):
        raise UsageError(
            f"the metric must give one score for each of {len(outputs)} samples, but gave shape {values.shape}: "
            "leave out the mean at its end"
        )
    return values


def distance(one: Pass, other: Pass) -> Numbers:
    """The global error, by sample: between end states where both are known, else between outputs."""
    if one.states is not None and other.states is not None:
        return _numbers((one.states - other.states).norm(dim=1))
    difference = one.outputs - other.outputs
    return _numbers(difference.flatten(1).norm(dim=1) if difference.ndim > 1 else difference.abs())


def _numbers(values: Tensor) -> Numbers:
    numbers: Numbers = values.numpy()
    return numbers


def check_one_each(done: Pass, samples: int) -> None:
    """Outputs must be the samples', one by one."""
    shape = tuple(done.outputs.shape)
    if shape[:1] != (samples,):
        raise AuditError(
            f"the model returns outputs of shape {shape} for {samples} samples: wrap it so that it returns one output "
            "for each sample"
        )


@dataclass(frozen=True)
class Measure:
    """How outputs are judged: by a metric, and by agreement of classes or, for other tasks, of scores."""

    metric: Metric
    classes: bool
    threshold: float

    def check(self, own: Pass, labels: Any) -> None:
        """Outputs under the own solver on which no score can be trusted."""
        check_one_each(own, len(labels))
        table = own.outputs.reshape(len(own.outputs), -1)
        lost = int((~table.isfinite()).any(dim=1).sum())
        if lost:  # other libraries return it in silence
            raise AuditError(
                f"the model's own solver gives outputs that are not finite for {lost} of {len(table)} samples: look "
                "for weights or inputs that are not, or solve finer"
            )
        if not self.classes:
            self.check_scores(score(self.metric, own.outputs, labels))
            return
        check_classes(own.outputs, labels)
        both = table.shape[1] == 1 and len(torch.unique(as_classes(labels))) > 1
        if both and table.min() >= 0 and table.max() <= 1:
            raise UsageError(
                "the model's single outputs all lie between 0 and 1, like probabilities, but accuracy takes them for "
                "logits: leave out the sigmoid, or give metric=... and threshold=..."
            )

    def check_scores(self, own: Numbers) -> None:
        lost = int((~np.isfinite(own)).sum())
        if lost:
            raise UsageError(
                f"the metric's scores are not finite for {lost} of {len(own)} samples under the model's own solver: "
                "leave those samples out, or look at the metric"
            )

    @property
    def name(self) -> str:
        """As its author named it; a lambda or a partial has no name."""
        if self.classes:
            return ACCURACY
        name = str(getattr(self.metric, "__name__", ""))
        return name if name.isidentifier() else "the metric"

    def still(self, one: Pass, other: Pass, labels: Any) -> bool:
        """Whether two refinements of the reference decide alike: by classes, or by a mean score that hardly moves."""
        if self.classes:
            return float((decisions(one.outputs) != decisions(other.outputs)).double().mean()) <= FLIPS
        before, after = (score(self.metric, each.outputs, labels).mean() for each in (one, other))
        return bool(abs(before - after) <= SHARE_OF_THRESHOLD * self.threshold)

    def flaw(self, done: Pass, labels: Any) -> str | None:
        """Why a pass cannot be scored, None where it can."""
        if not done.outputs.isfinite().all():
            return "its outputs are not finite"
        lost = int((~np.isfinite(score(self.metric, done.outputs, labels))).sum())
        return f"the metric's scores are not finite for {lost} of {len(done.outputs)} samples" if lost else None

    def result(self, solver: Solver, done: Pass, labels: Any, reference: Pass | None) -> Result:
        scores = score(self.metric, done.outputs, labels)
        return Result(
            solver=str(solver),
            method=solver.method,
            precision=solver.precision,
            scores=scores,
            votes=_numbers(decisions(done.outputs).double()) if self.classes else scores,
            slack=0.0 if self.classes else self.threshold,
            error=None if reference is None else distance(done, reference),
            evaluations=done.evaluations,
        )


def failed_result(solver: Solver, reason: str) -> Result:
    nothing = np.zeros(0)
    return Result(
        solver=str(solver),
        method=solver.method,
        precision=solver.precision,
        scores=nothing,
        votes=nothing,
        slack=0.0,
        error=None,
        evaluations=0,
        failed=reason,
    )


def try_out(
    subject: Subject,
    x: Any,
    labels: Any,
    candidate: Candidate,
    reference: Pass | None,
    measure: Measure,
    *,
    done: Pass | None = None,
) -> Result:
    """One solver's result; where it fails (a step that blows up, an unresolvable tolerance) the result says so. `done`
    is its pass where the search for the reference took it already."""
    solver = candidate(subject.solvers[-1])
    try:
        done = done or _forward(subject, x, candidate)
    except SolverError as error:
        return failed_result(solver, str(error))
    flaw = measure.flaw(done, labels)
    if flaw is not None:
        return failed_result(solver, flaw)
    return measure.result(solver, done, labels, reference)


def _forward(subject: Subject, x: Any, candidate: Candidate) -> Pass:
    """In the model's own precision; in float64 where that cannot resolve the tolerance."""
    try:
        return subject.forward(x, candidate)
    except ToleranceError as error:
        try:
            return subject.forward(x, candidate, double=True)
        except DoublePrecisionError:
            raise error from None


def without_repeats(results: Mapping[Candidate, Result]) -> dict[Candidate, Result]:
    """Each solve once: fixed steps that land on output times are no longer than those are apart, whatever is asked for.
    Of several such candidates the model's own step stays, or else the finest: a coarser one would seem to be safe."""
    kept: dict[Any, Candidate] = {}
    for candidate in sorted(results, key=lambda c: (c.factor != 1, c.factor)):
        kept.setdefault(_solve_of(candidate, results[candidate]), candidate)
    return {candidate: result for candidate, result in results.items() if candidate in set(kept.values())}


def _solve_of(candidate: Candidate, result: Result) -> Any:
    """The same for candidates that gave the same solve; where evaluations are not known, nothing is."""
    if not result.evaluations or result.error is None:
        return candidate
    return candidate.method, result.evaluations, result.error.tobytes(), result.scores.tobytes()


def join_results(results: Sequence[Result]) -> Result:
    """The same solver's results of several batches as one; it failed if it failed on any."""
    failed = next((result for result in results if result.failed is not None), None)
    if failed is not None or len(results) == 1:
        return failed or results[0]
    errors = [result.error for result in results if result.error is not None]
    return replace(
        results[0],
        scores=np.concatenate([result.scores for result in results]),
        votes=np.concatenate([result.votes for result in results]),
        error=np.concatenate(errors) if len(errors) == len(results) else None,
        evaluations=round(float(np.mean([result.evaluations for result in results]))),
    )
