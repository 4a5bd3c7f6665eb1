"""Tied models beside flows: a panel for each measure, a column for each run, a dot for each seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import numpy as np

from windermere.report.palette import CLASSES, INK
from windermere.report.style import house_style, new_figure, save

COLUMNS = 4


@dataclass(frozen=True, kw_only=True)
class MeasurePanel:
    title: str
    values: Sequence[Sequence[float]]
    """A run's numbers, one for each seed."""
    unit: str = "share"


@house_style
def draw_measures(panels: Sequence[MeasurePanel], runs: Sequence[str], path: Path) -> None:
    rows = -(-len(panels) // COLUMNS)
    canvas = new_figure(2.9 * COLUMNS, 0.9 + 2.1 * rows, padding=5 / 72)
    every = canvas.subplots(rows, COLUMNS, squeeze=False, sharex=True).ravel()
    for axes, panel, letter in zip(every, panels, ascii_lowercase, strict=False):
        for place, values in enumerate(panel.values):
            places = place + np.linspace(-0.2, 0.2, len(values))
            axes.plot(places, values, "o", color=CLASSES[place], alpha=0.55, markersize=4.5, mew=0)
            if values:
                axes.plot([place - 0.3, place + 0.3], [float(np.mean(values))] * 2, color=INK, linewidth=1.4)
        axes.set_title(f"({letter}) {panel.title}", fontsize=9.5, loc="left")
        axes.set_ylabel(panel.unit, fontsize=8.5)
        axes.grid(axis="y")
        axes.set_xticks(range(len(runs)), runs, rotation=35, ha="right")
        axes.margins(y=0.12)
        if not any(map(any, panel.values)):
            axes.set_ylim(-0.02, 0.2)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    save(canvas, path)
