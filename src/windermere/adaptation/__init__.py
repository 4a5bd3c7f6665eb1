"""Which step or tolerance to train with, without a grid search: the paper's algorithms, and steady ones.

Algorithm 2 (steps) is `StepAdaptation.review`, Algorithm 3 (tolerances) `ToleranceAdaptation.review`. Algorithm 1 is
the outline of both: `one_iteration` in `paper/training/iteration.py`, or any loop that calls `review` before every 50th
update.
"""

from windermere.adaptation.controller import Controller, ControllerState, Decision, Review, review, review_members
from windermere.adaptation.distributed import shared_review
from windermere.adaptation.random_steps import RandomSteps
from windermere.adaptation.score import Score
from windermere.adaptation.serialisation import OwnController, controller_from_dict, controller_to_dict
from windermere.adaptation.signals import error_ratio, moved_mass, relative_distance
from windermere.adaptation.steady import SteadySteps, SteadyTolerances
from windermere.adaptation.step_size import StepAdaptation
from windermere.adaptation.tolerance import ToleranceAdaptation

__all__ = [
    "Controller",
    "ControllerState",
    "Decision",
    "OwnController",
    "RandomSteps",
    "Review",
    "Score",
    "SteadySteps",
    "SteadyTolerances",
    "StepAdaptation",
    "ToleranceAdaptation",
    "controller_from_dict",
    "controller_to_dict",
    "error_ratio",
    "moved_mass",
    "relative_distance",
    "review",
    "review_members",
    "shared_review",
]
