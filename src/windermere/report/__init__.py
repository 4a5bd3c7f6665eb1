"""Figures, drawn from arrays and records; what computes does not draw, and what draws does not compute."""

from windermere.report.adaptation_columns import AdaptedRun, draw_adapted_runs
from windermere.report.adaptation_figure import draw_adaptation
from windermere.report.audit_figure import AuditFigure, Plane, SolverPoint, draw_audit
from windermere.report.cost_figure import CostPanel, GridPoint, PrintedValue, draw_costs
from windermere.report.grid_figure import draw_grid, draw_grid_seeds
from windermere.report.grid_layout import GridFigure, GridTest
from windermere.report.losses_figure import LossCurve, LossPanel, draw_losses
from windermere.report.outputs_figure import OutputsPanel, draw_outputs
from windermere.report.plane import DecisionRegions, Frame
from windermere.report.style import figure_path
from windermere.report.toy_figures import FanPanel, Ladder, Quiver, Walks, draw_classes, draw_crossing_field, draw_fan
from windermere.report.trajectory_figure import TrajectoryPanel, draw_trajectories

__all__ = [
    "AdaptedRun",
    "AuditFigure",
    "CostPanel",
    "DecisionRegions",
    "FanPanel",
    "Frame",
    "GridFigure",
    "GridPoint",
    "GridTest",
    "Ladder",
    "LossCurve",
    "LossPanel",
    "OutputsPanel",
    "Plane",
    "PrintedValue",
    "Quiver",
    "SolverPoint",
    "TrajectoryPanel",
    "Walks",
    "draw_adaptation",
    "draw_adapted_runs",
    "draw_audit",
    "draw_classes",
    "draw_costs",
    "draw_crossing_field",
    "draw_fan",
    "draw_grid",
    "draw_grid_seeds",
    "draw_losses",
    "draw_outputs",
    "draw_trajectories",
    "figure_path",
]
