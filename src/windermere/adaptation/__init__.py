"""The paper's Algorithms 2 and 3: which step or tolerance to train with, without a grid search."""

from windermere.adaptation.controller import Controller, Decision, Review, Score, State, review, review_members
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
    "review",
    "review_members",
]
