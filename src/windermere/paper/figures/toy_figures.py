"""The figures of what is not trained: Lady Windermere's fan (Figure 3), the field of Appendix A, and Appendix B's data.

Shapes: S solver steps, N points in the plane, K step sizes, A arrows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from windermere.report.frame import Frame
from windermere.report.palette import CLASSES, FAINT, INK, LINES, MARKERS, Array
from windermere.report.plane import fit
from windermere.report.style import house_style, new_figure, save

OUTCOMES = {"separable": "o", "not separable": "o", "blows up": "x"}
"""What can become of points, from the top down, and the sign of each; only "separable" is filled."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FanPanel:
    """Where one step takes a few points, and a line between the classes where there is one."""

    title: str
    outcome: str
    states: Array
    """[S + 1, N, 2]"""
    labels: Array
    """[N]"""
    line: tuple[float, float, float] | None
    """a, b, c of a x + b y = c"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ladder:
    """What became of the points at each of many steps."""

    steps: Array
    """[K]"""
    outcomes: Sequence[str]
    """K of OUTCOMES"""
    flow: str
    """What became of them under the flow itself."""
    marked: Mapping[str, float]
    """The steps of the panels beside it, by their letters."""


@house_style
def draw_fan(panels: Sequence[FanPanel], ladder: Ladder, path: Path | str) -> None:
    """Where each panel's trajectories end, with all of their way in an inset; below, which steps leave the points
    separable."""
    figure = new_figure(5.0 * len(panels), 7.4)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(5.0, 2.3))[:, 0]
    draw_fan_panels(above.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0], panels)
    for axes, panel in zip(above.axes, panels, strict=False):
        axes.set_title(f"{panel.title}: {panel.outcome}")
    above.legend(handles=fan_legend(panels), loc="outside lower center", ncols=5, frameon=False)
    axes = below.subplots()
    draw_ladder(axes, ladder)
    axes.set_title("(c) Which steps leave the four points linearly separable", pad=8)
    axes.legend(loc="upper right", fontsize=9)
    save(figure, path)


def draw_fan_panels(row: Sequence[Axes], panels: Sequence[FanPanel], scale: float = 1.0) -> None:
    """Trajectories around where all of them start and end, so that both panels have one scale."""
    seen = np.concatenate([panel.states[[0, -1]].reshape(-1, 2) for panel in panels])
    for axes, panel in zip(row, panels, strict=True):
        _draw_fan_panel(axes, panel, seen, scale)
        inset = axes.inset_axes((0.03, 0.04, 0.36, 0.36))
        _draw_fan_panel(inset, panel, panel.states.reshape(-1, 2), 0.5 * scale)
        inset.spines[:].set(visible=True, color=INK)
        inset.set_title("all of it", fontsize="small", pad=2)
        inset.set(xticks=[], yticks=[])


def _draw_fan_panel(axes: Axes, panel: FanPanel, seen: Array, scale: float) -> None:
    """What lies around the points [..., 2] seen. No equal axes: these ellipses are too slender to be seen in them."""
    for path, label in zip(panel.states.transpose(1, 0, 2), panel.labels, strict=True):
        look: dict[str, Any] = {"color": CLASSES[label], "marker": MARKERS[label], "zorder": 4}
        axes.plot(*path.T, color=CLASSES[label], linestyle=LINES[label], linewidth=1.2 * scale, zorder=2)
        axes.plot(*path[0], **{**look, "color": "white"}, markeredgecolor=CLASSES[label], markersize=6 * scale)
        axes.plot(*path[-1], **look, markeredgecolor="white", markersize=10 * scale)
    low, high = seen.min(axis=0), seen.max(axis=0)
    (left, bottom), (right, top) = low - 0.12 * (high - low), high + 0.12 * (high - low)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    if panel.line is not None:
        a, b, c = panel.line
        line: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.8 * scale, "zorder": 3}
        axes.axline((a * c, b * c), (a * c - b, b * c + a), **line)
    axes.grid()


def fan_legend(panels: Sequence[FanPanel]) -> list[Line2D]:
    labels = sorted({int(label) for panel in panels for label in panel.labels})
    handles = [
        Line2D([], [], color=CLASSES[n], marker=MARKERS[n], linestyle=LINES[n], markersize=8, label=f"class {n}")
        for n in labels
    ]
    start = Line2D([], [], color="white", marker="o", markeredgecolor=FAINT, markersize=7, label="start")
    end = Line2D([], [], color=FAINT, marker="o", markersize=10, linewidth=0, label="end")
    line = Line2D([], [], color=INK, linestyle=":", linewidth=1.8, label="a line between the classes")
    return [*handles, start, end, *([line] if any(panel.line for panel in panels) else [])]


def draw_ladder(axes: Axes, ladder: Ladder, size: float = 6.0) -> None:
    heights = {outcome: -i for i, outcome in enumerate(OUTCOMES)}
    for outcome, marker in OUTCOMES.items():
        steps = np.asarray(ladder.steps)[[found == outcome for found in ladder.outcomes]]
        inside = INK if outcome != "not separable" else "white"
        axes.plot(
            steps, np.full(len(steps), heights[outcome]), marker, color=inside, markeredgecolor=INK, markersize=size
        )
    axes.axhline(heights[ladder.flow], color=FAINT, linestyle="--", linewidth=1.0, zorder=0, label="the flow itself")
    for letter, step in ladder.marked.items():
        axes.axvline(step, color=FAINT, linestyle=":", linewidth=1.2, zorder=0)
        axes.annotate(f"({letter})", (step, 0.45), (3, 0), textcoords="offset points", color=INK, va="center")
    axes.set_yticks(list(heights.values()), list(heights))
    axes.set(xscale="log", xlabel="step size of Euler's method", ylim=(-len(OUTCOMES) + 0.5, 0.7))
    axes.invert_xaxis()


# ---------------------------------------------------------------------------------------------------------
# Appendix A


@dataclass(frozen=True, kw_only=True, eq=False)
class Quiver:
    """A field in the plane."""

    places: Array
    """[A, 2]"""
    rates: Array
    """[A, 2]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Walks:
    """The polygons that a solver walks from two or more sets of points."""

    title: str
    states: Array
    """[S + 1, N, 2]"""
    sets: Array
    """[N], from 0 on"""


