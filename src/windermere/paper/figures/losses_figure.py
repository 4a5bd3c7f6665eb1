"""All grids at a glance: what a finer solver takes from models, against the evaluations that they were trained with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from windermere.report.palette import CLASSES, GRID, LINES, MARKERS
from windermere.report.style import add_legend, house_style, new_figure, save

COLUMNS = 4


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """One grid, from coarse to fine."""

    method: str
    costs: Sequence[float]
    """Evaluations per iteration of training."""
    losses: Sequence[Sequence[float]]
    """The accuracy that each seed loses under a finer solver, for every entry of the grid."""


@dataclass(frozen=True, kw_only=True)
class LossPanel:
    title: str
    curves: Sequence[LossCurve]


@house_style
def draw_losses(panels: Sequence[LossPanel], threshold: float, path: Path | str) -> None:
    """A panel for each data set, with a line for each method; losses up to the threshold count as none."""
    methods = list(dict.fromkeys(curve.method for panel in panels for curve in panel.curves))
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    canvas = new_figure(max(3.6 * columns, 7.2), 0.8 + 2.9 * rows, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    every = body.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for number, (axes, panel) in enumerate(zip(every, panels, strict=False)):
        axes.axhspan(-1.0, threshold, color=GRID, alpha=0.55, linewidth=0, zorder=0)
        for curve in panel.curves:
            _draw_curve(axes, curve, methods.index(curve.method))
        _scale(axes, f"({chr(97 + number)}) {panel.title}")
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    lowest = min(min(values) for panel in panels for curve in panel.curves for values in curve.losses)
    highest = max(max(values) for panel in panels for curve in panel.curves for values in curve.losses)
    every[0].set_ylim(min(lowest, 0.0) - 0.04, max(highest, 2 * threshold) + 0.04)
    for axes in every[::columns]:
        axes.set_ylabel("accuracy lost under a finer solver")
    for axes in every[max(len(panels) - columns, 0) : len(panels)]:
        axes.set_xlabel("forward evaluations per iteration")
    signs = [_sign(method, number) for number, method in enumerate(methods)]
    add_legend(body, [*signs, Patch(color=GRID, alpha=0.55, label=f"lost {threshold:g} or less")])
    save(canvas, path)


def _draw_curve(axes: Axes, curve: LossCurve, number: int) -> None:
    """Means over seeds, and bars from the least to the most."""
    means = [float(np.mean(values)) for values in curve.losses]
    axes.plot(
        curve.costs,
        means,
        color=CLASSES[number],
        linestyle=LINES[number],
        marker=MARKERS[number],
        markersize=5.5,
        linewidth=1.3,
        zorder=3,
    )
    lows, highs = ([end(values) for values in curve.losses] for end in (min, max))
    axes.vlines(curve.costs, lows, highs, color=CLASSES[number], linewidth=0.9, alpha=0.45, zorder=2)


def _scale(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _sign(method: str, number: int) -> Line2D:
    look = {"color": CLASSES[number], "linestyle": LINES[number], "marker": MARKERS[number]}
    return Line2D([], [], **look, markersize=6, label=f"trained with {method}")  # type: ignore[arg-type]
