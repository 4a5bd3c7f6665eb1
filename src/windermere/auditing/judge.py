"""What judges a model under many solvers: the contract that the audit keeps to, whatever the score is made of.

Shapes: n samples, T times.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.statistics import Better, Gap, Numbers
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
        return Digits(self.threshold, shares=self.kind in (Kind.CLASSES, Kind.DECISIONS))


def end_of(done: Pass) -> Tensor:
    """[n, D]: where the last solve ended, or outputs where that is hidden."""
    values = done.outputs if done.states is None else done.states
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


def as_scores(given: Any, samples: int) -> Numbers:
    """Every sample's score, or that of its times too, checked to be that."""
    try:
        values = np.asarray(torch.as_tensor(given), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"the metric must give one score for each of {samples} samples, but gave {describe_value(given)}"
        ) from error
    if values.ndim not in (1, 2) or len(values) != samples:
        raise UsageError(
            f"the metric must give one score for each of {samples} samples, but gave shape {values.shape}: "
            "leave out the mean at its end"
        )
    return values
