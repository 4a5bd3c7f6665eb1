"""Algorithm 2 of the paper: the step adaptation. `StepAdaptation.review` is its listing, line by line.

Against the listing: its `h = h_new` stands in the else-branch, and is meant for both. A budget bounds how far the step
shrinks (the authors' was 500 steps). test_solver(h) is `check_solver`, as the text above it has it.
"""

from dataclasses import dataclass

from windermere.adaptation.agreement import check_threshold, differ
from windermere.adaptation.controller import (
    ControllerState,
    Review,
    Score,
    check_factors,
    check_positive,
    check_whole,
    first_step,
    next_state,
    precision_of,
)
from windermere.errors import UsageError
from windermere.solvers import METHODS, FixedStep
from windermere.solvers.tableaus import tableau

ERROR_RATIO = 50.0
"""The check solver's error order must be so many times smaller than the training solver's."""


@dataclass(frozen=True, kw_only=True)
class StepAdaptation:
    """The paper's Algorithm 2: halve the step where a better solver scores otherwise; else try one a tenth larger.

    `train` is the method to train with, `check` one of a higher order (midpoint or rk4 for euler, rk4 for midpoint). A
    review is due every `every` iterations. Scores further apart than `threshold` are not the same: the paper's 0.1 for
    accuracies, and for any other score one in its units, which has to be given. `decrease` and `increase` are the
    factors of a step; it stays between `span`, the length of time that the model is solved for, and span / `budget`.

    Begin with `controller.start(step)`, for example with the step of `initial_step`; then see `review`.
    """

    train: str
    """Method to train with."""
    check: str
    """Method to check with, of a higher order: midpoint or rk4 for euler, rk4 for midpoint."""
    every: int = 50
    threshold: float | None = None
    """Scores further apart than this are not the same. None takes the paper's 0.1, and refuses scores that cannot be
    accuracies."""
    decrease: float = 0.5
    increase: float = 1.1
    span: float = 1.0
    """T, the length of time that is solved for: the largest step."""
    budget: int = 500
    """The most steps that a solve may take: how far the step may shrink."""

    def __post_init__(self) -> None:
        check_whole("iterations", 1, every=self.every)
        check_threshold(self.threshold)
        check_positive(span=self.span)
        check_whole("steps", 1, budget=self.budget)
        check_factors(self.decrease, self.increase)
        check_pair(self.train, self.check)

    def start(self, precision: float) -> ControllerState:
        """The state before the first review, with this step, or the shortest that the budget allows."""
        return ControllerState(precision=first_step(precision, self.span, self.budget))

    def solver(self, state: ControllerState) -> FixedStep:
        """What to train with."""
        return FixedStep(self.train, step=precision_of(state))

    def check_solver(self, step: float) -> FixedStep:
        """What checks training at this step."""
        return check_solver(self.train, self.check, step, self.span)

    def review(self, state: ControllerState, trained: Score) -> Review:
        """Yields solvers to be scored on the current batch, is sent their scores, and returns the next state."""
        h = state.precision
        check = self.check_solver(h)
        checked = yield check
        raised = None
        if differ(trained, checked, self.threshold):
            h_new, reason = self.decrease * h, "scores differ: step decreased"
            if h_new < self.span / self.budget:
                h_new, reason = self.span / self.budget, "scores differ: step decreased as far as the budget allows"
        else:
            h_new, reason = self.increase * h, "scores agree: step increased"
            if h_new > self.span:
                h_new, reason = self.span, "scores agree: step at its largest"
            raised = yield FixedStep(self.train, step=h_new)
            if differ(checked, raised, self.threshold):
                h_new, reason = h, "scores agree, but not at an increased step: step kept"
        return next_state(self.every, state, h_new, trained, checked, raised, check.step, reason)


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


def check_pair(train: str, check: str) -> None:
    if tableau(check).order <= tableau(train).order:
        others = ", ".join(higher_orders(train)) or "of which there is none: train with another"
        raise UsageError(f"'{check}' cannot check '{train}': it needs a method of a higher order ({others})")
