"""Judges of models whose targets are known: by mean scores, by classes, by errors relative to the own one, by R²."""

from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.judge import Judge, Kept, Kind, check_by_sample, scored
from windermere.auditing.labels import as_classes, check_classes
from windermere.auditing.metrics import Function, Metric, absolute_errors, accuracy, decisions, like, squared_errors
from windermere.auditing.statistics import Better, Gap, Numbers, mean_ratio, over_times, paired_gap
from windermere.auditing.subject import Pass
from windermere.errors import UsageError
from windermere.report.numbers import ACCURACY

FLIPS = 0.002
"""The share of decisions that may still change in the reference's last refinement."""
SHARE_OF_THRESHOLD = 0.02
"""By which share of the threshold a mean score may still move there."""
NOTHING, ROUNDING = 1e-5, 2e-7
"""An error of this share of the outputs' spread counts as none: float32 rounds by as much on the way through a model.
What is added to them at last, such as a mean of 1e5, rounds by this share of it."""
TRAJECTORY = 3
"""Outputs of so many axes, [n, T, ...], hold more than where a solve ended."""


@dataclass(frozen=True)
class MeanScores(Judge):
    """By the mean of scores, one for each sample or each of its times."""

    function: Function
    name: str
    threshold: float
    better: Better | None = None
    kind: ClassVar[Kind] = Kind.SCORES

    def check(self, own: Pass, targets: Any) -> None:
        super().check(own, targets)
        check_by_sample(self.function, own, targets)
        scores = self.scores(own, targets)
        lost = _lost(scores)
        if lost:
            raise UsageError(
                f"the metric's scores are not finite for {lost} of {len(scores)} samples under the model's own solver: "
                "leave those samples out, or look at the metric"
            )

    def flaw(self, done: Pass, targets: Any) -> str | None:
        if (why := super().flaw(done, targets)) is not None:
            return why
        lost = _lost(self.scores(done, targets))
        return f"the metric's scores are not finite for {lost} of {len(done.outputs)} samples" if lost else None

    def place(self, done: Pass) -> Tensor:
        """Outputs [n, k] may be k times: where a solution comes to rest, its end alone would call any solver exact.
        They may be saturated as well, as probabilities are: so both count."""
        if done.outputs.ndim >= TRAJECTORY:
            return done.outputs.flatten(1)
        end = super().place(done)
        alone = done.outputs[0].numel() == 1 or torch.equal(end, done.outputs)
        return end if alone else torch.cat([end, done.outputs], dim=1)

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        before, after = (over_times(self.scores(each, targets)).mean() for each in (one, other))
        return bool(abs(before - after) <= SHARE_OF_THRESHOLD * self.threshold)

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        return {"scores": self.scores(done, targets)}

    def score(self, kept: Kept, own: Kept) -> float:
        return float(over_times(kept["scores"]).mean())

    def compare(self, own: Kept, other: Kept) -> Gap:
        return paired_gap(own["scores"], other["scores"], self.better)

    def agreement(self, one: Kept, other: Kept) -> float:
        apart = np.abs(over_times(one["scores"]) - over_times(other["scores"]))
        return float((apart <= self.threshold).mean())

    def scores(self, done: Pass, targets: Any) -> Numbers:
        """[n] or [n, T]"""
        return scored(self.function, done, targets)


@dataclass(frozen=True)
class Likelihood(MeanScores):
    """By negative log-likelihoods, in nats for each sample."""

    kind: ClassVar[Kind] = Kind.LIKELIHOOD


@dataclass(frozen=True)
class Accuracy(MeanScores):
    """By the share of right classes: the paper's rule."""

    function: Function = accuracy
    name: str = ACCURACY
    threshold: float = 0.1
    better: Better | None = "higher"
    kind: ClassVar[Kind] = Kind.CLASSES

    def check(self, own: Pass, targets: Any) -> None:
        Judge.check(self, own, targets)
        check_classes(own.outputs, targets)
        table = own.outputs.reshape(len(own.outputs), -1)
        both = table.shape[1] == 1 and len(torch.unique(as_classes(targets))) > 1
        if both and table.min() >= 0 and table.max() <= 1:
            raise UsageError(
                "the model's single outputs all lie between 0 and 1, like probabilities, but accuracy takes them for "
                "logits: leave out the sigmoid, or give metric=... and threshold=..."
            )

    def place(self, done: Pass) -> Tensor:
        return Judge.place(self, done)

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        return few_flips(one, other)

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        return {"scores": self.scores(done, targets), "classes": decisions(done.outputs).numpy()}

    def agreement(self, one: Kept, other: Kept) -> float:
        return float((one["classes"] == other["classes"]).mean())

    def is_safe(self, rung: Kept, flow: Kept, share: float) -> bool:
        return self.agreement(rung, flow) >= share


def few_flips(one: Pass, other: Pass) -> bool:
    """Whether hardly a decision changes."""
    return float((decisions(one.outputs) != decisions(other.outputs)).double().mean()) <= FLIPS


