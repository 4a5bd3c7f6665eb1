"""A controller adapts a solver's precision during training. It is a pure state machine: state in, state out.

It knows no model, no optimizer and no framework. Its `review` is a generator that *asks* for the solvers it wants
scored and is *told* their scores, so that its body reads like the paper's listing. `review` answers it for one model,
`review_members` for an ensemble, whose members' reviews go in lockstep.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from math import inf, isclose, isfinite
from typing import Any, ClassVar, Protocol, TypeAlias

from typing_extensions import TypeVar

from windermere.adaptation.score import Score, as_score
from windermere.checks import as_number, is_whole
from windermere.errors import UsageError, describe_value
from windermere.solvers import Solver
from windermere.solvers.counting import noting_spans
from windermere.solvers.solver import SAME_STEP


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a review decided, and why."""

    iteration: int
    before: float
    """The precision (step or tolerance) that was reviewed."""
    after: float
    trained: float
    """The training solver's score."""
    checked: float
    """The check solver's score."""
    raised: float | None
    """The training solver's score at the raised precision, where that was looked at."""
    check_precision: float
    reason: str
    signal: float | None = None
    """The smoothed distance between training and check solver at the precision reviewed, for steady controllers."""


@dataclass(frozen=True, kw_only=True)
class ControllerState:
    """Where a controller is: all that has to be saved."""

    precision: float
    reviews: int = 0
    memory: float | None = None
    """What a steady controller remembers: the smoothed distance, carried over to precision 1."""
    decision: Decision | None = None
    """The last one."""

    def __post_init__(self) -> None:
        check_positive(precision=self.precision)
        check_whole("reviews", 0, reviews=self.reviews)
        if self.memory is not None and not isfinite(as_number(self.memory)):
            raise UsageError(f"memory must be None or a finite number, not {describe_value(self.memory)}")
        object.__setattr__(self, "precision", float(self.precision))  # a tensor could not be saved as JSON

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ControllerState":
        """The state that `to_dict` wrote."""
        try:
            decision = values.get("decision")
            return cls(**{**values, "decision": None if decision is None else Decision(**decision)})
        except (TypeError, AttributeError) as error:
            raise UsageError(f"this is no state that to_dict() wrote ({error}): {describe_value(values)}") from error


Asked = TypeVar("Asked", bound=Solver, covariant=True, default=Solver)
"""The kind of solver that a controller adapts and asks for."""
Review: TypeAlias = Generator[Asked, Score, ControllerState]
"""Yields solvers to be scored on the batch, is sent their scores, and returns the next state."""


Kind = TypeVar("Kind", bound=Solver)


class Controller(Protocol[Asked]):
    """What adapts a precision."""

    @property
    def every(self) -> int:
        """Iterations between reviews; the first one is after so many."""
        ...

    def start(self, precision: float) -> ControllerState: ...

    def solver(self, state: ControllerState) -> Asked:
        """What to train with."""
        ...

    def review(self, state: ControllerState, trained: Score) -> Review[Asked]:
        """Look at the current batch, whose training score comes free from the forward pass."""
        ...


@dataclass(frozen=True, kw_only=True)
class PrecisionControl:
    """What all controllers here share: a pair of methods, and how often and how far a review may change precision."""

    train: str
    """The method to train with."""
    check: str
    """The method to check with."""
    every: int = 50
    """Iterations between reviews."""
    decrease: float = 0.5
    increase: float = 1.1
    """A review multiplies the precision by these (a steady controller: by at least and at most so much)."""

    LIMIT: ClassVar[str]
    """What keeps the precision from becoming finer, in the words of a decision."""

    def __post_init__(self) -> None:
        check_whole("iterations", 1, every=self.every)
        if not 0 < as_number(self.decrease) < 1 < as_number(self.increase) < inf:
            raise UsageError(f"need decrease < 1 < increase, not {self.decrease} and {self.increase}")

    @property
    def bounds(self) -> tuple[float, float]:
        """The finest and the coarsest precision."""
        raise NotImplementedError

    def next_state(
        self,
        state: ControllerState,
        after: float,
        trained: Score,
        checked: Score,
        raised: Score | None,
        check_precision: float,
        reason: str,
        *,
        memory: float | None = None,
        signal: float | None = None,
    ) -> ControllerState:
        """The next state, with the decision that led to it on record."""
        decision = Decision(
            iteration=self.every * (state.reviews + 1),
            before=state.precision,
            after=after,
            trained=trained.value,
            checked=checked.value,
            raised=None if raised is None else raised.value,
            check_precision=check_precision,
            reason=reason,
            signal=signal,
        )
        return ControllerState(precision=after, reviews=state.reviews + 1, memory=memory, decision=decision)


