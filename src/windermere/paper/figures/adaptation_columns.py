"""Adapted runs side by side, a column for each: accuracy with marks, the precision, and all test solvers at the end."""

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
    draw_steps,
    draw_tolerances,
)
from windermere.report.palette import FAINT
from windermere.report.style import house_style, new_figure, save, wrapped

LETTERS, SMALL_LETTERS = 58, 64
"""How many letters fit above a panel, in the usual print and in small print."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptedRun:
    """One column."""

    title: str
    detail: str
    """Words in small print below the title, followed by how often finer solvers scored lower."""
    members: Sequence[Member]
    tolerances: bool
    """Whether it adapts tolerances, and not steps."""
    at_the_end: Mapping[str, Mapping[int, float]]
    """Test accuracy by test solver (its own one first), by seed."""
    check: str | None = None
    """Method of the finer solver, which has the paper's mark."""
    threshold: float = 0.1


@house_style
def draw_adapted_runs(runs: Sequence[AdaptedRun], paths: Sequence[Path | str], *, title: str) -> Figure:
    """All columns share their scales; saved once to each path, as PNG or SVG."""
    seeds = sorted({member.seed for run in runs for member in run.members})
    members = [[replace(m, index=seeds.index(m.seed), of=len(seeds)) for m in run.members] for run in runs]
    tolerances = any(run.tolerances for run in runs)
    lower = (draw_tolerances, draw_evaluations) if tolerances else (draw_steps,)
    figure = new_figure(max(4.4 * len(runs), 7.4), 7.6 + 2.2 * tolerances, padding=5 / 72)
    panels = figure.subplots(2 + len(lower), len(runs), squeeze=False, height_ratios=(3.0, *[2.0] * len(lower), 2.0))
    signs: dict[str, Line2D] = {}
    for run, own, column in zip(runs, members, panels.T, strict=True):
        signs |= {str(sign.get_label()): sign for sign in _draw_column(column, run, own, lower)}
    for row in panels:
        _share_scale(row)
    handles = [*_seeds(members), *signs.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=(len(handles) + 1) // 2, frameon=False)
    figure.suptitle(title, fontsize=14)
    for path in paths:
        save(figure, path)
    return figure


def _seeds(columns: Sequence[Sequence[Member]]) -> list[Line2D]:
    looks = {member.seed: member.look for members in columns for member in members}
    return [Line2D([], [], **looks[seed], label=f"seed {seed}") for seed in sorted(looks)]


def _draw_column(
    column: Sequence[Axes], run: AdaptedRun, members: Sequence[Member], lower: Sequence[Callable[..., None]]
) -> list[Line2D]:
    """Returns what a legend has to explain."""
    accuracy, *middle, last = column
    signs = draw_accuracy(accuracy, members, run.threshold, run.check)
    accuracy.autoscale(axis="y")
    accuracy.set_ylim(top=min(accuracy.get_ylim()[1], 1.02))
    _entitle(accuracy, run)
    for axes, draw in zip(middle, lower, strict=True):
        draw(axes, members)
    for axes in (accuracy, *middle):
        axes.set_xlim(0, 1.01 * max(member.end for member in members))
    middle[-1].set_xlabel("iteration")
    for axes in (accuracy, *middle[:-1]):
        axes.tick_params(labelbottom=False)
    _draw_the_end(last, run, members)
    for axes in (*middle, last):
        axes.set_title(wrapped(axes.get_title(), LETTERS), fontsize=9.5, loc="left")
        axes.set_title("")
    return signs


def _entitle(axes: Axes, run: AdaptedRun) -> None:
    marks = axes.get_title()
    small = textwrap.fill(f"{run.detail}; {marks[0].lower()}{marks[1:]}", SMALL_LETTERS)
    axes.set_title("")
    axes.set_title(run.title, loc="left", fontweight="bold", fontsize=11, pad=20 + 12 * small.count("\n"))
    axes.annotate(
        small, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8.5, va="bottom"
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
    axes.set_title("At the end: with its own solver, and with finer ones")
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
