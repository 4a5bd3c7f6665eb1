"""What an audit may be asked for: what cannot mean anything is refused before anything is solved."""

from collections.abc import Iterable
from math import inf
from typing import Any

from windermere.auditing.candidates import Candidate
from windermere.auditing.scoring import Metric
from windermere.checks import as_number, is_whole, takes_two
from windermere.errors import UsageError, describe_value
from windermere.nn.shared import Place

ACCURACY_THRESHOLD = 0.1
"""The paper's threshold for accuracies."""


def as_threshold(threshold: float | None, metric: Metric | None = None) -> float:
    """The paper's 0.1 for accuracy; another metric has units of its own, in which only the user can say what is far."""
    if threshold is None and metric is not None:
        raise UsageError(
            "a metric has units of its own: say by threshold=... how far apart two mean scores may be and still count "
            "as the same (for a regression, let the metric be log10 of each sample's error, and the threshold 0.3: "
            "twice the error)"
        )
    if threshold is None:
        return ACCURACY_THRESHOLD
    if not 0 <= as_number(threshold) < inf:
        raise UsageError(f"threshold must be a number of at least 0, not {threshold}")
    if metric is None and threshold >= 1:
        raise UsageError(
            f"accuracies are never further apart than 1, so a threshold of {threshold} calls any model a flow: give "
            "one below 1"
        )
    return as_number(threshold)


def check_metric(metric: Any) -> None:
    if metric is not None and not (callable(metric) and takes_two(metric)):
        raise UsageError(
            f"a metric is a function of outputs and targets, not {describe_value(metric)}: leave it out for accuracy"
        )


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
