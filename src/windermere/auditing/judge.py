"""What judges a model under many solvers: the contract that the audit keeps to, whatever the score is made of.

Shapes: n samples, T times.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.statistics import Better, Gap, Numbers, over_times
from windermere.auditing.subject import Pass
from windermere.errors import AuditError, UsageError, describe_value
from windermere.report.numbers import Digits

Kept: TypeAlias = Mapping[str, NDArray[Any]]
"""What a judge keeps of a pass, arrays with the samples first, so that batches are joined by laying them one after the
other. "scores" is always there: what there is to compare, by sample."""


class Kind(StrEnum):
    """What a verdict is about: it decides the words."""

    SCORES = "scores"
    CLASSES = "classes"
    ERRORS = "errors"
    LIKELIHOOD = "likelihood"
    DECISIONS = "decisions"
    MOVEMENT = "movement"
    SETS = "sets"

    def digits(self, threshold: float) -> Digits:
        """How scores are written that are judged by this threshold."""
        shares = self in (Kind.CLASSES, Kind.DECISIONS)
        return Digits(threshold, shares=shares, relative=self is Kind.ERRORS)


class Judge(ABC):
    """How outputs are judged.

    The audit calls `check` once for each batch under the own solver, `still` and `flaw` while it looks for the flow,
    and `keep` for each pass of each batch. All else is asked of what was kept of all batches together, so that a score
    may belong to the whole set and not to a sample.
    """

    kind: ClassVar[Kind]
    labelled: ClassVar[bool] = True
    """Whether anybody can say what is better: else the outcome is MOVED."""
    sees_solvers: ClassVar[bool] = True
    """Whether the rule looks at all solvers at least as accurate as the own one, or at the flow alone."""
    name: str
    threshold: float
    better: Better | None = None
    note: str | None = None
    """What a reader has to know of what outputs were taken for."""

    def check(self, own: Pass, targets: Any) -> None:
        """Refuses outputs under the own solver on which no score can be trusted."""
        shape, lost = tuple(own.outputs.shape), lost_samples(own.outputs)
        if lost:  # other libraries return it in silence
            raise AuditError(
                f"the model's own solver gives outputs that are not finite for {lost} of {shape[0]} samples: look for "
                "weights or inputs that are not, or solve finer"
            )

    def flaw(self, done: Pass, targets: Any) -> str | None:
        """Why a pass cannot be judged, None where it can."""
        return None if done.outputs.isfinite().all() else "its outputs are not finite"

    def place(self, done: Pass) -> Tensor:
        """[n, D]: in what a solver's error is measured. Here where the last solve ended, or outputs where that is
        hidden."""
        return end_of(done)

    @abstractmethod
    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        """Whether two refinements of the reference flow come to the same decision."""

    @abstractmethod
    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        """What is to be known of a pass later; `own` and `flow` are those of the same batch, and may be the pass
        itself."""

    @abstractmethod
    def score(self, kept: Kept, own: Kept) -> float:
        """The number that stands for it in tables."""

    @abstractmethod
    def compare(self, own: Kept, other: Kept) -> Gap:
        """How far the own solver and another, or the flow, are apart."""

    @abstractmethod
    def agreement(self, one: Kept, other: Kept) -> float:
        """The share of samples that both judge alike. The other is the own solver or the flow."""

    def is_safe(self, rung: Kept, flow: Kept, share: float) -> bool:
        """Whether a solver may be used in place of the flow: the same rule, applied to the two of them. `share` is that
        of the decisions that have to be the same, where there are decisions."""
        return self.compare(flow, rung).is_within(self.threshold)

    def band(self, own: float) -> tuple[float, float]:
        """Between which scores the rule wants those of all others, where the own one is known."""
        return own - self.threshold, own + self.threshold

    @property
    def digits(self) -> Digits:
        """How scores are written."""
        return self.kind.digits(self.threshold)


def end_of(done: Pass) -> Tensor:
    """[n, D]: where the solves ended, or outputs where that is hidden."""
    values = next(each for each in (done.ends, done.states, done.outputs) if each is not None)
    return values.reshape(len(values), -1)


def check_one_each(done: Pass, samples: int) -> None:
    """Outputs must be the samples', one by one."""
    shape = tuple(done.outputs.shape)
    if shape[:1] != (samples,):
        raise AuditError(
            f"the model returns outputs of shape {shape} for {samples} samples: wrap it so that it returns one output "
            "for each sample"
        )


def lost_samples(outputs: Tensor) -> int:
    """How many samples have outputs that are not finite."""
    return int((~outputs.reshape(len(outputs), -1).isfinite()).any(dim=1).sum())


def scored(function: Callable[[Any, Any], Any], done: Pass, targets: Any) -> Numbers:
    """What a metric gives, [n] or [n, T]. It gets copies, for it may write to them."""
    its = targets.clone() if isinstance(targets, Tensor) else targets.copy() if hasattr(targets, "copy") else targets
    return as_scores(function(done.outputs.clone(), its), len(done.outputs))


def check_by_sample(function: Callable[[Any, Any], Any], own: Pass, targets: Any) -> None:
    """Refuses a metric that subtracts targets [n] from outputs [n, 1], or the other way round, which gives [n, n] in
    silence: of one of the two it does not matter then whose is whose, but which others there are. Metrics that see to
    these shapes are not like that."""
    shapes, n = [tuple(np.shape(each)) for each in (own.outputs, targets)], len(own.outputs)
    outputs, wanted = ([length for length in shape if length > 1] for shape in shapes)
    if n < 2 or shapes[0] == shapes[1] or outputs != wanted:
        return
    backwards, some = np.arange(n)[::-1].copy(), np.arange(n // 2)
    places = ((backwards, slice(None)), (slice(None), backwards), (some, some))
    try:
        asked = [scored(function, replace(own, outputs=own.outputs[one]), targets[other]) for one, other in places]
    except Exception:  # whatever it raises there, the pass itself will tell what is wrong  # noqa: BLE001
        return
    scores, (*turned, alone) = over_times(scored(function, own, targets)), map(over_times, asked)
    if any(_are_close(each, scores) for each in turned) and not _are_close(alone, scores[some]):
        raise UsageError(
            f"the metric spreads outputs of shape {shapes[0]} and targets of shape {shapes[1]} out against each other, "
            "so that each score is one of all samples: give targets of the outputs' shape"
        )


def _are_close(one: Numbers, other: Numbers) -> bool:
    return bool(np.allclose(one, other, rtol=1e-4, equal_nan=True))


def as_scores(given: Any, samples: int) -> Numbers:
    """Every sample's score, or that of its times too, checked to be that."""
    try:
        found = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"the metric must give one score for each of {samples} samples, but gave {describe_value(given)}"
        ) from error
    if found.is_complex():
        raise UsageError("the metric gives complex scores, of which none is better than another: let it give real ones")
    values = found.double().numpy()
    if values.ndim not in (1, 2) or len(values) != samples:
        several = values.ndim > 2 and len(values) == samples
        advice = "take the mean over all axes but the samples'" if several else "leave out the mean at its end"
        raise UsageError(
            f"the metric must give one score for each of {samples} samples, but gave shape {values.shape}: {advice}"
        )
    return values
