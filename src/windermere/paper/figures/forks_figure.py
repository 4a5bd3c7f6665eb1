"""Checks that fail, and what training with a smaller step changes: the paper's Figure 5 (c, d), and all seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from windermere.paper.figures.adaptation_figure import SIGNS
from windermere.paper.figures.grid_layout import MARKS
from windermere.report.palette import CLASSES, FAINT, INK, MEMBERS
from windermere.report.style import house_style, new_figure, save

BEFORE, AFTER = CLASSES[1], CLASSES[2]
MARKED = 8
"""At most so many checks are marked: the first one in each of so many equal parts of the training."""


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A check that failed, and its model some iterations later, trained with half the step: test accuracies at both."""

    iteration: int
    own: tuple[float, float]
    midpoint: tuple[float, float]
    rk4: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ForksFigure:
    """One seed's way by review, and the means of all seeds."""

    title: str
    seed: int
    iterations: Sequence[int]
    steps: Sequence[int]
    accuracy: Sequence[float]
    forks: Sequence[Fork]
    every: int
    """Iterations of training after a check."""
    seeds: Sequence[int]
    flow: Sequence[tuple[float, float, float]]
    """For each seed, the accuracy under the flow at the checks, and after training with half the step and the same."""

    @property
    def marked(self) -> list[Fork]:
        parts = {int(MARKED * fork.iteration / (self.iterations[-1] + 1)): fork for fork in reversed(self.forks)}
        return [parts[part] for part in sorted(parts)]


@house_style
def draw_forks(what: ForksFigure, path: Path | str) -> None:
    """One seed's accuracy and steps below each other, and beside them all seeds."""
    figure = new_figure(11.0, 5.2)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(2.5, 1.0))[0]
    accuracy, steps = left.subplots(2, 1, sharex=True, height_ratios=(1.7, 1.0))
    draw_accuracy_at_forks(accuracy, what)
    draw_steps_at_forks(steps, what)
    accuracy.set_title(f"(c) seed {what.seed}, at {len(what.marked)} of its {len(what.forks)} failing checks")
    steps.set_title("(d) number of steps")
    left.legend(handles=fork_legend(what), loc="outside lower center", ncols=3, frameon=False)
    axes = right.subplots()
    _draw_seeds(axes, what)
    axes.set_title("(e) all seeds, all failing\nchecks, under the flow")
    right.legend(handles=_seed_legend(what.seeds), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(what.title)
    save(figure, path)


def draw_accuracy_at_forks(axes: Axes, what: ForksFigure, size: float = 7) -> None:
    """Test accuracy over training, and that of finer solvers at the marked checks (hollow) and after them (filled)."""
    axes.plot(what.iterations, what.accuracy, color=INK, linewidth=0.9, zorder=2)
    for fork in what.marked:
        for values, mark in ((fork.midpoint, MARKS["midpoint"]), (fork.rk4, MARKS["rk4"])):
            places = (fork.iteration, fork.iteration + what.every)
            axes.plot(places, values, color=FAINT, linewidth=0.9, zorder=3)
            for place, value, colour in zip(places, values, (BEFORE, AFTER), strict=True):
                axes.plot(place, value, marker=mark, color=colour, markersize=size, linestyle="", zorder=4)
    _mark(axes, what)
    axes.set(ylabel="test accuracy")


def draw_steps_at_forks(axes: Axes, what: ForksFigure) -> None:
    axes.step(what.iterations, what.steps, where="pre", color=INK, linewidth=0.9)
    _mark(axes, what)
    axes.set(xlabel="iteration", ylabel="number of steps", xlim=(0, 1.01 * what.iterations[-1]))
    axes.set_ylim(bottom=0)


def _mark(axes: Axes, what: ForksFigure) -> None:
    """Where the marked checks are."""
    for fork in what.marked:
        axes.axvline(fork.iteration, color=BEFORE, linewidth=0.8, linestyle="--", zorder=1.5)
    axes.grid(axis="y")


def fork_legend(what: ForksFigure) -> list[Line2D]:
    look: dict[str, Any] = {"linestyle": "", "markersize": 6}
    moments = ((BEFORE, "at the check"), (AFTER, f"{what.every} iterations after it, trained with h/2"))
    return [
        Line2D([], [], color=INK, label="solver of training"),
        *(Line2D([], [], color=INK, marker=MARKS[m], label=m, **look) for m in ("midpoint", "rk4")),
        *(Line2D([], [], color=colour, linewidth=5, label=label) for colour, label in moments),
    ]


def _draw_seeds(axes: Axes, what: ForksFigure) -> None:
    """A line for each seed: the control, the check they have in common, and training with half the step."""
    for index, (before, smaller, same) in enumerate(what.flow):
        look: dict[str, Any] = {"color": MEMBERS[index % len(MEMBERS)], "marker": SIGNS[index % len(SIGNS)]}
        axes.plot((0, 1, 2), (same, before, smaller), linewidth=1.0, markersize=6, **look)
    after = f"{what.every} iterations\nlater, trained\nwith"
    axes.set_xticks((0, 1, 2), (f"{after} h", "at the\ncheck", f"{after} h/2"))
    axes.set(xlim=(-0.3, 2.3), ylabel="test accuracy")
    axes.grid(axis="y")


def _seed_legend(seeds: Sequence[int]) -> list[Line2D]:
    return [
        Line2D([], [], color=MEMBERS[n % len(MEMBERS)], marker=SIGNS[n % len(SIGNS)], label=f"seed {seed}")
        for n, seed in enumerate(seeds)
    ]
