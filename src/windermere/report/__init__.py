"""Figures of audits, drawn from arrays and records; what draws does not compute."""

from windermere.report.audit_figure import AuditFigure, Plane, SolverPoint, draw_audit
from windermere.report.plane import DecisionRegions, Frame
from windermere.report.style import figure_path

__all__ = [
    "AuditFigure",
    "DecisionRegions",
    "Frame",
    "Plane",
    "SolverPoint",
    "draw_audit",
    "figure_path",
]
