"""Figures, drawn from arrays and records; what computes does not draw, and what draws does not compute."""

from windermere.report.adaptation_figure import draw_adaptation
from windermere.report.audit_figure import AuditFigure, Plane, SolverPoint, draw_audit
from windermere.report.outputs_figure import OutputsPanel, draw_outputs
from windermere.report.plane import DecisionRegions, Frame
from windermere.report.plots import TrajectoryPanel, draw_training, draw_trajectories
from windermere.report.toy_figures import FanPanel, Ladder, Quiver, Walks, draw_crossing_field, draw_fan

__all__ = [
    "AuditFigure",
    "DecisionRegions",
    "FanPanel",
    "Frame",
    "Ladder",
    "OutputsPanel",
    "Plane",
    "Quiver",
    "SolverPoint",
    "TrajectoryPanel",
    "Walks",
    "draw_adaptation",
    "draw_audit",
    "draw_crossing_field",
    "draw_fan",
    "draw_outputs",
    "draw_training",
    "draw_trajectories",
]
