"""The figures: each function checks its arrays, draws on a Figure of its own and saves a PNG atomically.

Shapes: S solver steps, N points in the plane, K numbers of test steps, R x C a grid over the plane.
No pyplot: its global state would leak between figures, and into the notebook of whoever calls this.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from windermere.errors import UsageError
from windermere.records.atomic import write_atomically

Array = NDArray[Any]

DPI = 150
INK = "#22272e"
FAINT = "#8a94a0"
GRID = "#dfe3e8"
CLASSES = ("#0072b2", "#d55e00")
"""Okabe and Ito's blue and vermilion, which people of any colour vision tell apart."""
REGIONS = ("#e3eff7", "#fbeade")
"""The same, as a background."""
MEMBERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's other colours too, for the seeds of an ensemble."""
PIECES = 150
"""A curve of at least twice as many rows is drawn as means over so many pieces."""

house_style = style.context(
    [
        "default",
        {
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": FAINT,
            "axes.titlesize": 12,
            "axes.titlepad": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": GRID,
            "legend.edgecolor": GRID,
        },
    ]
)
"""Around every figure, and gone after it: no figure depends on the user's settings, or changes them."""


# ---------------------------------------------------------------------------------------------------------
# What goes in


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A square piece of the plane."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, states: Array, margin: float = 0.06) -> Self:
        """The smallest square around all states [..., 2], and a margin."""
        low, high = states.reshape(-1, 2).min(axis=0), states.reshape(-1, 2).max(axis=0)
        centre, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-6) * (1 + 2 * margin)
        (left, bottom), (right, top) = centre - half, centre + half
        return cls(left=float(left), right=float(right), bottom=float(bottom), top=float(top))

    def grid(self, resolution: int) -> tuple[Array, Array]:
        """x and y [resolution, resolution] of points that cover the frame: where to ask a classifier."""
        x = np.linspace(self.left, self.right, resolution)
        y = np.linspace(self.bottom, self.top, resolution)
        xx, yy = np.meshgrid(x, y)
        return xx, yy


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionRegions:
    """What a classifier says of each point of a grid over the plane."""

    xx: Array
    """[R, C]"""
    yy: Array
    """[R, C]"""
    predicted: Array
    """[R, C], 0 or 1"""

    def __post_init__(self) -> None:
        shape = np.shape(self.predicted)
        if len(shape) != 2 or min(shape) < 2 or np.shape(self.xx) != shape or np.shape(self.yy) != shape:
            shapes = f"{np.shape(self.xx)}, {np.shape(self.yy)} and {shape}"
            raise UsageError(f"xx, yy and predicted must share one shape [R, C] of at least 2 x 2, not {shapes}")
        _check_classes("predicted", self.predicted)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrajectoryPanel:
    """One model: its solver's walk through the plane, and its accuracy with any number of test steps."""

    title: str
    """The message: "trained with 2 Euler steps: leans on its solver"."""
    states: Array
    """[S + 1, N, 2], the start included"""
    labels: Array
    """[N], 0 or 1"""
    test_steps: Array
    """[K], increasing, with the number of steps it was trained with among them"""
    accuracy: Array
    """[K], between 0 and 1"""
    trained_steps: int
    decision: DecisionRegions | None = None
    """What the layer after the flow says of its end points."""

    def __post_init__(self) -> None:
        _check_states(self.states)
        points = self.states.shape[1]
        if np.shape(self.labels) != (points,):
            raise UsageError(f"labels must have shape [{points}], one for each point, not {np.shape(self.labels)}")
        _check_classes("labels", self.labels)
        _check_accuracy(self.test_steps, self.accuracy)
        if self.trained_steps not in np.asarray(self.test_steps):
            raise UsageError(f"trained_steps = {self.trained_steps} must be one of test_steps, to be marked there")


def _check_states(states: Array) -> None:
    shape = np.shape(states)
    if len(shape) != 3 or shape[2] != 2 or shape[0] < 2 or shape[1] < 1:
        raise UsageError(f"states must have shape [steps + 1, points, 2], not {shape}")
    broken = int((~np.isfinite(states).all(axis=(0, 2))).sum())
    if broken:
        raise UsageError(f"states must be finite: {broken} of {shape[1]} trajectories are not, leave those out")


def _check_classes(name: str, values: Array) -> None:
    strange = np.setdiff1d(values, (0, 1))
    if strange.size:
        raise UsageError(f"{name} must be classes 0 and 1, and {strange[0]} is among them")


