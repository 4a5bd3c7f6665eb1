"""Controllers as plain values: the same after a trip through JSON, and nothing unknown is taken."""

import json
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from windermere.adaptation import (
    OwnController,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
    controller_from_dict,
    controller_to_dict,
)
from windermere.errors import UnknownNameError, UsageError

CONTROLLERS: list[OwnController] = [
    StepAdaptation(train="euler", check="midpoint"),
    StepAdaptation(train="midpoint", check="rk4", every=7, threshold=0.1 + 0.2, decrease=0.4, span=3.0, budget=9),
    ToleranceAdaptation(train="dopri54"),
    ToleranceAdaptation(train="bosh32", check="tsit54", check_ratio=0.3, min_steps=0, tighten=True, floor=1e-9),
    SteadySteps(train="euler", check="rk4"),
    SteadySteps(train="heun", check="rk4", target=0.02, release=0.25, weight=1.0, increase=3.0),
    SteadyTolerances(train="fehlberg21"),
    SteadyTolerances(train="dopri54", ceiling=0.5, increase=1.5),
]


@pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
def test_a_controller_is_the_same_after_a_trip_through_json(controller: OwnController) -> None:
    again = controller_from_dict(json.loads(json.dumps(controller_to_dict(controller))))
    assert again == controller
    assert type(again) is type(controller)


@pytest.mark.parametrize("controller", CONTROLLERS[::2], ids=repr)
def test_every_field_is_written_and_none_can_be_set(controller: OwnController) -> None:
    assert set(controller_to_dict(controller)) == {"kind", *(field.name for field in fields(controller))}
    with pytest.raises(FrozenInstanceError):
        controller.every = 3  # type: ignore[misc]


@pytest.mark.parametrize("controller", CONTROLLERS[::2], ids=repr)
def test_an_unknown_field_is_refused_and_named(controller: OwnController) -> None:
    values = {**controller_to_dict(controller), "momentum": 0.9}
    with pytest.raises(UsageError, match=f"do not make a {type(controller).__name__}.*'momentum'"):
        controller_from_dict(values)


@pytest.mark.parametrize("kind", ["StepAdaptatoin", None, 3])
def test_an_unknown_kind_is_refused(kind: Any) -> None:
    with pytest.raises(UnknownNameError, match=f"there is no kind of controller '{kind}'.*known are .*StepAdaptation"):
        controller_from_dict({**controller_to_dict(CONTROLLERS[0]), "kind": kind})


@pytest.mark.parametrize("change", [{"check": "euler"}, {"every": 0}, {"train": None}, {"decrease": "half"}], ids=str)
def test_what_no_controller_can_be_made_of_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        controller_from_dict({**controller_to_dict(CONTROLLERS[0]), **change})


def test_a_missing_method_is_named() -> None:
    with pytest.raises(UsageError, match=r"do not make a SteadySteps.*'train'"):
        controller_from_dict({"kind": "SteadySteps", "check": "rk4"})
