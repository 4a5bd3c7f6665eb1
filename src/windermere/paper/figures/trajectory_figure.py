"""Trajectories through the plane, and what a model scores with other numbers of steps: the paper's Figure 1.

Shapes: S solver steps, N points in the plane, K numbers of test steps, M seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from windermere.report.frame import DecisionRegions, Frame
from windermere.report.palette import FAINT, INK, Array
from windermere.report.plane import add_inset, draw_plane, plane_legend
from windermere.report.style import house_style, new_figure, save, wrapped

NEAR, FAR = 5.0, 2.5
"""What is seen of the plane is so many times as wide as where the points start, and the whole is an inset, where
trajectories go so many times farther than that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrajectoryPanel:
    """One model: its solver's walk through the plane, and its accuracy with any number of test steps."""

    title: str
    """The message: "trained with 2 Euler steps: leans on its solver"."""
    states: Array
    """[S + 1, N, 2], the start included"""
    labels: Array
    """[N], classes from 0 to 9"""
    test_steps: Array
    """[K], increasing, with the number of steps it was trained with among them"""
    accuracy: Array
    """[K], between 0 and 1; or [M, K], that of the seed whose trajectories these are first"""
    trained_steps: int
    decision: DecisionRegions | None = None
    """What the layer after the flow says of its end points."""
    near: DecisionRegions | None = None
    """The same of what `near_frame` gives, where that is not None."""


def near_frame(states: Array) -> Frame | None:
    """A piece of the plane around where the points of trajectories [S + 1, N, 2] start; None where all of it is not
    much more."""
    near = Frame.around(states[0], margin=(NEAR - 1) / 2)
    return near if Frame.around_most(states).width > FAR * near.width else None


@house_style
def draw_trajectories(panels: Sequence[TrajectoryPanel], path: Path | str) -> None:
    """Each model's trajectories above its accuracy with other numbers of steps, side by side, as PNG or SVG."""
    figure = new_figure(5.0 * len(panels), 8.5)
    rows = figure.subplots(2, len(panels), squeeze=False, height_ratios=(5.0, 2.6))
    letters = [f"({chr(97 + n)})" for n in range(2 * len(panels))]
    for number, (panel, plane, curve) in enumerate(zip(panels, rows[0], rows[1], strict=True)):
        draw_trajectory_panel(plane, panel)
        title, outside = f"{letters[number]} {panel.title}", Frame.around_most(panel.states).left_out(panel.states)
        plane.set_title("\n".join(filter(None, (wrapped(title), outside))))
        draw_accuracy_panel(curve, panel)
        curve.set_title(f"{letters[len(panels) + number]} tested with other numbers of steps", fontsize=10.5)
        curve.legend(fontsize=8.5, loc="best")
    rows[1, 0].set_ylabel("test accuracy")
    handles = trajectory_legend(panels)
    columns = 3 if len(panels) == 1 else len(handles)  # what is as wide as the figure
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    save(figure, path)


def trajectory_legend(panels: Sequence[TrajectoryPanel]) -> list[Line2D | Patch]:
    classes = max(2, *(int(np.max(panel.labels)) + 1 for panel in panels))
    return plane_legend(classes, shaded=any(panel.decision is not None for panel in panels))


def draw_trajectory_panel(axes: Axes, panel: TrajectoryPanel) -> None:
    """The trajectories near their start, and all of them in an inset, or all of them at once."""
    whole, near = Frame.around_most(panel.states), near_frame(panel.states)
    draw_plane(axes, panel.states, panel.labels, near or whole, panel.near if near else panel.decision)
    if near is not None:
        inset = add_inset(axes, near, panel.states)
        draw_plane(inset, panel.states, panel.labels, whole, panel.decision)
        inset.set(xticks=[], yticks=[])
        inset.set_title(f"all of it, {whole.width:.0f} wide", fontsize="small", pad=2)
        inset.set_rasterization_zorder(10)  # in a PDF: it has as many lines as the rest


def draw_accuracy_panel(axes: Axes, panel: TrajectoryPanel) -> None:
    steps, (accuracy, *seeds) = np.asarray(panel.test_steps), np.atleast_2d(panel.accuracy)
    own = steps == panel.trained_steps
    for index, other in enumerate(seeds):
        label = None if index else f"{len(seeds)} other seed{'s' if len(seeds) > 1 else ''}"
        axes.plot(steps, other, color=FAINT, linewidth=0.8, linestyle="--", marker=".", zorder=1, label=label)
    axes.plot(steps, accuracy, color=FAINT, linewidth=1.2, zorder=2)
    axes.plot(
        steps[own], accuracy[own], "o", color=INK, markersize=9, zorder=4,
        label="the number of steps it was trained with",
    )  # fmt: skip
    axes.plot(
        steps[~own], accuracy[~own], "o", color="white", markeredgecolor=FAINT, markersize=7, zorder=3,
        label="other numbers of steps, the same weights",
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(steps, [f"{count:g}" for count in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="solver steps at test time", ylim=(min(0.4, float(np.min(panel.accuracy)) - 0.02), 1.02))
    axes.grid()