def _check_accuracy(test_steps: Array, accuracy: Array) -> None:
    shapes = f"{np.shape(test_steps)} and {np.shape(accuracy)}"
    if np.ndim(test_steps) != 1 or np.shape(test_steps) != np.shape(accuracy) or np.size(test_steps) < 1:
        raise UsageError(f"test_steps and accuracy must share one shape [tests], not {shapes}")
    if np.any(np.asarray(test_steps) < 1) or np.any(np.diff(test_steps) <= 0):
        raise UsageError("test_steps must be positive and increasing")
    if not np.all((np.asarray(accuracy) >= 0) & (np.asarray(accuracy) <= 1)):
        raise UsageError("accuracy must lie between 0 and 1")


# ---------------------------------------------------------------------------------------------------------
# Trajectories: the paper's Figure 1


@house_style
def draw_trajectories(panels: Sequence[TrajectoryPanel], path: Path) -> None:
    """Each model's trajectories above its accuracy with other numbers of steps, side by side, as a PNG."""
    if not panels:
        raise UsageError("there is nothing to draw: give at least one TrajectoryPanel")
    figure = _figure(5.0 * len(panels), 8.5)
    rows = figure.subplots(2, len(panels), squeeze=False, height_ratios=(5.0, 2.6))
    for panel, plane, curve in zip(panels, rows[0], rows[1], strict=True):
        _draw_plane(plane, panel)
        _draw_accuracy(curve, panel)
    rows[1, 0].set_ylabel("test accuracy")
    handles = _plane_legend(shaded=any(panel.decision is not None for panel in panels))
    columns = 3 if len(panels) == 1 else len(handles)  # what is as wide as the figure
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    _save(figure, path)


def _draw_plane(axes: Axes, panel: TrajectoryPanel) -> None:
    frame = Frame.around(panel.states)
    colors = np.array(CLASSES)[np.asarray(panel.labels, dtype=int)]
    if panel.decision is not None:
        _shade(axes, panel.decision)
    lines = panel.states.transpose(1, 0, 2)
    axes.add_collection(LineCollection(list(lines), colors=colors, linewidths=0.6, alpha=0.45, zorder=2))
    start, end = panel.states[0].T, panel.states[-1].T
    axes.scatter(start[0], start[1], s=4, c=colors, linewidths=0, alpha=0.9, zorder=3)
    axes.scatter(end[0], end[1], s=22, c=colors, linewidths=0.4, edgecolors="white", zorder=4)
    axes.set(xlim=(frame.left, frame.right), ylim=(frame.bottom, frame.top), aspect="equal")
    axes.set_title(_wrapped(panel.title))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))


def _shade(axes: Axes, decision: DecisionRegions) -> None:
    colors = ListedColormap(REGIONS)
    axes.contourf(decision.xx, decision.yy, decision.predicted, levels=(-0.5, 0.5, 1.5), cmap=colors, zorder=0)


def _wrapped(title: str, width: int = 46) -> str:
    """A title in lines that fit a panel, broken at its colon if anywhere."""
    if len(title) <= width:
        return title
    parts = title.replace(": ", ":\n", 1).splitlines()
    return "\n".join(textwrap.fill(part, width) for part in parts)


def _plane_legend(*, shaded: bool) -> list[Line2D | Patch]:
    """Words for both classes, both ends of a trajectory, and the background."""
    classes = [Line2D([], [], color=color, label=f"class {n}", linewidth=2) for n, color in enumerate(CLASSES)]
    start = Line2D([], [], color=FAINT, marker="o", markersize=2.5, linewidth=0, label="start")
    end = Line2D([], [], color=FAINT, marker="o", markersize=6, linewidth=0, label="end")
    region = Patch(facecolor=REGIONS[0], edgecolor=GRID, label="shaded: decided as that class")
    return [*classes, start, end, *([region] if shaded else [])]


def _draw_accuracy(axes: Axes, panel: TrajectoryPanel) -> None:
    steps, accuracy = np.asarray(panel.test_steps), np.asarray(panel.accuracy)
    own = steps == panel.trained_steps
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
    axes.set(xlabel="solver steps at test time", ylim=(min(0.4, float(accuracy.min()) - 0.02), 1.02))
    axes.grid()
    axes.legend(fontsize=8.5, loc="best")


# ---------------------------------------------------------------------------------------------------------
# Training


