"""The audit's figure: what other solvers make of the same weights, how far each ends from the flow and, in the plane,
where the training solver and the flow take the same points (the paper's Figures 1 and 2).

Shapes: K steps, P points with trajectories, n samples.
"""

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from windermere.errors import UsageError
from windermere.report.audit_data import OUTCOMES, AuditFigure, Plane, SolverPoint
from windermere.report.audit_panels import draw_errors, draw_metrics, fraction, sweep_legend
from windermere.report.plane import DecisionRegions, Frame, class_colors, draw_plane, plane_legend
from windermere.report.style import Array, house_style, new_figure, save

__all__ = ["AuditFigure", "Plane", "SolverPoint", "draw_audit"]

WIDTH, SOLVERS, PLANES = 11.0, 4.9, 6.1
"""Inches: the figure's width, and the heights of its two rows."""
LETTERS, LINE = 118, 0.215
"""How many letters of the sentence fit on a line, and how high a line is, in inches."""
WIDER = 5.0
"""Both planes have the same limits, unless that made one of them so many times wider than it need be."""


@house_style
def draw_audit(figure: AuditFigure, path: Path | None = None) -> Figure:
    """Draws it, saves it as a PNG if a path is given, and returns it for notebooks."""
    headline, lines = _words(figure)
    heights = [0.6 + LINE * len(lines), SOLVERS, *([] if figure.plane is None else [PLANES])]
    whole = new_figure(WIDTH, sum(heights))
    head, solvers, *planes = whole.subfigures(len(heights), 1, height_ratios=heights)
    _draw_words(head, headline, lines, OUTCOMES[figure.outcome], heights[0])
    left, right = solvers.subplots(1, 2)
    draw_metrics(left, figure)
    draw_errors(right, figure)
    solvers.legend(handles=sweep_legend(figure), loc="outside lower center", ncols=4, frameon=False)
    if figure.plane is not None:
        _draw_planes(planes[0], figure.plane, figure)
    if path is not None:
        save(whole, path)
    return whole


def _words(figure: AuditFigure) -> tuple[str, list[str]]:
    """The outcome, with what the sentence says of it before a colon, and the rest of the sentence in lines."""
    outcome, sentence = str(figure.outcome), " ".join(figure.sentence.split())
    before, colon, after = sentence.partition(": ")
    if colon and before.startswith(outcome):
        return before, textwrap.wrap(after, LETTERS)
    return outcome, textwrap.wrap(sentence, LETTERS)


def _draw_words(head: SubFigure, headline: str, lines: list[str], color: str, height: float) -> None:
    head.text(0.5, 1 - 0.12 / height, headline, color=color, size=20, weight="bold", ha="center", va="top", parse_math=False)
    head.text(
        0.5, 1 - 0.5 / height, "\n".join(lines), color=color, size=11, ha="center", va="top", parse_math=False
    )


# ---------------------------------------------------------------------------------------------------------
# The plane


def _draw_planes(row: SubFigure, plane: Plane, figure: AuditFigure) -> None:
    """The training solver's walk on the left, the flow on the right, over the same regions."""
    frames = _frames(plane)
    regions = [_regions(plane, frame) for frame in frames]
    for axes, states, ends, frame, region in zip(
        row.subplots(1, 2), (plane.own, plane.flow), (plane.ends_own, plane.ends_flow), frames, regions, strict=True
    ):
        _draw_ends(axes, ends, plane.all_labels)
        draw_plane(axes, states, plane.labels, frame, region)


