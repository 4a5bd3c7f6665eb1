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
from windermere.report.palette import CLASSES, INK, MARKERS, Array
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
        draw_output_panel(axes, panel)
        axes.set_title(f"{panel.title}\n{panel.remark}", fontsize=10.5)
    figure.legend(handles=output_legend(panels), loc="outside lower center", ncols=5, frameon=False)
    save(figure, path)


def draw_output_panel(axes: Axes, panel: OutputsPanel, size: float = 12.0) -> None:
    """Where what is wrong fills a small piece of the plane, an inset shows that piece."""
    whole, wrong = Frame.around(panel.outputs), panel.outputs[_wrong(panel)]
    _draw_points(axes, panel, whole, size)
    if len(wrong) and (near := Frame.around(wrong)).width < whole.width / SMALL:
        inset = add_inset(axes, whole, panel.outputs)
        _draw_points(inset, panel, near, size)
        inset.set(xticks=[], yticks=[])
        axes.indicate_inset_zoom(inset, edgecolor=INK, alpha=0.6)


def _wrong(panel: OutputsPanel) -> Array:
    wrong: Array = np.asarray(panel.labels) != np.asarray(panel.predicted)
    return wrong


def _draw_points(axes: Axes, panel: OutputsPanel, frame: Frame, size: float) -> None:
    """Hollow, so that a thousand points on a line hide neither each other nor the region that they lie in."""
    shade(axes, panel.decision)
    labels = np.asarray(panel.labels)
    for label in np.unique(labels).astype(int):
        x, y = panel.outputs[labels == label].T
        axes.scatter(
            x, y, s=size, facecolors="none", edgecolors=CLASSES[label], marker=MARKERS[label],
            linewidths=0.6, alpha=0.8, zorder=2, rasterized=True,
        )  # fmt: skip
    fit(axes, frame)


def output_legend(panels: Sequence[OutputsPanel]) -> list[Line2D | Patch]:
    classes = max(2, *(int(np.max(panel.labels)) + 1 for panel in panels))
    look: dict[str, Any] = {"markerfacecolor": "none", "linewidth": 0}
    points = [
        Line2D([], [], color=CLASSES[n], marker=MARKERS[n], **look, label=f"truly class {n}") for n in range(classes)
    ]
    return [*points, *region_legend(classes)]
