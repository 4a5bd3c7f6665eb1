"""Judges of models without targets: how many decisions change under another solver, or how far outputs move.

Without targets nobody can say whether for better or worse.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.judge import Judge, Kept, Kind
from windermere.auditing.judges import few_flips
from windermere.auditing.metrics import decisions, over_entries
from windermere.auditing.statistics import Gap, Numbers, mean_ratio, over_times, share_gap
from windermere.auditing.subject import Pass
from windermere.errors import UsageError

CHANGED, MOVED = 0.1, 0.01
"""The share of decisions that may change, which bounds any difference of accuracies, and by how much of their spread
outputs may move."""
STILL = 0.1
"""By which share of the threshold outputs may still move in the reference's last refinement."""
ROUNDING = 1e-6
"""Outputs that differ by a smaller share of their size are the same in float32."""


@dataclass(frozen=True)
class Decisions(Judge):
    """By the share of samples whose class another solver changes."""

    threshold: float = CHANGED
    note: str | None = None
    name: str = "changed decisions"
    kind: ClassVar[Kind] = Kind.DECISIONS
    labelled: ClassVar[bool] = False

    def check(self, own: Pass, targets: Any) -> None:
        super().check(own, targets)
        table = own.outputs.reshape(len(own.outputs), -1)
        if sum(length > 1 for length in own.outputs.shape[1:]) > 1:
            raise UsageError(
                "classes need one row of outputs for each sample, but those of a sample have shape "
                f"{tuple(own.outputs.shape[1:])}: return whatever decides the class"
            )
        if table.shape[1] == 1 and table.min() >= 0 and table.max() <= 1:
            raise UsageError(
                "the model's single outputs all lie between 0 and 1, like probabilities, but their sign is taken for "
                "the class: leave out the sigmoid"
            )

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        return few_flips(one, other)

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        return {"scores": decisions(done.outputs).double().numpy()}

    def score(self, kept: Kept, own: Kept) -> float:
        return 1 - self.agreement(kept, own)

    def compare(self, own: Kept, other: Kept) -> Gap:
        return share_gap(own["scores"] != other["scores"])

    def agreement(self, one: Kept, other: Kept) -> float:
        return float((one["scores"] == other["scores"]).mean())

    def is_safe(self, rung: Kept, flow: Kept, share: float) -> bool:
        return self.agreement(rung, flow) >= share


@dataclass(frozen=True)
class Movement(Judge):
    """By how far outputs move, over all their times, as a share of how far they are spread over samples.

    Only distances from the own solver and from the flow are kept, and the outputs of these two: those of all solvers
    would be too many where they are images.
    """

    threshold: float = MOVED
    note: str | None = None
    name: str = "movement"
    kind: ClassVar[Kind] = Kind.MOVEMENT
    labelled: ClassVar[bool] = False
    sees_solvers: ClassVar[bool] = False

    def place(self, done: Pass) -> Tensor:
        return done.outputs.reshape(len(done.outputs), -1)

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        kept = [self.keep(each, targets, one, other) for each in (one, other)]
        return self.compare(kept[0], kept[1]).value <= STILL * self.threshold

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        """A pass has no distance from itself."""
        kept: dict[str, Any] = {"scores": np.zeros(len(done.outputs))}
        if done is not own:
            kept["from own"] = _apart(done, own)
        if flow is not None and done is not flow:
            kept["from flow"] = _apart(done, flow)
        if done is own or done is flow:
            kept["outputs"] = done.outputs.float().numpy()
        return kept

    def score(self, kept: Kept, own: Kept) -> float:
        return self.compare(own, kept).value if "from own" in kept else 0.0

    def compare(self, own: Kept, other: Kept) -> Gap:
        """Either may be the flow."""
        spread = _spread(own["outputs"])
        moved = _between(own, other)
        if moved is None or not moved.any():
            return Gap(value=0.0, low=0.0, high=0.0, samples=len(spread))
        return replace(mean_ratio(moved, spread).rooted(), better=None, ratio=False)

    def agreement(self, one: Kept, other: Kept) -> float:
        spread, moved = _spread(other["outputs"]), _between(other, one)
        if moved is None:
            return 1.0
        return float((over_times(moved) <= self.threshold**2 * float(over_times(spread).mean())).mean())

    def band(self, own: float) -> tuple[float, float]:
        return 0.0, self.threshold


def _apart(done: Pass, other: Pass) -> Numbers:
    """The mean squared distance of outputs, by sample and, where there are times, by time."""
    found: Numbers = over_entries((done.outputs - other.outputs).square()).numpy()
    return found


def _between(one: Kept, other: Kept) -> Numbers | None:
    """The mean squared distance of another pass from the own one or the flow's, which is known by what it has none
    from; None where both are the same pass."""
    places = ("from flow", "from own")
    return next((np.asarray(other[place]) for place in places if place not in one and place in other), None)


def _spread(outputs: Numbers) -> Numbers:
    """The mean squared distance of outputs from their mean over samples, by sample and time; of one sample, or where
    all are the same but for rounding, from their mean over times, or else from 0."""
    values = torch.as_tensor(outputs).double()
    about = [values.nanmean(dim=0), *([values.nanmean(dim=1, keepdim=True)] if values.ndim > 1 else []), torch.zeros(1)]
    spreads = (over_entries((values - centre).square()).numpy() for centre in (about if len(values) > 1 else about[1:]))
    least = ROUNDING**2 * float(values.square().nanmean())
    found = (spread for spread in spreads if np.nanmean(spread) > least)
    return next(found, over_entries(torch.zeros_like(values)).numpy())


def without_labels(own: Pass, outputs: str | None, threshold: float | None) -> Judge:
    """Decisions or movement, as the user says. Where nobody says it, outputs are numbers, unless each row is one of
    probabilities, which only classes have."""
    classes = outputs == "classes" or (outputs is None and _are_probabilities(own.outputs))
    taken = "scores of classes" if classes else "numbers"
    other = "outputs='numbers' looks at how far they move" if classes else "outputs='classes' counts decisions instead"
    note = None if outputs is not None else f"without labels the outputs were taken for {taken}: {other}"
    if not classes:
        return Movement(MOVED if threshold is None else threshold, note)
    if threshold is not None and threshold >= 1:
        raise UsageError(f"no more than all decisions can change: give a threshold below 1, not {threshold}")
    return Decisions(CHANGED if threshold is None else threshold, note)


def _are_probabilities(outputs: Tensor) -> bool:
    if outputs.ndim != 2 or outputs.shape[1] < 2 or outputs.min() < 0:
        return False
    return bool((outputs.sum(dim=1) - 1).abs().max() < 1e-4)
