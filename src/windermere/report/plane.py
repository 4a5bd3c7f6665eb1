"""The plane: trajectories through it, coloured by class, over the regions of a classifier's decisions.

Shapes: S solver steps, N points in the plane, R x C a grid over the plane.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from windermere.report.frame import DecisionRegions, Frame
from windermere.report.palette import CLASSES, FAINT, GRID, HATCHES, INK, LINES, MARKERS, REGIONS, Array

INSET = 0.42
"""Its width and height as shares of the plane's."""
CORNERS = ((0.02, 0.56), (0.56, 0.02), (0.56, 0.56), (0.02, 0.02))
"""Where an inset may have its lower left corner; the first of the emptiest is taken."""


def draw_plane(axes: Axes, states: Array, labels: Array | None, frame: Frame, decision: DecisionRegions | None) -> None:
    """Trajectories [S + 1, N, 2] from small dots to large marks, in the colour and the shape of their class [N], all
    alike without classes."""
    if decision is not None:
        shade(axes, decision)
    classes = np.zeros(states.shape[1], int) if labels is None else np.asarray(labels).astype(int)
    for label in np.unique(classes):
        own, color = states[:, classes == label], CLASSES[label]
        lines = LineCollection(list(own.transpose(1, 0, 2)), colors=color, linestyles=[LINES[label]])
        lines.set(linewidths=0.6, alpha=0.45, zorder=2)
        axes.add_collection(lines)
        (x, y), (end_x, end_y) = own[0].T, own[-1].T
        axes.scatter(x, y, s=4, c=color, linewidths=0, alpha=0.9, zorder=3)
        axes.scatter(end_x, end_y, s=22, c=color, marker=MARKERS[label], linewidths=0.4, edgecolors="white", zorder=4)
    fit(axes, frame)


def fit(axes: Axes, frame: Frame) -> None:
    """The frame, in equal axes, with few ticks."""
    axes.set(xlim=(frame.left, frame.right), ylim=(frame.bottom, frame.top), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))


def add_inset(axes: Axes, frame: Frame, points: Array) -> Axes:
    """A smaller plane inside one that shows a frame, in the corner with the fewest of the points [..., 2]."""
    low, high = frame.corners
    places = (points.reshape(-1, 2) - low) / (high - low)
    covered = [int(((places >= corner) & (places <= np.add(corner, INSET))).all(axis=1).sum()) for corner in CORNERS]
    inset = axes.inset_axes((*CORNERS[int(np.argmin(covered))], INSET, INSET))
    inset.spines[:].set(visible=True, color=INK)
    return inset


def shade(axes: Axes, decision: DecisionRegions) -> None:
    """Each class apart: one contour plot of all would put a seam of class 1 between classes 0 and 2."""
    for label in np.unique(decision.predicted).astype(int):
        inside = (np.asarray(decision.predicted) == label).astype(float)
        axes.contourf(
            decision.xx, decision.yy, inside, levels=(0.5, 1.5),
            colors=[REGIONS[label]], hatches=[HATCHES[label]], zorder=0,
        )  # fmt: skip


def plane_legend(classes: int, *, shaded: bool) -> list[Line2D | Patch]:
    """Words for the classes, both ends of a trajectory, and the background."""
    lines = [
        Line2D([], [], color=CLASSES[n], linestyle=LINES[n], marker=MARKERS[n], label=f"class {n}", linewidth=1.5)
        for n in range(classes)
    ]
    start = Line2D([], [], color=FAINT, marker="o", markersize=2.5, linewidth=0, label="start")
    end = Line2D([], [], color=FAINT, marker="o", markersize=6, linewidth=0, label="end")
    return [*lines, start, end, *(region_legend(classes) if shaded else [])]


def region_legend(classes: int) -> list[Patch]:
    return [
        Patch(facecolor=REGIONS[n], edgecolor=GRID, hatch=HATCHES[n], label=f"decided as class {n}")
        for n in range(classes)
    ]
