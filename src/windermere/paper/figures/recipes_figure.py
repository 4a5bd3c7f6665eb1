"""Recipes for training: how many seeds end as flows and how accurate they are, against what an iteration costs; and
which number tells tied models apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from windermere.report.palette import CLASSES, FAINT, GRID, MARKERS
from windermere.report.style import add_legend, house_style, new_figure, save

MEAN: dict[str, Any] = {"markersize": 7, "markerfacecolor": "none", "markeredgewidth": 1.6}
"""Hollow, so that recipes of one cost and one share are both seen."""
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
def draw_recipes(points: Sequence[RecipePoint], families: Sequence[str], goal: float, path: Path) -> None:
    """Above the share of seeds that are flows, with Wilson's interval; below every seed's accuracy under the flow.
    Families look alike in all such figures."""
    canvas = new_figure(9.0, 7.6, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    shares, accuracies = body.subplots(2, 1, sharex=True)
    for point in points:
        number = families.index(point.family)
        colour, marker = CLASSES[number], MARKERS[number]
        low, high = point.interval
        shares.plot([point.cost] * 2, [low, high], color=colour, linewidth=1, alpha=0.5)
        shares.plot(point.cost, point.share, marker, color=colour, **MEAN)
        count = len(point.accuracies)
        accuracies.plot([point.cost] * count, point.accuracies, marker, color=colour, alpha=0.35, markersize=4, mew=0)
        mean = float(np.mean(point.accuracies))
        accuracies.plot(point.cost, mean, marker, color=colour, **MEAN)
    shares.set_ylabel("share of seeds that are FLOW")
    accuracies.set_ylabel("test accuracy under the flow")
    accuracies.set_xlabel("forward evaluations per iteration, checks included")
    for axes, letter in zip((shares, accuracies), "ab", strict=True):
        axes.set_title(f"({letter})", loc="left")
        axes.axvspan(0.5, goal, color=GRID, alpha=0.45, linewidth=0, zorder=0)
        _scale(axes, [point.cost for point in points])
    goal_sign = Patch(color=GRID, alpha=0.45, label=f"the goal: {goal:g} or fewer")
    shown = {point.family for point in points}
    signs = [_sign(n, name, MEAN) for n, name in enumerate(families) if name in shown]
    add_legend(body, [*signs, goal_sign])
    save(canvas, path)


def _sign(number: int, name: str, look: Mapping[str, Any] = MappingProxyType({})) -> Line2D:
    return Line2D([], [], color=CLASSES[number], marker=MARKERS[number], linestyle="", label=name, **look)


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
    kinds: Sequence[str]
    """What tells their marks apart."""
    on_powers: bool


@house_style
def draw_laws(panels: Sequence[LawPanel], threshold: float, path: Path) -> None:
    canvas = new_figure(4.0 * len(panels), 4.2, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    kinds = list(dict.fromkeys(kind for panel in panels for kind in panel.kinds))
    row = body.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel, letter in zip(row, panels, ascii_lowercase, strict=False):
        axes.set_title(f"({letter})", loc="left")
        axes.axhline(threshold, color=FAINT, linewidth=1)
        for number, kind in enumerate(kinds):
            own = [place for place, name in enumerate(panel.kinds) if name == kind]
            values = [max(panel.values[i], LEAST) if panel.on_powers else panel.values[i] for i in own]
            lost = [panel.lost[i] for i in own]
            axes.plot(values, lost, MARKERS[number], color=CLASSES[number], alpha=0.6, markersize=5, mew=0)
        if panel.on_powers:
            axes.set_xscale("log")
        axes.set_xlabel(panel.title)
        axes.grid(axis="y")
    body.axes[0].set_ylabel("accuracy lost under the flow")
    add_legend(
        body,
        [
            *(_sign(n, kind) for n, kind in enumerate(kinds)),
            Line2D([], [], color=FAINT, label=f"{threshold:g}, the audit's limit"),
        ],
    )
    save(canvas, path)
