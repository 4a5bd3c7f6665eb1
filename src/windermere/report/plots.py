"""The figures of runs: each function checks its arrays, draws on a Figure of its own and saves a PNG atomically.

Shapes: S solver steps, N points in the plane, K numbers of test steps, M seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from windermere.errors import UsageError
from windermere.report.plane import DecisionRegions, Frame, check_labels, check_states, draw_plane, plane_legend
from windermere.report.style import FAINT, INK, MEMBERS, Array, house_style, new_figure, save, wrapped

PIECES = 150
"""A curve of at least twice as many rows is drawn as means over so many pieces."""


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

    def __post_init__(self) -> None:
        check_states("states", self.states)
        check_labels("labels", self.labels, self.states.shape[1])
        _check_accuracy(self.test_steps, self.accuracy)
        if self.trained_steps not in np.asarray(self.test_steps):
            raise UsageError(f"trained_steps = {self.trained_steps} must be one of test_steps, to be marked there")


def _check_accuracy(test_steps: Array, accuracy: Array) -> None:
    shapes = f"{np.shape(test_steps)} and {np.shape(accuracy)}"
    if np.ndim(test_steps) != 1 or np.shape(test_steps) != np.shape(accuracy)[-1:] or np.size(accuracy) < 1:
        raise UsageError(f"test_steps and accuracy must share one shape [tests], not {shapes}")
    if np.any(np.asarray(test_steps) < 1) or np.any(np.diff(test_steps) <= 0):
        raise UsageError("test_steps must be positive and increasing")
    if not np.all((np.asarray(accuracy) >= 0) & (np.asarray(accuracy) <= 1)):
        raise UsageError("accuracy must lie between 0 and 1")


# ---------------------------------------------------------------------------------------------------------
# Trajectories: the paper's Figure 1


@house_style
def draw_trajectories(panels: Sequence[TrajectoryPanel], path: Path | str) -> None:
    """Each model's trajectories above its accuracy with other numbers of steps, side by side, as a PNG."""
    if not panels:
        raise UsageError("there is nothing to draw: give at least one TrajectoryPanel")
    figure = new_figure(5.0 * len(panels), 8.5)
    rows = figure.subplots(2, len(panels), squeeze=False, height_ratios=(5.0, 2.6))
    for panel, plane, curve in zip(panels, rows[0], rows[1], strict=True):
        draw_plane(plane, panel.states, panel.labels, Frame.around_most(panel.states), panel.decision)
        plane.set_title(wrapped(panel.title))
        _draw_accuracy(curve, panel)
    rows[1, 0].set_ylabel("test accuracy")
    classes = max(2, *(int(np.max(panel.labels)) + 1 for panel in panels))
    handles = plane_legend(classes, shaded=any(panel.decision is not None for panel in panels))
    columns = 3 if len(panels) == 1 else len(handles)  # what is as wide as the figure
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    save(figure, path)


def _draw_accuracy(axes: Axes, panel: TrajectoryPanel) -> None:
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
    axes.legend(fontsize=8.5, loc="best")


# ---------------------------------------------------------------------------------------------------------
# Training


@house_style
def draw_training(members: Sequence[Sequence[Mapping[str, Any]]], path: Path | str) -> None:
    """Loss and accuracy over the iterations, a line for each member's rows of metrics, as a PNG.

    Rows need `iteration` and `loss`; accuracy is `test_accuracy` in those rows that have it or, if none has,
    `accuracy`, that of the training batches. A null (a number that was not finite) leaves a gap.
    """
    if not members or not all(members):
        raise UsageError("there is nothing to draw: each member needs at least one row of metrics")
    figure = new_figure(8.0, 6.5)
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
    save(figure, path)


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
