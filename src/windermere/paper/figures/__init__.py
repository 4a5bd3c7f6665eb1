"""The paper's figures, drawn from arrays and records; what draws does not compute."""

from windermere.paper.figures.adaptation_columns import AdaptedRun, draw_adapted_runs
from windermere.paper.figures.adaptation_figure import draw_adaptation
from windermere.paper.figures.cost_figure import CostPanel, GridPoint, PrintedValue, draw_costs
from windermere.paper.figures.grid_figure import draw_grid, draw_grid_seeds
from windermere.paper.figures.grid_layout import GridFigure, GridTest
from windermere.paper.figures.losses_figure import LossCurve, LossPanel, draw_losses
from windermere.paper.figures.outputs_figure import OutputsPanel, draw_outputs
from windermere.paper.figures.toy_figures import (
    FanPanel,
    Ladder,
    Quiver,
    Walks,
    draw_classes,
    draw_crossing_field,
    draw_fan,
)
from windermere.paper.figures.trajectory_figure import TrajectoryPanel, draw_trajectories

__all__ = [
    "AdaptedRun",
    "CostPanel",
    "FanPanel",
    "GridFigure",
    "GridPoint",
    "GridTest",
    "Ladder",
    "LossCurve",
    "LossPanel",
    "OutputsPanel",
    "PrintedValue",
    "Quiver",
    "TrajectoryPanel",
    "Walks",
    "draw_adaptation",
    "draw_adapted_runs",
    "draw_classes",
    "draw_costs",
    "draw_crossing_field",
    "draw_fan",
    "draw_grid",
    "draw_grid_seeds",
    "draw_losses",
    "draw_outputs",
    "draw_trajectories",
]
