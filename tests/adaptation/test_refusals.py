"""What is no controller, no state of one and no number for one is refused."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from tests.adaptation.algorithms import EULER, FEHLBERG
from windermere.adaptation import (
    ControllerState,
    Score,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
    review,
)
from windermere.errors import UsageError


@pytest.mark.parametrize(
    "change",
    [
        *({"precision": wrong} for wrong in (None, "fine", -0.1, float("nan"), [0.1])),
        *({"reviews": wrong} for wrong in (None, -1, "3", 2.5)),
        *({"memory": wrong} for wrong in ("some", float("inf"), [0.1])),
        *({"decision": wrong} for wrong in (3, {"iteration": 50})),
        {"another": 1},
    ],
    ids=str,
)
def test_a_saved_state_that_was_damaged_is_refused(change: dict[str, Any]) -> None:
    saved = EULER.start(0.01).to_dict()
    with pytest.raises(UsageError, match=next(iter(change))):
        ControllerState.from_dict(saved | change)


@pytest.mark.parametrize("saved", [None, {}, "0.1", [0.1]])
def test_what_is_no_saved_state_is_refused(saved: Any) -> None:
    with pytest.raises(UsageError, match=r"this is no state that to_dict\(\) wrote"):
        ControllerState.from_dict(saved)


@pytest.mark.parametrize("state", [0.01, None, EULER.start(0.01).to_dict()], ids=["step", "None", "dict"])
@pytest.mark.parametrize(
    "controller",
    [EULER, FEHLBERG, SteadySteps(train="euler", check="midpoint"), SteadyTolerances(train="dopri54")],
    ids=lambda controller: type(controller).__name__,
)
def test_what_is_no_state_of_a_controller_is_refused(controller: Any, state: Any) -> None:
    with pytest.raises(UsageError, match="a controller's state is what its start"):
        controller.solver(state)
    with pytest.raises(UsageError, match="a controller's state is what its start"):
        review(controller, state, Score(value=1.0), lambda solver: Score(value=1.0))


def test_a_review_needs_a_controller_and_a_function_that_scores() -> None:
    controller: Any
    for controller in (StepAdaptation, "paper", None):
        with pytest.raises(UsageError, match=r"a controller is a StepAdaptation\(...\).* or alike, not"):
            review(controller, EULER.start(0.01), Score(value=1.0), lambda solver: Score(value=1.0))
    with pytest.raises(UsageError, match="score is a function of a solver"):
        review(EULER, EULER.start(0.01), Score(value=1.0), Score(value=1.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepAdaptation(train=["euler"], check="midpoint"),  # type: ignore[arg-type]
        lambda: ToleranceAdaptation(train=["dopri54"]),  # type: ignore[arg-type]
        lambda: SteadyTolerances(train="dopri54", check={}),  # type: ignore[arg-type]
        lambda: StepAdaptation(train="euler", check="euler"),
        lambda: StepAdaptation(train="rk4", check="midpoint"),
        lambda: StepAdaptation(train="euler", check="midpoint", threshold=0),
        lambda: StepAdaptation(train="euler", check="midpoint", threshold="0.1"),  # type: ignore[arg-type]
        lambda: ToleranceAdaptation(train="dopri54", threshold=torch.ones(2)),  # type: ignore[arg-type]
        lambda: StepAdaptation(train="euler", check="midpoint", decrease=1.2),
        lambda: StepAdaptation(train="euler", check="midpoint", budget=0.5),  # type: ignore[arg-type]
        lambda: StepAdaptation(train="euler", check="midpoint", span=0),
        lambda: EULER.start(-1.0),
        lambda: ToleranceAdaptation(train="dopri54", min_steps=-1),
        lambda: ToleranceAdaptation(train="dopri54", min_steps=2.5),  # type: ignore[arg-type]
        lambda: ToleranceAdaptation(train="bosh32"),
        lambda: ToleranceAdaptation(train="euler", check_ratio=0.1),
        lambda: ToleranceAdaptation(train="dopri54", check_ratio=2.0),
    ],
)
def test_what_makes_no_sense_is_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("wrong", [None, "0.1", torch.ones(2)])
@pytest.mark.parametrize(
    "controller",
    [EULER, FEHLBERG, SteadySteps(train="euler", check="midpoint"), SteadyTolerances(train="dopri54")],
    ids=lambda controller: type(controller).__name__,
)
def test_what_is_no_number_is_refused_for_each_of_a_controllers_numbers(controller: Any, wrong: Any) -> None:
    numbers = [f.name for f in fields(controller) if type(getattr(controller, f.name)) in (int, float)]
    assert {"every", "decrease", "increase"} < set(numbers)
    for name in numbers:
        with pytest.raises(UsageError):
            replace(controller, **{name: wrong})
    with pytest.raises(UsageError):
        controller.start(wrong)
