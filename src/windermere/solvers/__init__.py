"""Explicit Runge-Kutta solvers: exact, countable, fast; for one model or an ensemble."""

from windermere.solvers.counting import Count, checking, counting
from windermere.solvers.field import Field, Prepared
from windermere.solvers.gradients import GRADIENTS, Adjoint, Gradient, GradientName
from windermere.solvers.initial_step import initial_step
from windermere.solvers.layout import State
from windermere.solvers.odeint import odeint, odeint_adjoint
from windermere.solvers.paths import FastAdjoint, FastPath, fast_paths, register
from windermere.solvers.problem import Problem, Walked
from windermere.solvers.solve import Solution, Stats, Trajectory, final_state, solve
from windermere.solvers.solver import Adaptive, FixedStep, OnGrid, Solver, Solvers, solver_from_dict, solver_to_dict
from windermere.solvers.tableaus import METHODS, Tableau, adaptive_names

__all__ = [
    "GRADIENTS",
    "METHODS",
    "Adaptive",
    "Adjoint",
    "Count",
    "FastAdjoint",
    "FastPath",
    "Field",
    "FixedStep",
    "Gradient",
    "GradientName",
    "OnGrid",
    "Prepared",
    "Problem",
    "Solution",
    "Solver",
    "Solvers",
    "State",
    "Stats",
    "Tableau",
    "Trajectory",
    "Walked",
    "adaptive_names",
    "checking",
    "counting",
    "fast_paths",
    "final_state",
    "initial_step",
    "odeint",
    "odeint_adjoint",
    "register",
    "solve",
    "solver_from_dict",
    "solver_to_dict",
]
