"""Algorithm 3 of the paper: the tolerance adaptation."""

from dataclasses import dataclass

from windermere.adaptation.controller import Review, Score, State, check_positive
from windermere.adaptation.step_size import decided
from windermere.errors import UsageError
from windermere.solvers import Adaptive

START = 1e-6
"""The paper's first tolerance."""
CHECK_RATIOS = {("fehlberg21", "dopri54"): 1 / 5, ("dopri54", "dopri54"): 1 / 10}
"""The check's tolerance as a share of the training solver's, for the paper's pairs."""


@dataclass(frozen=True, kw_only=True)
class ToleranceAdaptation:
    """Halve the tolerance where a more precise solve scores otherwise; else try one a tenth larger, and look again.

    A check may ask for a tolerance below what float32 resolves: score it in float64 then.
    """

    train: str
    check: str = "dopri54"
    every: int = 50
    threshold: float = 0.1
    decrease: float = 0.5
    increase: float = 1.1
    min_steps: int = 2
    """The tolerance is not raised where a solve takes no more steps than this."""
    floor: float = 1e-7
    """The training tolerance does not go below: float32 resolves no less."""
    check_ratio: float | None = None
    """The check's tolerance over the training one; None takes the paper's for the pair."""
    tighten: bool = False
    """Not in the paper: check ten times finer for as long as checking takes no more evaluations than training."""

    def __post_init__(self) -> None:
        check_positive(every=self.every, threshold=self.threshold, floor=self.floor)
        if self.check_ratio is None and (self.train, self.check) not in CHECK_RATIOS:
            raise UsageError(
                f"the paper has no check tolerance for '{self.train}' and '{self.check}': give a check_ratio below 1"
            )
        if not 0 < self.ratio < 1:
            raise UsageError(
                f"a check needs a smaller tolerance: check_ratio must lie between 0 and 1, not {self.ratio}"
            )
        Adaptive(self.train, tolerance=START)
        Adaptive(self.check, tolerance=START)

    @property
    def ratio(self) -> float:
        return CHECK_RATIOS[self.train, self.check] if self.check_ratio is None else self.check_ratio

    def start(self, precision: float = START) -> State:
        check_positive(tolerance=precision)
        return State(precision=max(precision, self.floor))

    def solver(self, state: State) -> Adaptive:
        return Adaptive(self.train, tolerance=state.precision)

    def review(self, state: State, trained: Score) -> Review:
        tol = state.precision
        check_tol = self.ratio * tol
        checked = yield Adaptive(self.check, tolerance=check_tol)
        while self.tighten and 0 < checked.evaluations <= trained.evaluations:
            check_tol /= 10
            checked = yield Adaptive(self.check, tolerance=check_tol)
        raised = None
        if abs(trained.value - checked.value) > self.threshold:
            tol_new, reason = self.decrease * tol, "scores differ: tolerance decreased"
            if tol_new < self.floor:
                tol_new, reason = self.floor, "scores differ: tolerance decreased as far as its floor"
        elif trained.steps <= self.min_steps:
            tol_new, reason = tol, "scores agree, in hardly any steps: tolerance kept"
        else:
            tol_new, reason = self.increase * tol, "scores agree: tolerance increased"
            raised = yield Adaptive(self.train, tolerance=tol_new)
            if abs(checked.value - raised.value) > self.threshold:
                tol_new, reason = tol, "scores agree, but not at an increased tolerance: tolerance kept"
        return decided(self.every, state, tol_new, trained, checked, raised, check_tol, reason)
