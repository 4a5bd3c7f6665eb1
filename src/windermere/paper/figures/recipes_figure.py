"""Recipes for training: how many seeds end as flows and how accurate they are, against what an iteration costs; and
which number tells tied models apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from windermere.report.palette import CLASSES, FAINT, GRID, MARKERS
from windermere.report.style import add_legend, house_style, new_figure, save

LEAST = 1e-3
"""Smaller numbers are drawn there, on an axis of powers."""


@dataclass(frozen=True, kw_only=True)
class RecipePoint:
    """One recipe over its seeds."""

    name: str
    family: str
    cost: float
    share: float
    """Seeds that are flows."""
    interval: tuple[float, float]
    accuracies: Sequence[float]
    """Each seed's under the flow."""


@house_style
def draw_recipes(points: Sequence[RecipePoint], goal: float, path: Path) -> Figure:
    """Above the share of seeds that are flows, with Wilson's interval; below every seed's accuracy under the flow."""
    canvas = new_figure(9.0, 7.6, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    shares, accuracies = body.subplots(2, 1, sharex=True)
    families = list(dict.fromkeys(point.family for point in points))
    for point in points:
        number = families.index(point.family)
        colour, marker = CLASSES[number], MARKERS[number]
        low, high = point.interval
        shares.plot([point.cost] * 2, [low, high], color=colour, linewidth=1, alpha=0.5)
        shares.plot(point.cost, point.share, marker, color=colour, markersize=7, markeredgecolor="white")
        count = len(point.accuracies)
        accuracies.plot([point.cost] * count, point.accuracies, marker, color=colour, alpha=0.35, markersize=4, mew=0)
        mean = float(np.mean(point.accuracies))
        accuracies.plot(point.cost, mean, marker, color=colour, markersize=7, markeredgecolor="white")
    shares.set_ylabel("share of seeds that are FLOW")
    accuracies.set_ylabel("test accuracy under the flow")
    accuracies.set_xlabel("forward evaluations per iteration, checks included")
    for axes in (shares, accuracies):
        axes.axvspan(0.5, goal, color=GRID, alpha=0.45, linewidth=0, zorder=0)
        _scale(axes, [point.cost for point in points])
    signs = [
        Line2D([], [], color=CLASSES[n], marker=MARKERS[n], linestyle="", label=name) for n, name in enumerate(families)
    ]
    add_legend(body, signs)
    save(canvas, path)
    return canvas


def _scale(axes: Axes, costs: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(costs) / 1.2, max(costs) * 1.2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y")


@dataclass(frozen=True, kw_only=True)
class LawPanel:
    """A number that might tell tied models apart, of all models."""

    title: str
    values: Sequence[float]
    lost: Sequence[float]
    """The accuracy that each loses under the flow."""
    methods: Sequence[str]
    on_powers: bool


@house_style
def draw_laws(panels: Sequence[LawPanel], threshold: float, path: Path) -> Figure:
    canvas = new_figure(4.0 * len(panels), 4.2, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    methods = list(dict.fromkeys(method for panel in panels for method in panel.methods))
    for axes, panel in zip(body.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
        axes.axhline(threshold, color=FAINT, linewidth=1)
        for number, method in enumerate(methods):
            own = [place for place, name in enumerate(panel.methods) if name == method]
            values = [max(panel.values[i], LEAST) if panel.on_powers else panel.values[i] for i in own]
            lost = [panel.lost[i] for i in own]
            axes.plot(values, lost, MARKERS[number], color=CLASSES[number], alpha=0.6, markersize=5, mew=0)
        if panel.on_powers:
            axes.set_xscale("log")
        axes.set_xlabel(panel.title)
        axes.grid(axis="y")
    body.axes[0].set_ylabel("accuracy lost under the flow")
    signs = [
        Line2D([], [], color=CLASSES[n], marker=MARKERS[n], linestyle="", label=name) for n, name in enumerate(methods)
    ]
    add_legend(body, [*signs, Line2D([], [], color=FAINT, label=f"{threshold:g}")])
    save(canvas, path)
    return canvas
