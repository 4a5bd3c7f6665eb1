"""Steady controllers: precision that settles, instead of swinging between too coarse and finer than needed.

The paper's algorithms compare two accuracies on one batch: a coarse number (one sample of 128 is 0.8 points) with a
jump at its threshold, so they raise the step until training exploits the solver, and fall back. A steady controller
watches how far outputs move between training and check solver (`signals`). That distance grows like C precision^p, with
p the training method's order; the controller learns C, smoothed over reviews, and so knows what distance to expect at
any precision. It refines as soon as that is above its target, just so far that it meets it, and coarsens only where it
is below half of it. Between the two it rests, so noise and slow drift move nothing.
"""

from dataclasses import dataclass
from math import isfinite, pow

from windermere.adaptation.controller import ControllerState, PrecisionControl, Review, check_positive
from windermere.adaptation.score import Score
from windermere.adaptation.step_size import StepControl
from windermere.adaptation.tolerance import ToleranceControl
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep
from windermere.solvers.tableaus import tableau

LEAST = 1e-9
"""Distances below this are rounding."""
OUTLIER = 5.0
"""A single review counts for no more than so many times the target: no odd batch is remembered for long."""


@dataclass(frozen=True, kw_only=True)
class SteadyControl(PrecisionControl):
    """What both steady controllers share: the target, the memory and the update."""

    target: float = 0.01
    """The distance allowed: with 0.01, a better solver may move about 1% of the probability mass."""
    release: float = 0.5
    """Precision is relaxed only where the distance is below this share of the target."""
    weight: float = 0.2
    """The weight of one review in the smoothed distance; the first reviews are averaged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(target=self.target, release=self.release, weight=self.weight)
        if self.release > 1 or self.weight > 1:
            raise UsageError(f"release and weight are at most 1, not {self.release} and {self.weight}")

    def smooth(self, state: ControllerState, distance: float, order: float) -> float:
        """The smoothed distance at precision 1: independent of the precisions it was measured at."""
        seen = min(distance, OUTLIER * self.target) / pow(state.precision, order)
        if state.memory is None:
            return seen
        return state.memory + max(self.weight, 1 / (state.reviews + 1)) * (seen - state.memory)

    def aim(self, precision: float, expected: float, order: float) -> tuple[float, str]:
        """The nearest precision with a distance between release and target, within the bounds of one review."""
        if expected > self.target:
            allowed, reason = self.target, "distance above its target: refined"
        elif expected < self.release * self.target:
            allowed, reason = self.release * self.target, "distance far below its target: coarsened"
        else:
            return precision, "distance within its target: kept"
        factor = (allowed / max(expected, LEAST)) ** (1 / order)
        return precision * min(max(factor, self.decrease), self.increase), reason

    def decide(
        self, state: ControllerState, order: float, trained: Score, checked: Score, check: float
    ) -> ControllerState:
        """The next state after a check at precision `check`."""
        if checked.distance is None:
            raise UsageError(
                "a steady controller needs scores with a distance: how far outputs lie from the training solver's"
            )
        memory, signal = state.memory, None
        wanted, reason = self.decrease * state.precision, "distance not finite: refined"
        if isfinite(checked.distance):
            memory = self.smooth(state, checked.distance, order)
            signal = memory * pow(state.precision, order)
            wanted, reason = self.aim(state.precision, signal, order)
        finest, coarsest = self.bounds
        if wanted < finest:
            wanted, reason = finest, f"{reason} as far as {self.LIMIT}"
        elif wanted > coarsest:
            wanted, reason = coarsest, f"{reason} as far as can be"
        return self.next_state(state, wanted, trained, checked, None, check, reason, memory=memory, signal=signal)


@dataclass(frozen=True, kw_only=True)
class SteadySteps(StepControl, SteadyControl):
    """Steps that settle where a better solver moves the outputs by no more than the target.

    `train` and `check` are methods as for `StepAdaptation`. `target` is the distance allowed: with `moved_mass`, 0.01
    means that about 1% of the predicted probability moves. The step is refined above the target, coarsened below
    `release` times the target, and kept in between. `weight` is that of one review in the smoothed distance; `decrease`
    and `increase` bound one change. The step stays between `span`, the length of time that the model is
    solved for, and span / `budget`.

    Begin with `controller.start(step)`, for example with the step of `initial_step`; then see `review`, whose scores
    need a `distance`. A review is due every `every` iterations.

    >>> import windermere as wm
    >>> controller = wm.SteadySteps(train="euler", check="midpoint")
    >>> own, checked = wm.Score(value=0.9), wm.Score(value=0.8, distance=0.08)
    >>> state = wm.review(controller, controller.start(1 / 8), own, lambda solver: checked)
    >>> print(controller.solver(state), "-", state.decision.reason)
    euler, h = 1/16 - distance above its target: refined
    """

    def review(self, state: ControllerState, trained: Score) -> Review[FixedStep]:
        """Yields solvers to be scored on the current batch, is sent their scores, and returns the next state."""
        check = self.check_solver(state.precision)
        checked = yield check
        return self.decide(state, tableau(self.train).order, trained, checked, check.step)


@dataclass(frozen=True, kw_only=True)
class SteadyTolerances(ToleranceControl, SteadyControl):
    """Tolerances that settle where a finer solve moves the outputs by no more than the target.

    As `SteadySteps`, for adaptive methods. The distance is taken to grow in proportion to the tolerance. The check has
    `check_ratio` times the training tolerance (by default the paper's ratio for the pair), which stays between `floor`
    and `ceiling`. Begin with `controller.start()`, at 1e-6; then see `review`.

    >>> import windermere as wm
    >>> controller = wm.SteadyTolerances(train="fehlberg21")
    >>> own, checked = wm.Score(value=0.9, steps=9), wm.Score(value=0.9, distance=0.001)
    >>> state = wm.review(controller, controller.start(), own, lambda solver: checked)
    >>> print(controller.solver(state), "-", state.decision.reason)
    fehlberg21, tol = 2e-06 - distance far below its target: coarsened
    """

    increase: float = 2.0
    """Tolerances start low and have decades to go."""
    ceiling: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(ceiling=self.ceiling)
        if self.floor > self.ceiling:
            raise UsageError(f"the floor is above the ceiling: {self.floor} and {self.ceiling}")

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest tolerance."""
        return self.floor, self.ceiling

    def review(self, state: ControllerState, trained: Score) -> Review[Adaptive]:
        """Yields solvers to be scored on the current batch, is sent their scores, and returns the next state."""
        check = Adaptive(self.check, tolerance=self.ratio * state.precision)
        checked = yield check
        return self.decide(state, 1, trained, checked, check.precision)
