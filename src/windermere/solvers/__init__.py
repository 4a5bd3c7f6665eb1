"""Explicit Runge-Kutta solvers: exact, countable, fast; for one model or an ensemble."""

from windermere.solvers.counting import Count, checking, counting
from windermere.solvers.field import Field, Preparable, Prepared, State
from windermere.solvers.gradients import GRADIENTS, Adjoint, Gradient
from windermere.solvers.initial_step import initial_step
from windermere.solvers.solve import Solution, Stats, Trajectory, final_state, solve
from windermere.solvers.solver import (
    Adaptive,
    FixedStep,
    OnGrid,
    Solver,
    Solvers,
    solver_from_dict,
    solver_to_dict,
)
from windermere.solvers.tableaus import METHODS, Tableau, adaptive_names

__all__ = [
    "GRADIENTS",
    "METHODS",
    "Adaptive",
    "Adjoint",
    "Count",
    "Field",
    "FixedStep",
    "Gradient",
    "OnGrid",
    "Preparable",
    "Prepared",
    "Solution",
    "Solver",
    "Solvers",
    "State",
    "Stats",
    "Tableau",
    "Trajectory",
    "adaptive_names",
    "checking",
    "counting",
    "final_state",
    "initial_step",
    "solve",
    "solver_from_dict",
    "solver_to_dict",
]
