"""What an audit may be asked for: what cannot mean anything is refused before anything is solved."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import Judge
from windermere.auditing.judges import Accuracy, Errors, Explained, Likelihood, MeanScores
from windermere.auditing.metrics import READY, Function, Metric, accuracy, as_metric, check_threshold
from windermere.auditing.sets.distance import SetDistance
from windermere.auditing.sets.judge import Sets
from windermere.auditing.subject import Pass
from windermere.auditing.unlabelled import without_labels
from windermere.checks import as_number, is_whole
from windermere.errors import UsageError, describe_value
from windermere.nn.shared import Place
from windermere.report.numbers import ACCURACY

OUTPUTS = ("classes", "numbers")


@dataclass(frozen=True, kw_only=True)
class Question:
    """By what a model is to be judged, as far as the user has said it."""

    metric: Metric | Function | None
    threshold: float | None
    outputs: str | None
    data: Any = None
    """Real samples, where a sampler is compared with them."""
    distance: SetDistance | None = None
    """By which."""

    def judge(self, own: Pass, targets: Any) -> Judge:
        """Who answers it, for a model whose own pass and targets are these."""
        metric = self.metric
        if self.data is not None:
            return Sets(self.distance or SetDistance("energy"), self.data, self.threshold)
        if metric is None and targets is None:
            return without_labels(own, self.outputs, self.threshold)
        if metric is None and self.outputs == "numbers":
            raise UsageError(
                "outputs that are numbers are compared with targets by a metric: give one, such as metric='mse'"
            )
        if metric is None:
            metric = READY[ACCURACY]
        if not isinstance(metric, Metric):
            return MeanScores(metric, Metric(metric, better="higher").called, as_number(self.threshold))
        return _judge_by(metric, metric.limit if self.threshold is None else as_number(self.threshold), targets)


def _judge_by(metric: Metric, limit: float | None, targets: Any) -> Judge:
    threshold = as_number(limit)
    if metric.function is accuracy and targets is None:
        raise UsageError(
            "accuracy compares decisions with labels, but there are none: leave the metric out without labels"
        )
    if metric.function is accuracy:
        return Accuracy(threshold=threshold)
    if metric.form == "explained":
        return Explained(metric, threshold)
    if metric.relative:
        return Errors(metric, threshold)
    by = Likelihood if metric.units == "nats" else MeanScores
    return by(metric.function, metric.called, threshold, metric.better)


def as_question(metric: Any, threshold: Any, outputs: Any, model: Any = None, data: Any = None) -> Question:
    """What was asked for, refused where it cannot mean anything. The paper's 0.1 is accuracy's threshold; a metric of
    one's own has units in which only the user can say what is far."""
    if outputs not in (None, *OUTPUTS):
        raise UsageError(f'outputs is "classes" or "numbers", not {describe_value(outputs)}')
    if data is not None or isinstance(metric, SetDistance):
        return _of_sets(metric, threshold, outputs, data)
    found = as_metric(metric, model)
    relative = isinstance(found, Metric) and found.relative
    if threshold is not None:
        check_threshold(threshold, relative=relative)
    elif found is not None and (not isinstance(found, Metric) or found.limit is None):
        raise UsageError(
            "a metric has units of its own: say by threshold=... how far apart two mean scores may be and still count "
            "as the same (for a regression take metric='mse', which is judged relative to the model's own error)"
        )
    of_classes = found is None or (isinstance(found, Metric) and found.function is accuracy)
    if of_classes and threshold is not None and as_number(threshold) >= 1:
        raise UsageError(
            f"a threshold of {threshold} calls any model a flow: give one below 1, for it is a share, of right answers "
            "or, without labels, of decisions that change or of the outputs' spread"
        )
    return Question(metric=found, threshold=None if threshold is None else as_number(threshold), outputs=outputs)


def _of_sets(metric: Any, threshold: Any, outputs: Any, data: Any) -> Question:
    """Generated samples against real ones."""
    if data is None:
        raise UsageError("a windermere.SetDistance compares samples with real ones: give these as data=...")
    if isinstance(metric, str):
        metric = SetDistance(metric)
    if metric is not None and not isinstance(metric, SetDistance):
        raise UsageError(
            "with data=... a sampler is judged by a distance of sets: give metric=windermere.SetDistance(...) or the "
            "name of one, or leave it out for the energy distance"
        )
    if outputs is not None:
        raise UsageError("outputs says what outputs without labels or data are: leave it out, for data=... is given")
    if threshold is not None:
        check_threshold(threshold, relative=False)
    limit = None if threshold is None else as_number(threshold)
    return Question(metric=None, threshold=limit, outputs=None, data=data, distance=metric)


def as_candidates(candidates: Any) -> list[Candidate] | None:
    """The candidates as a list, since an iterator can be read only once. Anything else than a `Candidate` is refused,
    also the name of a method."""
    if candidates is None:
        return None
    given = list(candidates) if isinstance(candidates, Iterable) else [candidates]
    if wrong := [c for c in given if not isinstance(c, Candidate)]:
        raise UsageError(f"a candidate is a windermere.Candidate(method, factor), not {describe_value(wrong[0])}")
    return given


def check_axis(batch_axis: int | None) -> None:
    if batch_axis is not None and not is_whole(batch_axis, least=-64):
        raise UsageError(
            f"batch_axis={describe_value(batch_axis)} is no axis: give the axis of the model's outputs along which the "
            "samples lie, a whole number, or leave it out to have it found"
        )


def as_shared(shared: Any) -> tuple[Place, ...]:
    """The names or positions of shared inputs as a tuple; a single one may be given by itself."""
    names = (shared,) if isinstance(shared, str | int) else shared
    if not isinstance(names, Iterable) or not all(isinstance(n, str) or is_whole(n, least=0) for n in (*names,)):
        raise UsageError(
            "shared names the inputs that all samples share, by their names or positions from 0, as shared=('t',) or "
            f"shared=(1,), not {describe_value(shared)}"
        )
    return tuple(name if isinstance(name, str) else int(name) for name in names)


def check_samples(samples: int | None) -> None:
    if samples is not None and not is_whole(samples, least=1):
        raise UsageError(f"an audit needs at least one sample, a whole number of them, not {samples}")


def check_numbers(*, agreement: float, samples: int | None, seed: int, budget: int | None) -> None:
    """Refuses numbers, other than the threshold, that cannot mean anything."""
    check_samples(samples)
    if not 0 < as_number(agreement) <= 1:
        raise UsageError(
            f"agreement is a share of the predictions, above 0 and at most 1, not {agreement}: give 0.99 for 99%"
        )
    if not is_whole(seed, least=0):
        raise UsageError(f"seed must be a whole number, at least 0, not {seed}")
    if budget is not None and not is_whole(budget, least=1):
        raise UsageError(
            "budget is how many evaluations the reference flow may take, a whole number, at least 1, not "
            f"{budget}: leave it out for the usual one"
        )