@dataclass(frozen=True)
class Errors(Judge):
    """By errors relative to the own one: the ratio of their means, or of the roots of these where they are squares.

    The floor of both is what changing the outputs by a share of 1e-5 makes of the own error.
    """

    metric: Metric
    threshold: float
    better: Better | None = "lower"
    kind: ClassVar[Kind] = Kind.ERRORS

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.metric.called

    def check(self, own: Pass, targets: Any) -> None:
        super().check(own, targets)
        check_by_sample(self.metric.function, own, targets)
        errors = self.errors(own, targets)
        lost = _lost(errors, missing=self._skips)
        if lost:
            why = "have no target that is a number" if self._skips else "have errors that are not finite"
            raise UsageError(f"{lost} of {len(errors)} samples {why}: leave those samples out")
        if np.nanmin(errors) < 0:
            raise UsageError(
                f"{self.name} gives a negative error, {np.nanmin(errors):.3g}, of which nothing can be a multiple: let "
                "it give errors of at least 0, or leave out relative=True"
            )

    def flaw(self, done: Pass, targets: Any) -> str | None:
        if (why := super().flaw(done, targets)) is not None:
            return why
        lost = _lost(self.errors(done, targets), missing=self._skips)
        return f"the metric's scores are not finite for {lost} of {len(done.outputs)} samples" if lost else None

    def place(self, done: Pass) -> Tensor:
        """Errors are about outputs, over the whole trajectory."""
        return done.outputs.reshape(len(done.outputs), -1)

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        """Also where both are exact, but for the floor."""
        kept = [self.keep(each, targets, each, None) for each in (one, other)]
        return abs(log(max(self.compare(*kept).value, 1e-300))) <= SHARE_OF_THRESHOLD * log(self.threshold)

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        errors = self.errors(done, targets)
        nudged = Pass(outputs=_nudged(done.outputs), states=None, evaluations=0)
        return {"scores": errors, "floor": np.abs(over_times(self.errors(nudged, targets)) - over_times(errors))}

    def score(self, kept: Kept, own: Kept) -> float:
        mean = float(over_times(kept["scores"]).mean())
        return mean**0.5 if self.metric.form == "root mean square" else mean

    def compare(self, own: Kept, other: Kept) -> Gap:
        floor = float(min(own["floor"].mean(), other["floor"].mean()))
        ratio = mean_ratio(other["scores"], own["scores"], floor=floor)
        return ratio.rooted() if self._squares else ratio

    def agreement(self, one: Kept, other: Kept) -> float:
        """A sample's errors agree if one is no more than so many times the other, where neither is taken for less than
        the smaller mean."""
        first, second = over_times(one["scores"]), over_times(other["scores"])
        least = max(min(float(first.mean()), float(second.mean())), float(other["floor"].mean()), 1e-300)
        ratio = np.maximum(first, least) / np.maximum(second, least)
        limit = self.threshold**2 if self._squares else self.threshold
        return float(((ratio <= limit) & (ratio >= 1 / limit)).mean())

    def band(self, own: float) -> tuple[float, float]:
        limit = self.threshold**2 if self.metric.form == "mean square" else self.threshold
        return own / limit, own * limit

    def errors(self, done: Pass, targets: Any) -> Numbers:
        """[n] or [n, T]; not a number where there is no target."""
        return scored(self.metric.function, done, targets)

    @property
    def _squares(self) -> bool:
        return self.metric.form != "mean"

    @property
    def _skips(self) -> bool:
        """Whether targets that are not a number are passed over, as at times when nothing was measured."""
        return self.metric.function in (squared_errors, absolute_errors)


@dataclass(frozen=True)
class Explained(Errors):
    """By R²: 1 minus the mean squared error over the variance of the targets, of all samples together."""

    better: Better | None = "higher"
    kind: ClassVar[Kind] = Kind.SCORES

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        kept = [self.keep(each, targets, each, None) for each in (one, other)]
        return abs(self.compare(*kept).value) <= SHARE_OF_THRESHOLD * self.threshold

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        return {"scores": self.errors(done, targets), "targets": like(done.outputs, targets).flatten(1).numpy()}

    def score(self, kept: Kept, own: Kept) -> float:
        return 1 - float(over_times(kept["scores"]).mean()) / _variance(kept["targets"])

    def compare(self, own: Kept, other: Kept) -> Gap:
        variance = _variance(own["targets"])
        return paired_gap(1 - own["scores"] / variance, 1 - other["scores"] / variance, "higher")

    def agreement(self, one: Kept, other: Kept) -> float:
        apart = np.abs(over_times(one["scores"]) - over_times(other["scores"])) / _variance(one["targets"])
        return float((apart <= self.threshold).mean())

    def band(self, own: float) -> tuple[float, float]:
        return own - self.threshold, own + self.threshold


def _variance(targets: Numbers) -> float:
    """The targets' variance about the mean of each entry over samples; for a single sample, over all entries."""
    about = np.nanmean(targets, axis=0) if len(targets) > 1 else np.nanmean(targets)
    found = float(np.nanmean((targets - about) ** 2))
    if found == 0:
        raise UsageError("r2 compares errors with the variance of the targets, which are all the same: take mse")
    return found


def _nudged(outputs: Tensor) -> Tensor:
    """Outputs, changed by as much as counts as nothing, up and down in turns."""
    signs = torch.ones(outputs[0].numel() * len(outputs), dtype=outputs.dtype)
    signs[::2] = -1
    mean = outputs.flatten(0, -2).mean(dim=0) if outputs.ndim >= TRAJECTORY else outputs.mean()
    spread, size = ((outputs - centre).square().mean().sqrt() for centre in (mean, 0.0))
    return outputs + (NOTHING * spread + ROUNDING * size) * signs.reshape(outputs.shape)


def _lost(scores: Numbers, *, missing: bool = False) -> int:
    """How many samples have a score that is not finite, or none that is, where those of some times may be missing."""
    there = np.isfinite(scores) if not missing else ~np.isnan(scores)
    found = there.reshape(len(scores), -1)
    return int((~(found.any(axis=1) if missing else found.all(axis=1))).sum())
