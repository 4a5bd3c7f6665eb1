"""What a scene (scene.py) is made from: the audited model, few enough samples, and their outputs under the flow."""

from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any

from windermere.auditing.judge import Judge, Kind
from windermere.auditing.samples import first
from windermere.auditing.subject import Insight, Pass, Subject
from windermere.errors import WindermereError
from windermere.nn.shared import arrays_of

POINTS, FEW_POINTS, FEW_SAMPLES, MANY_ENTRIES = 200, 64, 128, 64
"""Trajectories; how many there are, and how many samples, where an input or a state has more entries than the last."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a scene is made from: the audited model, samples, and their outputs under the flow."""

    subject: Subject
    inputs: Any
    targets: Any
    own: Pass
    """The pass of the same samples with the own solver."""
    flow: Pass | None
    """None where the flow is not known."""
    judge: Judge
    real: Any = None
    """Real samples to look at beside a sampler's own."""

    @property
    def classes(self) -> bool:
        """Whether outputs are decisions."""
        return self.judge.kind in (Kind.CLASSES, Kind.DECISIONS)

    def score(self, done: Pass) -> float | None:
        """The number that stands for a pass in tables, None where there is none."""
        if self.judge.flaw(done, self.targets) is not None:
            return None
        kept, own = (self.judge.keep(each, self.targets, self.own, self.flow) for each in (done, self.own))
        score = self.judge.score(kept, own)
        return score if isfinite(score) else None


def affordable(stage: Stage) -> Stage:
    """Fewer samples where each is large: a scene takes a pass of all of them on every rung."""
    entries = sum(prod(leaf.shape[1:]) for leaf in arrays_of(stage.inputs))
    if entries <= MANY_ENTRIES:
        return stage
    return replace(
        stage,
        inputs=first(stage.inputs, FEW_SAMPLES),
        targets=None if stage.targets is None else first(stage.targets, FEW_SAMPLES),
        own=_first_of(stage.own),
        flow=None if stage.flow is None else _first_of(stage.flow),
    )


def _first_of(done: Pass) -> Pass:
    states, ends = (None if each is None else each[:FEW_SAMPLES] for each in (done.states, done.ends))
    return replace(done, outputs=done.outputs[:FEW_SAMPLES], states=states, ends=ends)


def insight(stage: Stage) -> Insight | None:
    """The field, where the model solves once: of several solves the last one's start would be another on each rung."""
    if len(stage.subject.solvers) > 1:
        return None
    try:
        found = stage.subject.insight(first(stage.inputs, POINTS))
    except WindermereError:
        return None
    many = found is not None and found.start[0].numel() > MANY_ENTRIES
    return replace(found, start=found.start[:FEW_POINTS]) if found is not None and many else found
