"""Windermere: is your neural ODE really an ODE?

Audit a trained model          `audit`, `Verdict`
Adapt the solver in training   `SteadySteps`, `SteadyTolerances`, `StepAdaptation`, `ToleranceAdaptation`, `review`,
                               `Score`, `moved_mass`, `relative_distance`, `initial_step`
Choose a solver                `FixedStep`, `OnGrid`, `Adaptive`
Solve                          `solve`, `Solution`, `Stats`, `Trajectory`, `Adjoint`
Build a model                  `ODEBlock`, `Autonomous`, `using`
Count evaluations              `counting`, `Count`, `checking`
Load a trained run             `load_run`
"""

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
    from windermere.audit import Verdict, audit
    from windermere.models import Autonomous, ODEBlock, using
    from windermere.solvers import (
        Adaptive,
        Adjoint,
        Count,
        FixedStep,
        OnGrid,
        Solution,
        Stats,
        Trajectory,
        checking,
        counting,
        initial_step,
        solve,
    )
    from windermere.training import load_run

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Adjoint",
    "Autonomous",
    "Count",
    "FixedStep",
    "ODEBlock",
    "OnGrid",
    "Score",
    "Solution",
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
