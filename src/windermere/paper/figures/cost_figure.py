"""Accuracy against cost, as in the paper's Table 1: a grid of constant steps, adapted steps, and the printed values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from windermere.report.palette import CLASSES, FAINT, GRID, INK
from windermere.report.style import house_style, new_figure, save

ADAPTED, PRINTED = CLASSES[1], CLASSES[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class GridPoint:
    """Models trained with one number of steps; lists have an entry for each seed."""

    cost: float
    accuracy: Sequence[float]
    checked: Sequence[float]
    """With the check solver."""


@dataclass(frozen=True, kw_only=True)
class PrintedValue:
    """What the paper has: evaluations from and to (the same for one number), accuracy and its spread at the latter.
    Of a grid they are counted as ours, one for each step; the paper prints one more."""

    costs: tuple[float, float]
    accuracy: float
    spread: float


@dataclass(frozen=True, kw_only=True, eq=False)
class CostPanel:
    title: str
    grid: Sequence[GridPoint]
    critical: tuple[float, float] | None
    """The costs between which models begin to pass the check."""
    adapted: Sequence[tuple[float, float]]
    """Cost and accuracy of each seed."""
    printed_grid: PrintedValue
    printed_adapted: PrintedValue


@house_style
def draw_costs(panels: Sequence[CostPanel], path: Path | str) -> Figure:
    figure = new_figure(4.2 * max(len(panels), 2), 5.2)
    for number, (axes, panel) in enumerate(zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True)):
        _draw(axes, panel)
        axes.set_title(f"({chr(97 + number)}) {panel.title}")
    figure.axes[0].set_ylabel("test accuracy")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=3, frameon=False)
    save(figure, path)
    return figure


def _draw(axes: Axes, panel: CostPanel) -> None:
    if panel.critical is not None:
        low, high = panel.critical
        axes.axvspan(max(low, 1e-3), min(high, 1e6), color=GRID, alpha=0.6, linewidth=0, zorder=0)
    _draw_grid(axes, panel.grid)
    for cost, accuracy in panel.adapted:
        axes.plot(cost, accuracy, "D", color=ADAPTED, alpha=0.45, markersize=4.5, markeredgewidth=0, zorder=4)
    if panel.adapted:
        cost, accuracy = np.mean(panel.adapted, axis=0)
        axes.plot(cost, accuracy, "D", color=ADAPTED, markersize=9, markeredgecolor="white", zorder=6)
    for printed in (panel.printed_grid, panel.printed_adapted):
        _draw_printed(axes, printed)
    _scale(axes, panel)
    axes.set_xlabel("evaluations per iteration")


def _draw_grid(axes: Axes, grid: Sequence[GridPoint]) -> None:
    costs = [point.cost for point in grid]
    for point in grid:
        for values, colour in ((point.checked, FAINT), (point.accuracy, INK)):
            axes.plot([point.cost] * len(values), values, "o", color=colour, alpha=0.35, markersize=4, mew=0, zorder=2)
    checked = [float(np.mean(point.checked)) for point in grid]
    axes.plot(costs, checked, "o-", color=FAINT, markerfacecolor="white", markersize=7, linewidth=1, zorder=3)
    axes.plot(
        costs,
        [float(np.mean(point.accuracy)) for point in grid],
        "o-",
        color=INK,
        markersize=7,
        linewidth=1.2,
        zorder=4,
    )


def _draw_printed(axes: Axes, printed: PrintedValue) -> None:
    low, high = printed.costs
    style: dict[str, Any] = {"color": PRINTED, "zorder": 5, "linewidth": 1.6}
    axes.errorbar(
        high, printed.accuracy, printed.spread, [[high - low], [0.0]] if low < high else None,
        fmt="none" if low < high else "*", markersize=14, markeredgecolor="white", capsize=4, **style,
    )  # fmt: skip


def _scale(axes: Axes, panel: CostPanel) -> None:
    """Ticks at the grid's costs."""
    costs = [point.cost for point in panel.grid]
    shown = [*costs, *(cost for cost, _ in panel.adapted), *panel.printed_grid.costs, *panel.printed_adapted.costs]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(shown) / 1.25, max(shown) * 1.25)
    axes.set_xticks(costs or panel.printed_grid.costs, [f"{cost:g}" for cost in costs or panel.printed_grid.costs])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y")


def _legend() -> list[Line2D | Patch]:
    dot: dict[str, Any] = {"marker": "o", "markersize": 7, "linewidth": 1.2}
    return [
        Line2D([], [], color=INK, **dot, label="constant Euler steps, own solver"),
        Line2D([], [], color=FAINT, markerfacecolor="white", **dot, label="the same models, check solver"),
        Patch(color=GRID, label="where the check begins to pass"),
        Line2D([], [], color=ADAPTED, marker="D", markersize=8, linewidth=0, label="Algorithm 2"),
        Line2D([], [], color=FAINT, marker="o", markersize=4, linewidth=0, label="small: one seed"),
        Line2D([], [], color=PRINTED, marker="|", markersize=9, linewidth=1.6, label="printed: grid search, less one"),
        Line2D([], [], color=PRINTED, marker="*", markersize=13, linewidth=0, label="printed: step adaptation"),
    ]
