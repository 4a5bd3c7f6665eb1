"""Windermere: is your neural ODE really an ODE?

Audit a trained model          `audit`, `Verdict`, `Outcome`, `Evidence`, `Candidate`, `Metric`, `energy_drift`
Audit a sampler                `Sampler`, `SetDistance`, `audit_loop`, `LoopReport`
Adapt the solver in training   `SteadySteps`, `SteadyTolerances`, `StepAdaptation`, `ToleranceAdaptation`, `review`,
                               `shared_review`, `RandomSteps`, `Score`, `moved_mass`, `relative_distance`,
                               `error_ratio`, `initial_step`
Choose a solver                `FixedStep`, `OnGrid`, `Adaptive`, `Solver`, `METHODS`
Solve                          `solve`, `State`, `Solution`, `Stats`, `Trajectory`, `Adjoint`, `fast_paths`
Solve as torchdiffeq does      `odeint`, `odeint_adjoint`
Build a model                  `ODEBlock`, `Autonomous`, `using`
Count evaluations              `counting`, `Count`, `checking`
Load a trained run             `load_run`
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windermere.adaptation import (
        RandomSteps,
        Score,
        SteadySteps,
        SteadyTolerances,
        StepAdaptation,
        ToleranceAdaptation,
        error_ratio,
        moved_mass,
        relative_distance,
        review,
        shared_review,
    )
    from windermere.auditing import (
        Candidate,
        Evidence,
        LoopReport,
        Metric,
        Outcome,
        Sampler,
        SetDistance,
        Verdict,
        audit,
        audit_loop,
        energy_drift,
    )
    from windermere.nn import Autonomous, ODEBlock, using
    from windermere.paper.training import load_run
    from windermere.solvers import (
        METHODS,
        Adaptive,
        Adjoint,
        Count,
        FixedStep,
        OnGrid,
        Solution,
        Solver,
        State,
        Stats,
        Trajectory,
        checking,
        counting,
        fast_paths,
        initial_step,
        odeint,
        odeint_adjoint,
        solve,
    )

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "Adaptive",
    "Adjoint",
    "Autonomous",
    "Candidate",
    "Count",
    "Evidence",
    "FixedStep",
    "LoopReport",
    "Metric",
    "ODEBlock",
    "OnGrid",
    "Outcome",
    "RandomSteps",
    "Sampler",
    "Score",
    "SetDistance",
    "Solution",
    "Solver",
    "State",
    "Stats",
    "SteadySteps",
    "SteadyTolerances",
    "StepAdaptation",
    "ToleranceAdaptation",
    "Trajectory",
    "Verdict",
    "__version__",
    "audit",
    "audit_loop",
    "checking",
    "counting",
    "energy_drift",
    "error_ratio",
    "fast_paths",
    "initial_step",
    "load_run",
    "moved_mass",
    "odeint",
    "odeint_adjoint",
    "relative_distance",
    "review",
    "shared_review",
    "solve",
    "using",
]

_ROOMS = ("adaptation", "auditing", "checks", "errors", "fast", "nn", "records", "report", "solvers")
"""What `windermere.solvers` and the like need no import of their own for."""
_HOMES = {
    "adaptation": (
        "RandomSteps",
        "Score",
        "SteadySteps",
        "SteadyTolerances",
        "StepAdaptation",
        "ToleranceAdaptation",
        "error_ratio",
        "moved_mass",
        "relative_distance",
        "review",
        "shared_review",
    ),
    "auditing": (
        "Candidate",
        "Evidence",
        "LoopReport",
        "Metric",
        "Outcome",
        "Sampler",
        "SetDistance",
        "Verdict",
        "audit",
        "audit_loop",
        "energy_drift",
    ),
    "nn": ("Autonomous", "ODEBlock", "using"),
    "paper.training": ("load_run",),
    "solvers": (
        "METHODS",
        "Adaptive",
        "Adjoint",
        "Count",
        "FixedStep",
        "OnGrid",
        "Solution",
        "Solver",
        "State",
        "Stats",
        "Trajectory",
        "checking",
        "counting",
        "fast_paths",
        "initial_step",
        "odeint",
        "odeint_adjoint",
        "solve",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


if not TYPE_CHECKING:  # or a type checker would believe in every name

    def __getattr__(name: str) -> object:
        """A public name is imported when it is first asked for: PyTorch takes seconds, and the command line's help does
        not need it."""
        if name not in _HOME and name not in _ROOMS:
            raise AttributeError(f"module 'windermere' has no attribute '{name}'")
        try:
            home = import_module(f"windermere.{_HOME.get(name, name)}")
            if _HOME.get(name) == "solvers":
                import_module("windermere.fast")  # whose paths solves ask
        except AttributeError as error:  # Python would take it for `name` not being there
            raise ImportError(f"windermere.{name} cannot be imported: {error}") from error
        found = globals()[name] = getattr(home, name) if name in _HOME else home
        return found
