"""Tuned samplers: own solver against flow over the cost of sampling, controllers among them, and the samples.

Shapes: S seeds, n samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator, SymmetricalLogLocator
from numpy.typing import NDArray

from windermere.report.palette import CLASSES, FAINT, GRID, INK, MARKERS
from windermere.report.style import add_legend, house_style, new_figure, save

OWN, FLOW = CLASSES[0], CLASSES[1]
LINEAR = 1e-3
"""Distances are without bias, so that small ones may be below 0: up to here the scale is linear."""


@dataclass(frozen=True, kw_only=True)
class TunedPoint:
    """What is tuned through one solver."""

    cost: float
    """Evaluations, by sample."""
    own: Sequence[float]
    """[S]"""
    flow: Sequence[float]
    """[S]"""


@dataclass(frozen=True, kw_only=True)
class TunedPanel:
    title: str
    score: str
    euler: Sequence[TunedPoint]
    midpoint: Sequence[TunedPoint]
    flow_before: Sequence[float]
    """[S]"""


@dataclass(frozen=True, kw_only=True)
class ControlledPanel:
    """Controllers by name, and constant steps for comparison."""

    title: str
    score: str
    constant: Sequence[TunedPoint]
    controllers: Sequence[tuple[str, Sequence[float], Sequence[float]]]
    """Name, costs [S] and what the flow scores [S]."""
    flow_before: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class SamplesPanel:
    title: str
    samples: NDArray[np.float64]
    """[n, 2]"""


@house_style
def draw_tuned(rows: Sequence[Sequence[TunedPanel]], path: Path) -> None:
    """A row of panels for each loss."""
    columns = max(map(len, rows))
    canvas = new_figure(3.7 * columns, 0.6 + 2.9 * len(rows), padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    every, letters = body.subplots(len(rows), columns, squeeze=False, sharex=True, sharey="row"), _letters()
    for line, panels in zip(every, rows, strict=True):
        for axes, panel in zip(line, panels, strict=False):
            _draw_panel(axes, panel)
            axes.set_title(f"{next(letters)} {panel.title}", fontsize=11)
        for axes in line[len(panels) :]:
            axes.set_visible(False)
        line[0].set_ylabel(panels[0].score)
    for axes in every[-1]:
        axes.set_xlabel("evaluations for a sample")
    add_legend(body, _signs())
    save(canvas, path)


def _letters() -> Iterator[str]:
    """(a), (b), ..."""
    return (f"({chr(97 + number)})" for number in count())


def _draw_panel(axes: Axes, panel: TunedPanel) -> None:
    """Lines through the means of Euler's steps, a dot for each seed, and midpoint's beside them."""
    _scale(axes, panel.flow_before)
    for points, filled in ((panel.euler, True), (panel.midpoint, False)):
        for k, (colour, marker) in enumerate(((OWN, MARKERS[0]), (FLOW, MARKERS[1]))):
            costs = [point.cost for point in points]
            values = [(point.own, point.flow)[k] for point in points]
            look = {"color": colour, "linestyle": "-" if filled else ":", "linewidth": 1.3 if filled else 1.0}
            axes.plot(costs, [float(np.mean(each)) for each in values], **look, zorder=3)  # type: ignore[arg-type]
            x, y = _spread(costs, values)
            face = colour if filled else "white"
            axes.scatter(x, y, s=13, marker=marker, facecolors=face, edgecolors=colour, linewidths=0.8, zorder=4)


def _spread(costs: Sequence[float], values: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """A point for each seed, all at their cost."""
    pairs = [(cost, value) for cost, each in zip(costs, values, strict=True) for value in each]
    return [cost for cost, _ in pairs], [value for _, value in pairs]


def _scale(axes: Axes, flow_before: Sequence[float]) -> None:
    """Logarithms on both axes, and between what the flow lay before tuning."""
    low, high = min(flow_before), max(flow_before)
    axes.axhspan(low, high, color=GRID, linewidth=0, zorder=0)
    axes.axhline(float(np.mean(flow_before)), color=FAINT, linewidth=1.0, zorder=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("symlog", linthresh=LINEAR)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _signs() -> list[Line2D | Patch]:
    signs: list[Line2D | Patch] = [
        Line2D([], [], color=OWN, marker=MARKERS[0], label="own solver"),
        Line2D([], [], color=FLOW, marker=MARKERS[1], label="under the flow"),
        Line2D([], [], color=INK, label="Euler"),
        Line2D([], [], color=INK, linestyle=":", marker="o", markerfacecolor="white", label="midpoint"),
        Patch(color=GRID, label="the flow before tuning"),
    ]
    return signs


@house_style
def draw_controlled(panels: Sequence[ControlledPanel], path: Path) -> None:
    """What each controller's flow scores, against its cost."""
    canvas = new_figure(4.8 * len(panels), 4.0, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    row = body.subplots(1, len(panels), squeeze=False)[0]
    names = list(dict.fromkeys(name for panel in panels for name, _, _ in panel.controllers))
    for axes, panel, letter in zip(row, panels, _letters(), strict=False):
        _scale(axes, panel.flow_before)
        axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=LINEAR, subs=(1, 2, 5)))
        means = [float(np.mean(point.flow)) for point in panel.constant]
        axes.plot([point.cost for point in panel.constant], means, color=INK, linewidth=1.0, zorder=2)
        for name, costs, flows in panel.controllers:
            k = names.index(name)
            axes.scatter(costs, flows, s=22, marker=MARKERS[k], color=CLASSES[k], linewidths=0, zorder=4)
        axes.set_title(f"{letter} {panel.title}", fontsize=11)
        axes.set_xlabel("evaluations per iteration, checks included")
        axes.set_ylabel(panel.score)
    signs: list[Line2D | Patch] = [
        Line2D([], [], color=CLASSES[k], marker=MARKERS[k], linestyle="", label=name) for k, name in enumerate(names)
    ]
    constant = Line2D([], [], color=INK, label="constant Euler steps")
    add_legend(body, [*signs, constant, Patch(color=GRID, label="the flow before tuning")])
    save(canvas, path)


@house_style
def draw_samples(rows: Sequence[Sequence[SamplesPanel]], path: Path) -> None:
    """Samples from the same noise, a row for each loss."""
    canvas = new_figure(2.4 * max(map(len, rows)), 2.7 * len(rows), padding=6 / 72)
    every = canvas.subplots(len(rows), max(map(len, rows)), squeeze=False, sharex=True, sharey=True)
    letters = _letters()
    for line, panels in zip(every, rows, strict=True):
        for axes, panel in zip(line, panels, strict=True):
            axes.scatter(*panel.samples.T, s=3, color=INK, alpha=0.55, linewidths=0)
            axes.set_title(f"{next(letters)} {panel.title}", fontsize=9)
            axes.set_box_aspect(1)
            axes.set_xlim(-3.2, 3.2)
            axes.set_ylim(-3.2, 3.2)
            axes.tick_params(labelsize=7)
    save(canvas, path)
