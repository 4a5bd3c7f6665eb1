"""Algorithm 3 of the paper: the tolerance adaptation. `ToleranceAdaptation.review` is its listing, line by line.

Against the listing: the training tolerance has a floor, which float32 resolves. test_solver(tol) has the tolerances of
`CHECK_RATIOS`, as the text above it has them.
"""

from dataclasses import dataclass
from math import inf
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
from windermere.checks import as_number
from windermere.errors import UsageError
from windermere.solvers import Adaptive

START = 1e-6
"""The paper's first tolerance."""
FINEST = 1e-13
"""The finest tolerance of a check: float64 resolves no smaller one."""
CHECK_RATIOS = {("fehlberg21", "dopri54"): 1 / 5, ("dopri54", "dopri54"): 1 / 10}
"""The check's tolerance as a share of the training solver's, for the paper's pairs."""
FLOOR = 2.5e-7
"""The least tolerance to train with: float32 resolves about twice its rounding, 1.2e-7."""


@dataclass(frozen=True, kw_only=True)
class ToleranceControl(PrecisionControl):
    """What all controllers of tolerances share."""

    check: str = "dopri54"
    check_ratio: float | None = None
    """The check's tolerance over the training one; None takes the paper's for the pair."""
    floor: float = FLOOR
    """The training tolerance does not go below."""

    LIMIT: ClassVar[str] = "its floor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(floor=self.floor)
        for method in (self.train, self.check):
            Adaptive(method, tolerance=START)
        if not 0 < as_number(self.ratio) < 1:
            raise UsageError(
                f"a check needs a smaller tolerance: check_ratio must lie between 0 and 1, not {self.ratio}"
            )

    @property
    def ratio(self) -> float:
        """The check's tolerance over the training one: that which was given, or the paper's for the pair."""
        ratio = CHECK_RATIOS.get((self.train, self.check)) if self.check_ratio is None else self.check_ratio
        if ratio is None:
            pair = f"'{self.train}' and '{self.check}'"
            raise UsageError(f"the paper has no check tolerance for {pair}: give a check_ratio below 1")
        return ratio

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest tolerance."""
        return self.floor, inf

    def start(self, precision: float = START) -> ControllerState:
        """The state before the first review, with this tolerance as far as it is allowed."""
        check_positive(tolerance=precision)
        smallest, largest = self.bounds
        return ControllerState(precision=min(max(precision, smallest), largest))

    def solver(self, state: ControllerState) -> Adaptive:
        """What to train with."""
        return Adaptive(self.train, tolerance=precision_of(state))


@dataclass(frozen=True, kw_only=True)
class ToleranceAdaptation(ToleranceControl, ThresholdControl):
    """The paper's Algorithm 3: halve the tolerance where a finer solve scores otherwise; else try one a tenth larger.

    `train` is fehlberg21 or dopri54, or another adaptive method with a `check_ratio`: the check's tolerance over the
    training one. `every`, `threshold`, `decrease` and `increase` are as for `StepAdaptation`. The tolerance is not
    raised where the training solve takes `min_steps` or fewer, and does not go below `floor`. `tighten` checks ten
    times finer for as long as a check takes no more evaluations than training.

    Begin with `controller.start()`, at 1e-6; then see `review`. A check may ask for a tolerance below what float32
    resolves: score it in float64 then.

    >>> import windermere as wm
    >>> controller = wm.ToleranceAdaptation(train="fehlberg21")
    >>> own = wm.Score(value=0.9, steps=9)
    >>> state = wm.review(controller, controller.start(), own, lambda solver: wm.Score(value=0.7))
    >>> print(controller.solver(state), "-", state.decision.reason)
    fehlberg21, tol = 5e-07 - scores differ: tolerance decreased
    """

    min_steps: int = 2
    """The tolerance is not raised where a solve (of several the longest) takes no more steps than this; 0 raises it
    whatever steps there are, and needs no count of them."""
    tighten: bool = False
    """Not in the paper: check ten times finer for as long as checking takes no more evaluations than training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("steps", 0, min_steps=self.min_steps)

    def review(self, state: ControllerState, trained: Score) -> Review[Adaptive]:
        """Yields solvers to be scored on the current batch, is sent their scores, and returns the next state."""
        if trained.steps is None and self.min_steps:
            raise UsageError(
                "Algorithm 3 raises a tolerance only where the training solve takes more than "
                f"{self.min_steps} steps: give Score(value=..., steps=...), or min_steps=0 to raise it in any case"
            )
        tol = state.precision
        check_tol = self.ratio * tol
        checked = yield Adaptive(self.check, tolerance=check_tol)
        while self.tighten and check_tol / 10 >= FINEST and 0 < checked.evaluations <= trained.evaluations:
            check_tol /= 10
            checked = yield Adaptive(self.check, tolerance=check_tol)
        raised = None
        if differ(trained, checked, self.threshold):
            tol_new, reason = self.decrease * tol, "scores differ: tolerance decreased"
            if tol_new < self.floor:
                tol_new, reason = self.floor, f"scores differ: tolerance decreased as far as {self.LIMIT}"
        elif trained.steps is not None and trained.steps <= self.min_steps:
            tol_new, reason = tol, "scores agree, in hardly any steps: tolerance kept"
        else:
            tol_new, reason = self.increase * tol, "scores agree: tolerance increased"
            raised = yield Adaptive(self.train, tolerance=tol_new)
            if differ(checked, raised, self.threshold):
                tol_new, reason = tol, "scores agree, but not at an increased tolerance: tolerance kept"
        return self.next_state(state, tol_new, trained, checked, raised, check_tol, reason)
