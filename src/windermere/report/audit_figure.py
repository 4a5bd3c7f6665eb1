"""The audit's figure: what other solvers make of the same weights, how far from the flow each ends and, in the plane,
where the training solver and the flow take the same points.
"""

import textwrap
from pathlib import Path

from matplotlib.figure import Figure, SubFigure

from windermere.report.audit_data import OUTCOMES, AuditFigure, Plane, SolverPoint
from windermere.report.audit_planes import draw_planes
from windermere.report.audit_solvers import draw_errors, draw_metrics, sweep_legend
from windermere.report.style import add_legend, house_style, new_figure, save

__all__ = ["AuditFigure", "Plane", "SolverPoint", "draw_audit"]

WIDTH, HEAD, SOLVERS, PLANES = 11.0, 0.62, 4.9, 6.1
"""Inches: the figure's width, and the heights of the outcome and of both rows."""
LETTERS, LINE = 125, 0.22
"""How many letters of the sentence go on a line, and a line's height in inches."""


@house_style
def draw_audit(figure: AuditFigure, path: Path | str | None = None) -> Figure:
    """Draws it, saves it as PNG or SVG if a path is given, and returns it for notebooks."""
    outcome, lines = _words(figure)
    heights = [HEAD + LINE * len(lines), SOLVERS, *([] if figure.plane is None else [PLANES])]
    whole = new_figure(WIDTH, sum(heights), padding=0.1)
    rows = whole.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    _draw_words(rows[0], outcome, lines, color=OUTCOMES[figure.outcome], height=heights[0])
    _draw_solvers(rows[1], figure)
    if figure.plane is not None:
        draw_planes(rows[2], figure.plane, figure.trained_with)
    if path is not None:
        save(whole, path)
    return whole


def _words(figure: AuditFigure) -> tuple[str, list[str]]:
    """The outcome, with what the sentence says of it before a colon, and the rest of the sentence in lines."""
    outcome, sentence = str(figure.outcome), " ".join(figure.sentence.split())
    before, colon, after = sentence.partition(": ")
    said = colon and before.startswith(outcome) and len(before) <= 60
    return (before, _balanced(after)) if said else (outcome, _balanced(sentence))


def _balanced(sentence: str) -> list[str]:
    """As few lines as can be, of about the same length."""
    fewest = len(textwrap.wrap(sentence, LETTERS))
    widths = range(len(sentence) // max(fewest, 1), LETTERS)
    tries = (textwrap.wrap(sentence, max(width, 1)) for width in widths)
    return next((lines for lines in tries if len(lines) <= fewest), textwrap.wrap(sentence, LETTERS))


def _draw_words(head: SubFigure, outcome: str, lines: list[str], *, color: str, height: float) -> None:
    outcome_at, lines_at = 1 - 0.12 / height, 1 - 0.54 / height
    head.text(0.5, outcome_at, outcome, color=color, size=20, weight="bold", ha="center", va="top", parse_math=False)
    head.text(0.5, lines_at, "\n".join(lines), color=color, size=11, ha="center", va="top", parse_math=False)


def _draw_solvers(row: SubFigure, figure: AuditFigure) -> None:
    left, right = row.subplots(1, 2)
    draw_metrics(left, figure)
    draw_errors(right, figure)
    add_legend(row, sweep_legend(figure))
