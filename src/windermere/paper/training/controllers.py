"""Which controller adapts a run: the paper's algorithm or a steady one, for steps or tolerances."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from windermere.adaptation import (
    OwnController,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
)
from windermere.adaptation.agreement import PAPERS_THRESHOLD
from windermere.adaptation.step_size import higher_orders
from windermere.adaptation.tolerance import CHECK_RATIOS
from windermere.errors import UsageError
from windermere.solvers import Adaptive, Solver

Adaptation: TypeAlias = Literal["paper", "steady"]
CHECKS = {"euler": "midpoint", "midpoint": "rk4"}
"""The paper's check methods for adapted steps."""
ADAPTABLE = (
    "adapt the steps of euler or midpoint, those of another method with a check=... of a higher order, or the "
    "tolerance of fehlberg21 or dopri54"
)


def make_controller(
    adaptation: Adaptation, solver: Solver, *, check: str | None = None, **settings: Any
) -> OwnController:
    """The controller that adapts this solver's step or tolerance.

    `check` is the method to check with; None takes midpoint for euler, rk4 for midpoint, dopri54 for tolerances. Other
    settings are the controller's own. The paper's threshold is given, as runs are scored by accuracy.
    """
    kinds: Mapping[Adaptation, type[OwnController]] = {"paper": StepAdaptation, "steady": SteadySteps}
    find_check = _step_check
    if isinstance(solver, Adaptive):
        kinds, find_check = {"paper": ToleranceAdaptation, "steady": SteadyTolerances}, _tolerance_check
    if adaptation == "paper":
        settings = {"threshold": PAPERS_THRESHOLD, **settings}
    return kinds[adaptation](train=solver.method, check=find_check(solver.method, check), **settings)


def _step_check(method: str, given: str | None) -> str:
    if not (finer := higher_orders(method)):
        raise UsageError(f"steps of {method} cannot be adapted, since no method has a higher order: {ADAPTABLE}")
    if given is None and method not in CHECKS:
        raise UsageError(
            f"steps of '{method}' have no usual check: choose one of a higher order with check=... ({', '.join(finer)})"
        )
    return given or CHECKS[method]


def _tolerance_check(method: str, given: str | None) -> str:
    known = [check for train, check in CHECK_RATIOS if train == method]
    if not known:
        raise UsageError(f"tolerances of {method} cannot be adapted: {ADAPTABLE}")
    if given not in (None, *known):
        raise UsageError(f"tolerances of {method} are checked by {known[0]}, not by {given}: leave check=... out")
    return known[0]
