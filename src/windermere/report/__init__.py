"""Figures, drawn from arrays and records; what computes does not draw, and what draws does not compute."""

from windermere.report.plots import DecisionRegions, Frame, TrajectoryPanel, draw_training, draw_trajectories

__all__ = ["DecisionRegions", "Frame", "TrajectoryPanel", "draw_training", "draw_trajectories"]