@house_style
def draw_training(members: Sequence[Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Loss and accuracy over the iterations, a line for each member's rows of metrics, as a PNG.

    Rows need `iteration` and `loss`; accuracy is `test_accuracy` in those rows that have it or, if none has,
    `accuracy`, that of the training batches. A null (a number that was not finite) leaves a gap.
    """
    if not members or not all(members):
        raise UsageError("there is nothing to draw: each member needs at least one row of metrics")
    figure = _figure(8.0, 6.5)
    upper, lower = figure.subplots(2, 1, sharex=True)
    tested = any("test_accuracy" in row for rows in members for row in rows)
    _draw_curves(upper, [_curve(rows, "loss") for rows in members])
    _draw_curves(lower, [_curve(rows, "test_accuracy" if tested else "accuracy") for rows in members])
    _scale_loss(upper)
    upper.set(ylabel="training loss")
    lower.set(xlabel="iteration", ylabel="test accuracy" if tested else "accuracy on the training batch")
    lower.set_ylim(top=1.02)
    handles = _member_legend([f"seed {rows[0].get('seed', index)}" for index, rows in enumerate(members)])
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 7), frameon=False)
    _save(figure, path)


@dataclass(frozen=True, eq=False)
class _Curve:
    iterations: Array
    values: Array


def _curve(rows: Sequence[Mapping[str, Any]], key: str) -> _Curve:
    """The rows that have `key`; None becomes not a number, which leaves a gap."""
    there = [row for row in rows if "iteration" in row and key in row]
    if not there:
        raise UsageError(f"no row of metrics has both 'iteration' and '{key}': draw a run that has logged them")
    try:
        iterations = np.array([row["iteration"] for row in there], dtype=float)
        values = np.array([row[key] for row in there], dtype=float)
    except (TypeError, ValueError) as error:
        raise UsageError(f"'iteration' and '{key}' must be numbers, one member's in each row: {error}") from error
    if values.ndim != 1:
        raise UsageError(f"'{key}' must be one member's number in each row, not {values.shape[1:]} of them")
    return _Curve(iterations, values)


def _is_noisy(curve: _Curve) -> bool:
    return len(curve.values) >= 2 * PIECES


def _smooth(curve: _Curve) -> _Curve:
    """Means over consecutive pieces of the curve, of what is finite in each."""
    finite = np.isfinite(curve.values)
    starts = np.linspace(0, len(curve.values), PIECES, endpoint=False).astype(int)
    counts = np.add.reduceat(finite.astype(float), starts)
    sums = np.add.reduceat(np.where(finite, curve.values, 0.0), starts)
    sizes = np.diff(np.append(starts, len(curve.values)))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return _Curve(np.add.reduceat(curve.iterations, starts) / sizes, means)


def _draw_curves(axes: Axes, curves: Sequence[_Curve]) -> None:
    """A line for each member; where there are many batches, their means in bold over the faint batches."""
    for index, curve in enumerate(curves):
        color = MEMBERS[index % len(MEMBERS)]
        if _is_noisy(curve):
            axes.plot(curve.iterations, curve.values, color=color, linewidth=0.4, alpha=0.18, zorder=2)
        line = _smooth(curve) if _is_noisy(curve) else curve
        marker = "o" if len(line.values) <= 40 else ""
        axes.plot(line.iterations, line.values, color=color, marker=marker, markersize=3.5, linewidth=1.4)
    if any(map(_is_noisy, curves)):
        axes.set_title("faint: each row of metrics, bold: their means", fontsize=9, loc="right", color=FAINT)
    axes.grid()


def _scale_loss(axes: Axes) -> None:
    """A logarithmic axis, unless no loss is positive."""
    losses = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
    if np.any(losses > 0):
        axes.set_yscale("log")


def _member_legend(names: Sequence[str]) -> list[Line2D]:
    colors = [MEMBERS[index % len(MEMBERS)] for index in range(len(names))]
    return [Line2D([], [], color=color, label=name, linewidth=2) for name, color in zip(names, colors, strict=True)]


# ---------------------------------------------------------------------------------------------------------
# All figures


def _figure(width: float, height: float) -> Figure:
    """A white figure of a size in inches, laid out so that no two texts overlap."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")


def _save(figure: Figure, path: Path) -> None:
    """Saves a PNG in one step; the same drawing gives the same bytes."""
    png = BytesIO()
    figure.savefig(png, format="png", dpi=DPI)
    write_atomically(path, png.getvalue())
