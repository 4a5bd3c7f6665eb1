"""Steady controllers: precision that settles, instead of swinging between too coarse and finer than needed.

The paper's algorithms compare two accuracies on one batch: a coarse number (one sample of 128 is 0.8 points) with a
jump at its threshold, so they probe upwards until training exploits the solver, and fall back. A steady controller
watches how far outputs move between training and check solver, in classification the share of probability mass that
changes class (mean total variation). That distance grows like C precision^p, with p the training method's order; the
controller learns C, smoothed over reviews, and asks for the precision at which the distance meets its target. Inside a
deadband it rests.
"""

from dataclasses import dataclass
from math import exp, log

from windermere.adaptation.controller import Decision, Review, Score, State, check_positive
from windermere.adaptation.step_size import check_pair, check_solver
from windermere.adaptation.tolerance import CHECK_RATIOS, START
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep
from windermere.solvers.tableaus import tableau

LEAST = 1e-5
"""Distances below this are rounding, not a reason to raise precision without end."""


@dataclass(frozen=True, kw_only=True)
class _Law:
    """What both steady controllers share: the target, the memory and the update."""

    target: float = 0.02
    """The distance aimed for: with 0.02, at most about 2% of probability mass may move under a better solver."""
    every: int = 50
    rising: float = 0.5
    """Weight of a review whose distance is above what memory expects: danger is believed quickly ..."""
    falling: float = 0.1
    """... and weight of one below: relief slowly."""
    deadband: float = 1.15
    """Precision stays where the wanted one lies within this factor."""
    decrease: float = 0.5
    increase: float = 1.1
    """The most that one review changes."""

    def remembered(self, state: State, distance: float, order: float) -> float:
        """The smoothed logarithm of the distance at precision 1: independent of the precision it was measured at."""
        seen = log(max(distance, LEAST)) - order * log(state.precision)
        if state.memory is None:
            return seen
        return state.memory + (self.rising if seen > state.memory else self.falling) * (seen - state.memory)

    def wanted(self, precision: float, memory: float, order: float) -> tuple[float, str]:
        """The precision that would meet the target, within the bounds of one review."""
        factor = exp((log(self.target) - memory) / order) / precision
        if 1 / self.deadband <= factor <= self.deadband:
            return precision, "distance near its target: kept"
        bounded = min(max(factor, self.decrease), self.increase)
        return precision * bounded, f"distance {'above' if factor < 1 else 'below'} its target: adapted"


def _settled(
    law: _Law,
    state: State,
    after: float,
    memory: float,
    order: float,
    scores: tuple[Score, Score],
    check_precision: float,
    reason: str,
) -> State:
    """The next state, with the decision on record; scores are the training and the check solver's."""
    decision = Decision(
        iteration=law.every * (state.reviews + 1),
        before=state.precision,
        after=after,
        trained=scores[0].value,
        checked=scores[1].value,
        raised=None,
        check_precision=check_precision,
        reason=reason,
        signal=exp(memory + order * log(state.precision)),
    )
    return State(precision=after, reviews=state.reviews + 1, memory=memory, decision=decision)


def _distance(score: Score) -> float:
    if score.distance is None:
        raise UsageError(
            "a steady controller needs scores with a distance: how far outputs lie from the training solver's"
        )
    return score.distance


@dataclass(frozen=True, kw_only=True)
class SteadySteps(_Law):
    """Steps that settle where a better solver moves the outputs by no more than the target."""

    train: str
    check: str
    span: float = 1.0
    budget: int = 500

    def __post_init__(self) -> None:
        check_positive(target=self.target, every=self.every, span=self.span, budget=self.budget)
        check_pair(self.train, self.check)

    def start(self, precision: float) -> State:
        check_positive(step=precision)
        return State(precision=min(max(precision, self.span / self.budget), self.span))

    def solver(self, state: State) -> FixedStep:
        return FixedStep(self.train, step=state.precision)

    def review(self, state: State, trained: Score) -> Review:
        order = float(tableau(self.train).order)
        check = check_solver(self.train, self.check, state.precision, self.span)
        checked = yield check
        memory = self.remembered(state, _distance(checked), order)
        step, why = self.wanted(state.precision, memory, order)
        step = min(max(step, self.span / self.budget), self.span)
        return _settled(self, state, step, memory, order, (trained, checked), check.step, why)


@dataclass(frozen=True, kw_only=True)
class SteadyTolerances(_Law):
    """Tolerances that settle likewise; the distance is taken to grow with the tolerance itself."""

    train: str
    check: str = "dopri54"
    check_ratio: float | None = None
    floor: float = 1e-7
    ceiling: float = 1.0

    def __post_init__(self) -> None:
        check_positive(target=self.target, every=self.every, floor=self.floor)
        if self.check_ratio is None and (self.train, self.check) not in CHECK_RATIOS:
            raise UsageError(f"give check_ratio for '{self.train}' checked by '{self.check}': the paper has none")

    def start(self, precision: float = START) -> State:
        check_positive(tolerance=precision)
        return State(precision=min(max(precision, self.floor), self.ceiling))

    def solver(self, state: State) -> Adaptive:
        return Adaptive(self.train, tolerance=state.precision)

    def review(self, state: State, trained: Score) -> Review:
        ratio = CHECK_RATIOS[self.train, self.check] if self.check_ratio is None else self.check_ratio
        checked = yield Adaptive(self.check, tolerance=ratio * state.precision)
        memory = self.remembered(state, _distance(checked), 1.0)
        tolerance, why = self.wanted(state.precision, memory, 1.0)
        tolerance = min(max(tolerance, self.floor), self.ceiling)
        return _settled(self, state, tolerance, memory, 1.0, (trained, checked), ratio * state.precision, why)