def review(
    controller: Controller[Kind], state: ControllerState, trained: Score, score: Callable[[Kind], Score]
) -> ControllerState:
    """Let a controller review its precision on the current batch; returns its next state.

    `trained` is the training solver's `Score`, known from the forward pass. `score(solver)` runs the batch with the
    solver that it is given, and returns its `Score`. What is solved there by windermere must take the time that the
    controller adapts steps for, its `span`. Afterwards `controller.solver(state)` is what to train with, and
    `state.decision` says what was decided and why.

    >>> import windermere as wm
    >>> controller = wm.StepAdaptation(train="euler", check="midpoint")
    >>> state = controller.start(1 / 8)
    >>> state = wm.review(controller, state, wm.Score(value=0.9), lambda solver: wm.Score(value=0.7))
    >>> print(controller.solver(state), "-", state.decision.reason)
    euler, h = 1/16 - scores differ: step decreased
    """

    check_controller(controller)
    precision_of(state)
    if not callable(score):
        raise UsageError(f"score is a function of a solver that returns its Score, not {describe_value(score)}")

    def told(wanted: dict[int, Kind]) -> dict[int, Score]:
        with noting_spans() as spans:
            found = as_score("score(solver) returns", score(wanted[0]))
        _check_span(controller, spans.get(wanted[0]))
        return {0: found}

    (after,) = review_members(controller, [state], [as_score("trained is", trained)], told)
    return after


def precision_of(state: Any) -> float:
    if not isinstance(state, ControllerState):
        raise UsageError(
            f"a controller's state is what its start(...) or the last review gave, not {describe_value(state)}"
        )
    return state.precision


def check_controller(controller: Any) -> None:
    if isinstance(controller, type) or not hasattr(controller, "review"):
        raise UsageError(
            f"a controller is a StepAdaptation(...), a SteadySteps(...) or alike, not {describe_value(controller)}"
        )


def _check_span(controller: Controller, seen: float | None) -> None:
    """Refuse steps that are adapted for another length of time than a solve was seen to take."""
    span = getattr(controller, "span", None)  # controllers of tolerances have none
    if seen is not None and span is not None and not isclose(seen, span, rel_tol=SAME_STEP):
        raise UsageError(
            f"the model is solved for a time of {seen:g}, but {type(controller).__name__} adapts steps for {span:g}: "
            f"give it span={seen:g}"
        )


def review_members(
    controller: Controller,
    states: Sequence[ControllerState],
    trained: Sequence[Score],
    score: Callable[[dict[int, Any]], dict[int, Score]],
) -> list[ControllerState]:
    """One review for every member; each round of requests, by member, is answered in one go."""
    asking = {s: controller.review(state, own) for s, (state, own) in enumerate(zip(states, trained, strict=True))}
    told: dict[int, Any] = dict.fromkeys(asking)  # what a generator is sent first
    after = dict(enumerate(states))
    while told:
        wanted = dict[int, Solver]()
        for s, answer in told.items():
            try:
                wanted[s] = asking[s].send(answer)
            except StopIteration as done:
                after[s] = done.value
        told = score(wanted) if wanted else {}
    return [after[s] for s in range(len(states))]


def check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < as_number(value) < inf:
            raise UsageError(f"{name} must be positive and finite, not {describe_value(value)}")


def check_whole(what: str, least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if not is_whole(number, least=least):
            raise UsageError(f"{name} must be a whole number of {what}, at least {least}, not {number}")
