"""The convergence test of Krishnapriyan et al. (2022): does the error fall as a power of the step, below the training
step?

They look at the error against data. Here it is the distance from the flow, so that a model's own error does not hide
where the solver's ends; scores under finer solvers are in the verdict's table.
"""

from dataclasses import dataclass
from math import log2
from typing import ClassVar

import torch
from torch import Tensor

from windermere.auditing.evidence.paths import OwnPaths
from windermere.report.audit_data import fraction
from windermere.solvers import Adaptive, solve

POINTS = 16
HALVINGS = 2
"""Solves beside its own, with half the step each time."""
FALLING = 0.5
"""A slope below this is no convergence: halving the step leaves more than 70% of the error."""
FLOOR = 3.0
"""Errors up to so many times the reference's own are as small as can be measured."""
ROUNDING = 1e-13
"""The rounding of float64, as a share of the state."""


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Errors at the training step and at ever shorter ones."""

    order: int
    """The method's, which fields with kinks do not reach."""
    steps: tuple[float, ...]
    """From the training step down."""
    errors: tuple[float, ...]
    """The median distance from the flow."""
    slopes: tuple[float, ...]
    """The slopes of log error against log step between neighbours, as far as errors can be measured."""
    stops: float | None
    """The step at which the error has come down to what the reference itself may err by, None where it has not."""
    proves: ClassVar[str] = (
        "Where the error falls as a power of the step, the solver is close enough to the flow at its training step for "
        "its steps to be steps along it; a slope near 0 or below says that the training step is too long for that."
    )
    limits: ClassVar[str] = (
        "It is about the solver and not about scores: a tied model's solver converges as well, to a flow that scores "
        "worse. Fields with kinks (ReLU) give slopes below the method's order."
    )

    @property
    def finding(self) -> str:
        """In words."""
        own, stops = fraction(self.steps[0]), "" if self.stops is None else fraction(self.stops)
        if not self.slopes:
            return f"no slope can be seen: at h = {stops} the error is as small as the reference's own"
        finest = fraction(self.steps[len(self.slopes)])
        slope = sum(self.slopes) / len(self.slopes)
        falls = (
            f"the error falls with slope {slope:.2g} from h = {own} to {finest} (the method's order is {self.order})"
        )
        if self.slopes[0] < FALLING:
            told = " and ".join(f"{each:.2g}" for each in self.slopes)
            falls = f"at its own step the error does not fall as a power of the step: slopes {told} below h = {own}"
        return falls + (f"; it stops at {stops}, at the reference's own error" if stops else "")


def convergence(paths: OwnPaths) -> Convergence | None:
    """The test, on a few points; None where steps are adaptive or the flow's end is not known."""
    if isinstance(paths.solver, Adaptive) or paths.flow is None:
        return None
    exact = paths.flow.end[:POINTS]
    ends = [paths.states[-1, :POINTS], *(_end(paths, 0.5**k) for k in range(1, HALVINGS + 1))]
    errors = tuple(_median_distance(end, exact) for end in ends)
    floor = max(FLOOR * paths.flow.share * errors[0], ROUNDING * _median_distance(exact, torch.zeros_like(exact)))
    steps = tuple(paths.solver.precision * 0.5**k for k in range(HALVINGS + 1))
    seen = next((k for k, error in enumerate(errors) if not error > floor), len(errors))
    slopes = tuple(log2(errors[k] / errors[k + 1]) for k in range(seen - 1))
    return Convergence(
        order=paths.solver.order,
        steps=steps,
        errors=errors,
        slopes=slopes,
        stops=steps[seen] if seen < len(steps) else None,
    )


def _end(paths: OwnPaths, factor: float) -> Tensor:
    solver = paths.solver.with_precision(paths.solver.precision * factor)
    return solve(paths.insight.field, paths.insight.start[:POINTS], solver, paths.insight.times).final


def _median_distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).reshape(len(one), -1).norm(dim=1).median())
