"""The judge of samplers: how far the generated set is from real samples, under each solver from the same noise."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from windermere.auditing.judge import Judge, Kept, Kind
from windermere.auditing.sets.distance import LEAST, SetDistance
from windermere.auditing.sets.measured import Measured, set_gap
from windermere.auditing.statistics import Better, Gap
from windermere.auditing.subject import Pass
from windermere.errors import UsageError

STILL = 0.1
"""By which share of the noise the distance may still change in the reference's last refinement."""
MOVED = 0.01
"""A sample that moves by no more than this share of the samples' spread stays the same."""


class Sets(Judge):
    """By the distance of the whole generated set from the data. Different is what exceeds the noise of real samples.

    The noise depends on how many samples there are, and these come in batches: it is that of all batches so far.
    """

    kind: ClassVar[Kind] = Kind.SETS
    sees_solvers: ClassVar[bool] = False
    """A coarser step may be as near to the flow sample by sample and make a worse set: that ties no sampler to its
    own."""
    better: Better | None = "lower"

    def __init__(self, distance: SetDistance, data: Any, threshold: float | None) -> None:
        self.name = f"{distance.name} distance"
        self._target, self._given, self._samples = distance.against(data), threshold, 0
        self._measured: dict[int, tuple[Any, Measured]] = {}

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """The one given, or the noise."""
        return self._target.noise(max(1, self._samples)) if self._given is None else self._given

    @property
    def note(self) -> str:  # type: ignore[override]
        """Against what the sets are compared."""
        noise = self._target.noise(max(1, self._samples))
        return (
            f"{self._samples} generated samples are compared with {self._target.size} real ones; sets of as many real "
            f"samples stay below a distance of {noise:.2g} in 95 of 100 cases"
        )

    def check(self, own: Pass, targets: Any) -> None:
        super().check(own, targets)
        if targets is not None:
            raise UsageError("a sampler is compared with data=... as a set, and has no labels: give its noise alone")
        self._samples += len(own.outputs)

    def still(self, one: Pass, other: Pass, targets: Any) -> bool:
        if len(one.outputs) < LEAST:
            return True
        first, second = (self._target.measure(each.outputs).value for each in (one, other))
        return abs(first - second) <= STILL * self.threshold

    def keep(self, done: Pass, targets: Any, own: Pass, flow: Pass | None) -> Kept:
        return {"scores": done.outputs.float().numpy()}

    def score(self, kept: Kept, own: Kept) -> float:
        return self._measure(kept).value

    def compare(self, own: Kept, other: Kept) -> Gap:
        return replace(set_gap(self._measure(own), self._measure(other)), better=self.better)

    def agreement(self, one: Kept, other: Kept) -> float:
        """The share of samples that hardly move: evidence, for sets may be alike where no sample is."""
        first, second = (each["scores"].reshape(len(each["scores"]), -1) for each in (one, other))
        spread = float(np.sqrt(np.square(second - second.mean(axis=0)).sum(axis=1).mean()))
        return float((np.linalg.norm(first - second, axis=1) <= MOVED * spread).mean())

    def _measure(self, kept: Kept) -> Measured:
        """Once for each set; the set is held, so that no other can get its id."""
        scores = kept["scores"]
        if id(scores) not in self._measured:
            self._measured[id(scores)] = (scores, self._target.measure(scores))
        return self._measured[id(scores)][1]
