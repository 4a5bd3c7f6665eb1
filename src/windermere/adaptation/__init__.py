"""Which step or tolerance to train with, without a grid search: the paper's Algorithms 2 and 3, and steady ones."""

from windermere.adaptation.controller import Controller, Decision, Review, Score, State, review, review_members
from windermere.adaptation.signals import moved_mass, relative_distance
from windermere.adaptation.steady import SteadySteps, SteadyTolerances
from windermere.adaptation.step_size import StepAdaptation
from windermere.adaptation.tolerance import ToleranceAdaptation

__all__ = [
    "Controller",
    "Decision",
    "Review",
    "Score",
    "State",
    "SteadySteps",
    "SteadyTolerances",
    "StepAdaptation",
    "ToleranceAdaptation",
    "moved_mass",
    "relative_distance",
    "review",
    "review_members",
]
