"""Algorithm 2 of the paper: the step adaptation. `StepAdaptation.review` is its listing, line by line.

Against the listing: its `h = h_new` stands in the else-branch, and is meant for both. A budget bounds how far the step
shrinks (the authors' was 500 steps). test_solver(h) is `check_solver`, as the text above it has it.
"""

from dataclasses import dataclass
from typing import ClassVar

from windermere.adaptation.agreement import ThresholdControl, differ
from windermere.adaptation.controller import (
    ControllerState,
    PrecisionControl,
    Review,
    check_positive,
    check_whole,
    precision_of,
)
from windermere.adaptation.score import Score
from windermere.errors import UsageError, describe_value
from windermere.solvers import METHODS, FixedStep
from windermere.solvers.solver import SAME_STEP
from windermere.solvers.tableaus import tableau

ERROR_RATIO = 50.0
"""The check solver's error order must be so many times smaller than the training solver's."""
SHORTEST, LONGEST, MOST = 1e-30, 1e30, 10**15
"""Spans whose fifth power, as an error of that order has it, is still a number."""


@dataclass(frozen=True, kw_only=True)
class StepControl(PrecisionControl):
    """What all controllers of steps share; `check` is of a higher order than `train`."""

    span: float = 1.0
    """T, the length of time that is solved for: the largest step."""
    budget: int = 500
    """The most steps that a solve may take: how far the step may shrink."""

    LIMIT: ClassVar[str] = "the budget allows"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(span=self.span)
        if not SHORTEST <= self.span <= LONGEST:
            raise UsageError(
                f"span is a length of time from {SHORTEST:g} to {LONGEST:g}, not {self.span:g}: measure time in other "
                "units"
            )
        check_whole("steps", 1, budget=self.budget)
        if self.budget > MOST:
            raise UsageError(f"budget is a number of steps up to {MOST:g}, not {describe_value(self.budget)}")
        if tableau(self.check).order <= tableau(self.train).order:
            others = ", ".join(higher_orders(self.train)) or "of which there is none: train with another"
            pair = f"'{self.check}' cannot check '{self.train}'"
            raise UsageError(f"{pair}: it needs a method of a higher order ({others})")

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest step."""
        return self.span / self.budget, self.span

    def start(self, precision: float) -> ControllerState:
        """The state before the first review, with this step, or the shortest that the budget allows. One longer than
        the span shows that the span is wrong."""
        check_positive(step=precision)
        if precision > self.span * (1 + SAME_STEP):
            raise UsageError(
                f"a first step of {float(precision):g} is longer than the time of {self.span:g} that steps are adapted"
                " for: give the controller the time that the model is solved for as span=..., or start with a shorter "
                "step"
            )
        shortest, longest = self.bounds
        return ControllerState(precision=min(max(precision, shortest), longest))

    def solver(self, state: ControllerState) -> FixedStep:
        """What to train with."""
        return FixedStep(self.train, step=precision_of(state))

    def check_solver(self, step: float) -> FixedStep:
        """What checks training at this step."""
        return check_solver(self.train, self.check, step, self.span)


@dataclass(frozen=True, kw_only=True)
class StepAdaptation(StepControl, ThresholdControl):
    """The paper's Algorithm 2: halve the step where a better solver scores otherwise; else try one a tenth larger.

    `train` is the method to train with, `check` one of a higher order (midpoint or rk4 for euler, rk4 for midpoint). A
    review is due every `every` iterations. Scores further apart than `threshold` are not the same: the paper's 0.1 for
    accuracies, and for any other score one in its units, which has to be given. `decrease` and `increase` are the
    factors of a step; it stays between `span`, the length of time that the model is solved for, and span / `budget`.

    Begin with `controller.start(step)`, for example with the step of `initial_step`; then see `review`.

    >>> import windermere as wm
    >>> controller = wm.StepAdaptation(train="euler", check="midpoint")
    >>> state = controller.start(1 / 8)
    >>> state = wm.review(controller, state, wm.Score(value=0.9), lambda solver: wm.Score(value=0.9))
    >>> print(controller.solver(state), "-", state.decision.reason)
    euler, h = 0.1375 - scores agree: step increased
    """

    def review(self, state: ControllerState, trained: Score) -> Review[FixedStep]:
        """Yields solvers to be scored on the current batch, is sent their scores, and returns the next state."""
        h, (shortest, longest) = state.precision, self.bounds
        check = self.check_solver(h)
        checked = yield check
        raised = None
        if differ(trained, checked, self.threshold):
            h_new, reason = self.decrease * h, "scores differ: step decreased"
            if h_new < shortest:
                h_new, reason = shortest, f"scores differ: step decreased as far as {self.LIMIT}"
        else:
            h_new, reason = self.increase * h, "scores agree: step increased"
            if h_new > longest:
                h_new, reason = longest, "scores agree: step at its largest"
            raised = yield FixedStep(self.train, step=h_new)
            if differ(checked, raised, self.threshold):
                h_new, reason = h, "scores agree, but not at an increased step: step kept"
        return self.next_state(state, h_new, trained, checked, raised, check.step, reason)


def check_solver(train: str, check: str, step: float, span: float) -> FixedStep:
    """The same step where that makes the error order 50 times smaller, h^(q-p) < 1/50, else (h^p / 50)^(1/q); h in
    units of T, p and q the orders of training and check method."""
    p, q, h = tableau(train).order, tableau(check).order, step / span
    if h ** (q - p) >= 1 / ERROR_RATIO:
        h = (h**p / ERROR_RATIO) ** (1 / q)
    return FixedStep(check, step=h * span)


def higher_orders(method: str) -> list[str]:
    """The methods that can check its steps."""
    return [name for name in METHODS if tableau(name).order > tableau(method).order]
