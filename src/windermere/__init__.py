"""Windermere: is your neural ODE really an ODE?

Audit a trained model          `audit`, `Verdict`, `Outcome`, `Evidence`, `Candidate`
Adapt the solver in training   `SteadySteps`, `SteadyTolerances`, `StepAdaptation`, `ToleranceAdaptation`, `review`,
                               `Score`, `moved_mass`, `relative_distance`, `initial_step`
Choose a solver                `FixedStep`, `OnGrid`, `Adaptive`, `Solver`, `METHODS`
Solve                          `solve`, `State`, `Solution`, `Stats`, `Trajectory`, `Adjoint`
Build a model                  `ODEBlock`, `Autonomous`, `using`
Count evaluations              `counting`, `Count`, `checking`
Load a trained run             `load_run`
"""

from typing import TYPE_CHECKING, Any

from windermere.starting import importing

with importing():
    from windermere.adaptation import (
        Score,
        SteadySteps,
        SteadyTolerances,
        StepAdaptation,
        ToleranceAdaptation,
        moved_mass,
        relative_distance,
        review,
    )
    from windermere.auditing import Candidate, Evidence, Outcome, Verdict, audit
    from windermere.nn import Autonomous, ODEBlock, using
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
        initial_step,
        solve,
    )

if TYPE_CHECKING:
    from windermere.paper.training import load_run

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`load_run` is the paper's: it comes when it is asked for."""
    if name == "load_run":
        from windermere.paper.training import load_run

        return load_run
    raise AttributeError(f"module 'windermere' has no attribute '{name}'")


__all__ = [
    "METHODS",
    "Adaptive",
    "Adjoint",
    "Autonomous",
    "Candidate",
    "Count",
    "Evidence",
    "FixedStep",
    "ODEBlock",
    "OnGrid",
    "Outcome",
    "Score",
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
    "checking",
    "counting",
    "initial_step",
    "load_run",
    "moved_mass",
    "relative_distance",
    "review",
    "solve",
    "using",
]
