"""Where a model takes its samples before the last layer decides, and what it decides there (the paper's Figure 2).

Shapes: N points in the plane.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from windermere.report.frame import DecisionRegions, Frame
from windermere.report.palette import CLASSES, FAINT, INK, MARKERS, Array
from windermere.report.plane import add_inset, fit, region_legend, shade
from windermere.report.style import house_style, new_figure, save

SMALL = 2.5
"""A piece so many times smaller than the plane is shown in an inset."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputsPanel:
    """One solver's outputs."""

    title: str
    remark: str
    """Below the title."""
    outputs: Array
    """[N, 2]"""
    labels: Array
    """[N], classes from 0 to 9"""
    predicted: Array
    """[N]"""
    decision: DecisionRegions


@house_style
def draw_outputs(panels: Sequence[OutputsPanel], path: Path | str) -> None:
    """The panels side by side, each in a frame that holds all of its outputs."""
    figure = new_figure(5.0 * len(panels), 5.9)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_outputs(axes, panel)
    classes = max(2, *(int(np.max(panel.labels)) + 1 for panel in panels))
    figure.legend(handles=_legend(classes), loc="outside lower center", ncols=5, frameon=False)
    save(figure, path)


def _draw_outputs(axes: Axes, panel: OutputsPanel) -> None:
    """Where what is wrong fills a small piece of the plane, an inset shows that piece."""
    whole, wrong = Frame.around(panel.outputs), panel.outputs[_wrong(panel)]
    _draw_points(axes, panel, whole)
    axes.set_title(f"{panel.title}\n{panel.remark}", fontsize=10.5)
    if len(wrong) and (near := Frame.around(wrong)).width < whole.width / SMALL:
        inset = add_inset(axes, whole, panel.outputs)
        _draw_points(inset, panel, near)
        inset.set(xticks=[], yticks=[])
        axes.indicate_inset_zoom(inset, edgecolor=INK, alpha=0.6)


def _wrong(panel: OutputsPanel) -> Array:
    wrong: Array = np.asarray(panel.labels) != np.asarray(panel.predicted)
    return wrong


def _draw_points(axes: Axes, panel: OutputsPanel, frame: Frame) -> None:
    shade(axes, panel.decision)
    labels, wrong = np.asarray(panel.labels), _wrong(panel)
    for label in np.unique(labels).astype(int):
        look: dict[str, Any] = {"c": CLASSES[label], "marker": MARKERS[label]}
        x, y = panel.outputs[(labels == label) & ~wrong].T
        axes.scatter(x, y, s=16, linewidths=0, alpha=0.6, zorder=2, **look)
        x, y = panel.outputs[(labels == label) & wrong].T
        axes.scatter(x, y, s=20, linewidths=0.5, edgecolors=INK, zorder=3, **look)
    fit(axes, frame)


def _legend(classes: int) -> list[Line2D | Patch]:
    points = [
        Line2D([], [], color=CLASSES[n], marker=MARKERS[n], linewidth=0, label=f"truly class {n}")
        for n in range(classes)
    ]
    wrong = Line2D(
        [], [], color=FAINT, marker="o", markeredgecolor=INK, markeredgewidth=1.0, linewidth=0, label="decided wrongly"
    )
    return [*points, *region_legend(classes), wrong]