@house_style
def draw_crossing_field(quiver: Quiver, panels: Sequence[Walks], names: Sequence[str], path: Path | str) -> None:
    """The field first, then what a solver makes of it, in rows of two; `names` are the sets'."""
    rows = (len(panels) + 2) // 2
    figure = new_figure(10.5, 3.6 * rows + 0.3)
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True)
    first, *others = grid.ravel()
    draw_quiver(first, quiver)
    first.set_title("(a) directions of the field")
    for axes, panel in zip(others, panels, strict=False):
        draw_walks(axes, panel)
        axes.set_title(panel.title)
    for axes in grid[:, 0]:
        axes.set_ylabel("y")
    for axes in grid[-1]:
        axes.set_xlabel("x")
    handles = walks_legend(names)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    save(figure, path)


def draw_quiver(axes: Axes, quiver: Quiver) -> None:
    directions = quiver.rates / np.linalg.norm(quiver.rates, axis=1, keepdims=True)
    axes.quiver(*quiver.places.T, *directions.T, color=INK, angles="xy", pivot="mid", scale=32, width=0.0032)


def walks_legend(names: Sequence[str]) -> list[Line2D]:
    return [
        Line2D([], [], color=CLASSES[n], linestyle=LINES[n], marker=MARKERS[n], markersize=5, label=name)
        for n, name in enumerate(names)
    ]


def draw_walks(axes: Axes, panel: Walks) -> None:
    """Each step's end is marked, unless there are many."""
    for path, label in zip(panel.states.transpose(1, 0, 2), panel.sets, strict=True):
        every = None if len(path) <= 10 else [0, len(path) - 1]
        axes.plot(
            *path.T, color=CLASSES[label], linestyle=LINES[label], linewidth=1.0,
            marker=MARKERS[label], markersize=3.5, markevery=every,
        )  # fmt: skip
    axes.grid()


# ---------------------------------------------------------------------------------------------------------
# Appendix B


@house_style
def draw_classes(points: Array, labels: Array, title: str, path: Path | str) -> None:
    """Points [N, 2] of a data set in the colours of their classes [N]."""
    figure = new_figure(5.0, 5.5)
    axes = figure.subplots()
    draw_points(axes, points, labels)
    axes.set_title(title)
    figure.legend(loc="outside lower center", ncols=10, frameon=False, markerscale=2)
    save(figure, path)


def draw_points(axes: Axes, points: Array, labels: Array, size: float = 3.5) -> None:
    for n in np.unique(labels).astype(int):
        axes.plot(
            *points[labels == n].T, color=CLASSES[n], marker=MARKERS[n], label=f"class {n}",
            markersize=size, markeredgewidth=0, linewidth=0, alpha=0.7, rasterized=True,
        )  # fmt: skip
    fit(axes, Frame.around(points))
