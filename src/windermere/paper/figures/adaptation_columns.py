"""Adapted runs side by side, a column for each: accuracy, checks, the precision, and all test solvers at the end."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from windermere.paper.figures.adaptation_figure import (
    Member,
    draw_accuracy,
    draw_evaluations,
    draw_gaps,
    draw_steps,
    draw_tolerances,
)
from windermere.report.palette import FAINT
from windermere.report.style import add_legend, house_style, new_figure, save, wrapped

LETTERS, SMALL_LETTERS = 58, 64
"""How many letters fit above a panel, in the usual print and in small print."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptedRun:
    """One column."""

    title: str
    detail: str
    """Words in small print below the title."""
    members: Sequence[Member]
    tolerances: bool
    """Whether it adapts tolerances, and not steps."""
    at_the_end: Mapping[str, Mapping[int, float]]
    """Test accuracy by test solver (its own one first), by seed."""
    check: str | None = None
    """Method of the finer solver."""
    threshold: float = 0.1


@house_style
def draw_adapted_runs(runs: Sequence[AdaptedRun], path: Path | str, *, title: str) -> Figure:
    """All columns share their scales."""
    seeds = sorted({member.seed for run in runs for member in run.members})
    members = [[replace(m, index=seeds.index(m.seed), of=len(seeds)) for m in run.members] for run in runs]
    tolerances = any(run.tolerances for run in runs)
    lower = (draw_gaps, *((draw_tolerances, draw_evaluations) if tolerances else (draw_steps,)))
    figure = new_figure(max(4.4 * len(runs), 7.4), 9.2 + 2.0 * tolerances, padding=5 / 72)
    heights = (2.6, *[2.0] * len(lower), 2.0)
    panels = figure.subplots(len(heights), len(runs), squeeze=False, height_ratios=heights)
    letters = iter(f"({chr(97 + n)})" for n in range(panels.size))
    for run, own, column in zip(runs, members, panels.T, strict=True):
        _draw_column(column, run, own, lower)
    for row in panels:
        _share_scale(row)
        for axes in row:
            words = wrapped(f"{next(letters)} {axes.get_title()}", LETTERS)
            axes.set_title("")
            axes.set_title(words, fontsize=9.5, loc="left")
    for axes, run in zip(panels[0], runs, strict=True):
        _entitle(axes, run)
    looks = _seeds(members)
    add_legend(figure, looks, letters_per_inch=8.0)
    figure.suptitle(title, fontsize=14)
    save(figure, path)
    return figure


def _seeds(columns: Sequence[Sequence[Member]]) -> list[Line2D]:
    looks = {member.seed: member.look for members in columns for member in members}
    return [Line2D([], [], **looks[seed], label=f"seed {seed}") for seed in sorted(looks)]


def _draw_column(
    column: Sequence[Axes], run: AdaptedRun, members: Sequence[Member], lower: Sequence[Callable[..., None]]
) -> None:
    accuracy, *middle, last = column
    draw_accuracy(accuracy, members)
    accuracy.autoscale(axis="y")
    for axes, draw in zip(middle, lower, strict=True):
        if draw is draw_gaps:
            draw_gaps(axes, members, run.threshold, run.check)
        else:
            draw(axes, members)
    for axes in (accuracy, *middle):
        axes.set_xlim(0, 1.01 * max(member.end for member in members))
    middle[-1].set_xlabel("iteration")
    for axes in (accuracy, *middle[:-1]):
        axes.tick_params(labelbottom=False)
    _draw_the_end(last, run, members)


def _entitle(axes: Axes, run: AdaptedRun) -> None:
    """The run's name and small print above what its first panel shows."""
    small, panel = textwrap.fill(run.detail, SMALL_LETTERS), axes.get_title(loc="left")
    axes.set_title(f"{run.title}\n", loc="left", fontweight="bold", fontsize=11, pad=20 + 12 * small.count("\n"))
    axes.annotate(
        f"{small}\n{panel}",
        (0, 1),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=9,
        va="bottom",
    )


def _draw_the_end(axes: Axes, run: AdaptedRun, members: Sequence[Member]) -> None:
    places = np.arange(len(run.at_the_end))
    axes.axvline(0.5, color=FAINT, linewidth=0.8, zorder=1)
    for member in members:
        aside = 0.3 * (member.index - (member.of - 1) / 2) / member.of
        accuracy = [by_seed.get(member.seed, np.nan) for by_seed in run.at_the_end.values()]
        axes.plot(places + aside, accuracy, **member.look, linewidth=0.6, linestyle=":", zorder=3)
    axes.set_xticks(places, [name.replace(" ", "\n", 1) for name in run.at_the_end], fontsize=8.5)
    axes.set(ylabel="test accuracy", xlim=(-0.5, len(places) - 0.5))
    axes.set_title("at the end: its own solver, and finer ones")
    axes.grid(axis="y")


def _share_scale(row: Sequence[Axes]) -> None:
    """The limits of all panels of a row are those of all that is drawn there; only the first says what it is."""
    limits = [axes.get_ylim() for axes in row]
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    room = 0.04 * (high - low) if row[0].get_yscale() == "linear" else 0.0  # one panel's margin may be tiny
    for axes in row:
        axes.set_ylim(low - room if low else low, high + room)
    for axes in row[1:]:
        axes.set_ylabel("")
        axes.tick_params(labelleft=False)
