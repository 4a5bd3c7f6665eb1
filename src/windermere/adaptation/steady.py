"""Steady controllers: precision that settles, instead of swinging between too coarse and finer than needed.

The paper's algorithms compare two accuracies on one batch: a coarse number (one sample of 128 is 0.8 points) with a
jump at its threshold, so they raise the step until training exploits the solver, and fall back. A steady controller
watches how far outputs move between training and check solver (`signals`). That distance grows like C precision^p, with
p the training method's order; the controller learns C, smoothed over reviews, and so knows what distance to expect at
any precision. It refines as soon as that is above its target, just so far that it meets it, and coarsens only where it
is below half of it. Between the two it rests, so noise and slow drift move nothing.
"""

from dataclasses import dataclass
from math import inf, isfinite, pow

from windermere.adaptation.controller import Decision, Review, Score, State, check_positive
from windermere.adaptation.step_size import check_pair, check_solver
from windermere.adaptation.tolerance import CHECK_RATIOS, START
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep
from windermere.solvers.tableaus import tableau

LEAST = 1e-9
"""Distances below this are rounding."""


@dataclass(frozen=True, kw_only=True)
class _Law:
    """What both steady controllers share: the target, the memory and the update."""

    target: float = 0.01
    """The distance allowed: with 0.01, a better solver may move about 1% of the probability mass."""
    release: float = 0.5
    """Precision is relaxed only where the distance is below this share of the target."""
    weight: float = 0.2
    """Of one review in the smoothed distance; the first ones are averaged."""
    every: int = 50
    decrease: float = 0.5
    increase: float = 1.1
    """The most that one review changes."""

    def __post_init__(self) -> None:
        check_positive(target=self.target, release=self.release, weight=self.weight, every=self.every)
        if self.release > 1 or self.weight > 1:
            raise UsageError(f"release and weight are at most 1, not {self.release} and {self.weight}")
        if not 0 < self.decrease < 1 < self.increase:
            raise UsageError(f"need decrease < 1 < increase, not {self.decrease} and {self.increase}")

    def remembered(self, state: State, distance: float, order: float) -> float:
        """The smoothed distance at precision 1: independent of the precisions it was measured at."""
        seen = distance / pow(state.precision, order)
        if state.memory is None:
            return seen
        return state.memory + max(self.weight, 1 / (state.reviews + 1)) * (seen - state.memory)

    def wanted(self, precision: float, expected: float, order: float) -> tuple[float, str]:
        """The nearest precision with a distance between release and target, within the bounds of one review."""
        if expected > self.target:
            allowed, reason = self.target, "distance above its target: refined"
        elif expected < self.release * self.target:
            allowed, reason = self.release * self.target, "distance far below its target: coarsened"
        else:
            return precision, "distance within its target: kept"
        factor = (allowed / max(expected, LEAST)) ** (1 / order)
        return precision * min(max(factor, self.decrease), self.increase), reason

    def decided(
        self, state: State, bounds: tuple[float, float], order: float, trained: Score, checked: Score, check: float
    ) -> State:
        """The next state after a check at precision `check`, with the decision on record."""
        if checked.distance is None:
            raise UsageError(
                "a steady controller needs scores with a distance: how far outputs lie from the training solver's"
            )
        memory, expected = state.memory, inf  # a check that is not finite is not remembered
        if isfinite(checked.distance):
            memory = self.remembered(state, checked.distance, order)
            expected = memory * pow(state.precision, order)
        wanted, reason = self.wanted(state.precision, expected, order)
        after = min(max(wanted, bounds[0]), bounds[1])
        decision = Decision(
            iteration=self.every * (state.reviews + 1),
            before=state.precision,
            after=after,
            trained=trained.value,
            checked=checked.value,
            raised=None,
            check_precision=check,
            reason=reason,
            signal=expected if isfinite(expected) else None,
        )
        return State(precision=after, reviews=state.reviews + 1, memory=memory, decision=decision)


@dataclass(frozen=True, kw_only=True)
class SteadySteps(_Law):
    """Steps that settle where a better solver moves the outputs by no more than the target.

    Start it from `windermere.initial_step(field, z0, order=...)`.
    """

    train: str
    check: str
    span: float = 1.0
    """T, the length of time that is solved for: the largest step."""
    budget: int = 500
    """The most steps that a solve may take: how far the step may shrink."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(span=self.span, budget=self.budget)
        check_pair(self.train, self.check)

    @property
    def bounds(self) -> tuple[float, float]:
        return self.span / self.budget, self.span

    def start(self, precision: float) -> State:
        check_positive(step=precision)
        return State(precision=min(max(precision, self.bounds[0]), self.bounds[1]))

    def solver(self, state: State) -> FixedStep:
        return FixedStep(self.train, step=state.precision)

    def review(self, state: State, trained: Score) -> Review:
        check = check_solver(self.train, self.check, state.precision, self.span)
        checked = yield check
        return self.decided(state, self.bounds, tableau(self.train).order, trained, checked, check.step)


@dataclass(frozen=True, kw_only=True)
class SteadyTolerances(_Law):
    """Tolerances that settle likewise; the distance is taken to grow with the tolerance itself."""

    train: str
    check: str = "dopri54"
    check_ratio: float | None = None
    """The check's tolerance over the training one; None takes the paper's for the pair."""
    increase: float = 2.0
    """Tolerances start low and have decades to go."""
    floor: float = 1e-7
    ceiling: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(floor=self.floor, ceiling=self.ceiling)
        if self.check_ratio is None and (self.train, self.check) not in CHECK_RATIOS:
            raise UsageError(f"give check_ratio for '{self.train}' checked by '{self.check}': the paper has none")

    def start(self, precision: float = START) -> State:
        check_positive(tolerance=precision)
        return State(precision=min(max(precision, self.floor), self.ceiling))

    def solver(self, state: State) -> Adaptive:
        return Adaptive(self.train, tolerance=state.precision)

    def review(self, state: State, trained: Score) -> Review:
        ratio = CHECK_RATIOS[self.train, self.check] if self.check_ratio is None else self.check_ratio
        check = Adaptive(self.check, tolerance=ratio * state.precision)
        checked = yield check
        return self.decided(state, (self.floor, self.ceiling), 1, trained, checked, check.precision)
