"""The way that the training solver takes through the field: what most evidence looks at.

Shapes: P points of the batch, K steps that the training solver takes, n samples of the batch, D entries of a state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.labels import as_classes, check_classes
from windermere.auditing.reference import Reference
from windermere.auditing.samples import first
from windermere.auditing.scoring import Result
from windermere.auditing.subject import Insight, Pass, Subject
from windermere.errors import UsageError, WindermereError
from windermere.solvers import Adaptive, Solver, solve

IN_THE_PLANE, ELSEWHERE = 300, 32
"""Points whose way is walked: many where they are drawn and their crossings counted, else a few."""
Times: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Where the reference flow takes the same points, as far as it is known."""

    end: Tensor
    """[P, ...]"""
    share: float
    """The reference's own error over the training solver's, medians. Of both it is the same share whether errors are
    those of ends or of outputs."""


@dataclass(frozen=True, kw_only=True)
class OwnPaths:
    """The training solver's own way, in float64, for some points of the batch."""

    insight: Insight
    solver: Solver
    states: Tensor
    """[K + 1, P, ...]"""
    times: Times
    classes: NDArray[np.int64] | None
    """[P]; None of a regression, and wherever labels are no classes of the outputs"""
    flow: Flow | None
    """None where it is not known, or starts elsewhere, behind another solve."""

    @property
    def step(self) -> float:
        """The largest, with its sign."""
        steps = np.diff(self.times)
        return float(steps[np.abs(steps).argmax()])

    def some(self, points: int, nodes: Sequence[int]) -> Tensor:
        return self.states[list(nodes), :points]

    def nodes(self, most: int) -> list[int]:
        """The numbers of at most so many steps, evenly spread."""
        steps = len(self.times) - 1
        return sorted({round(i) for i in np.linspace(0, steps - 1, min(most, steps))})


def own_paths(
    subject: Subject, batch: tuple[Any, Any], done: Pass, own: Result, reference: Reference
) -> OwnPaths | None:
    """The way of the batch's first points; None where the model hides its field, or cannot be solved in float64."""
    inputs, labels = batch
    in_the_plane = done.states is None or done.states.shape[1] == 2
    try:
        insight = subject.insight(first(inputs, IN_THE_PLANE if in_the_plane else ELSEWHERE))
        solver = subject.solvers[-1]
        if insight is None:
            return None
        if isinstance(solver, Adaptive):
            solver = replace(solver, tolerance=None, control="batch")
        with torch.no_grad():
            solution = solve(insight.field, insight.start, solver, insight.times, record=True)
    except WindermereError:
        return None
    if solution.trajectory is None or not isinstance(solution.trajectory.states, Tensor):
        return None
    return OwnPaths(
        insight=insight,
        solver=solver,
        states=solution.trajectory.states.detach(),
        times=tuple(solution.trajectory.times.tolist()),
        classes=_classes(done.outputs, labels, len(insight.start)),
        flow=_flow(reference, own, insight.start) if len(subject.solvers) == 1 else None,
    )


def _flow(reference: Reference, own: Result, start: Tensor) -> Flow | None:
    ends = None if reference.done is None or not reference.converged else reference.done.states
    if ends is None or reference.error is None or own.error is None or ends[: len(start)].numel() != start.numel():
        return None
    error, its = float(np.median(own.error)), float(np.median(reference.error))
    return Flow(end=ends[: len(start)].reshape(start.shape).to(start), share=its / error if error > 0 else 1.0)


def _classes(outputs: Tensor, labels: Any, points: int) -> NDArray[np.int64] | None:
    """The classes of the first points; None where labels are something else, such as the targets of a regression."""
    if labels is None:
        return None
    try:
        check_classes(outputs, labels)
    except UsageError:
        return None
    return as_classes(labels)[:points].numpy()
