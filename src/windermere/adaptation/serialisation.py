"""Controllers as plain values and back, as solvers are: for configs and checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from windermere.adaptation.steady import SteadySteps, SteadyTolerances
from windermere.adaptation.step_size import StepAdaptation
from windermere.adaptation.tolerance import ToleranceAdaptation
from windermere.errors import UnknownNameError, UsageError

OwnController: TypeAlias = StepAdaptation | ToleranceAdaptation | SteadySteps | SteadyTolerances
"""Windermere's own controllers, which are frozen values. (A `Controller` may be anyone's.)"""

KINDS: Mapping[str, type[OwnController]] = {
    kind.__name__: kind for kind in (StepAdaptation, ToleranceAdaptation, SteadySteps, SteadyTolerances)
}


def controller_to_dict(controller: OwnController) -> dict[str, Any]:
    """A controller as plain values for JSON."""
    return {"kind": type(controller).__name__, **asdict(controller)}


def controller_from_dict(values: Mapping[str, Any]) -> OwnController:
    """The controller that `controller_to_dict` wrote."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnknownNameError("kind of controller", str(kind), KINDS)
    try:
        return KINDS[kind](**fields)
    except TypeError as error:
        raise UsageError(f"these values do not make a {kind}: {dict(values)} ({error})") from error
