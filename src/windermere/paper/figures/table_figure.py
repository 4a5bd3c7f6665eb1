"""A table for print: heads, lines above and below as books have them, and rows of words."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from windermere.paper.figures.camera_ready import print_figure
from windermere.report.palette import INK

ROW = 0.19
"""Inches."""


def table_figure(
    heads: Sequence[str], rows: Sequence[Sequence[str]], places: Sequence[float], note: str = ""
) -> Figure:
    """Columns stand at shares of the width; the first is aligned to the left. A row of no words is a thin line. Below
    the table stands a note."""
    figure = print_figure(ROW * (len(rows) + 4.0 + 0.5 * len(note.splitlines())))
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(-len(rows) - 1.1 - 0.6 * len(note.splitlines()), 1.4))
    axes.text(places[0], -len(rows) - 0.4, note, fontsize="small", va="top")
    axes.axis("off")
    for number, row in enumerate([heads, *rows]):
        for place, words in zip(places, row, strict=False):
            axes.text(place, 0.5 - number, words, ha="left" if place == places[0] else "center", va="center")
        if not row:
            axes.axhline(0.5 - number, color=INK, linewidth=0.3)
    for height, width in ((1.2, 0.8), (0.0, 0.5), (-len(rows) - 0.1, 0.8)):
        axes.axhline(height, color=INK, linewidth=width)
    return figure
