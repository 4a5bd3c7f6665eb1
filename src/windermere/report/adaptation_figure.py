"""The figure of an adapted run, as the paper's Figure 5: accuracy, where finer solvers score less, and the precision.

Drawn from rows of metrics alone. Rows with `before` are decisions of reviews; all others are those of iterations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from windermere.errors import UsageError
from windermere.report.style import FAINT, INK, MEMBERS, Array, house_style, new_figure, save

MARGIN = 0.1
"""A check that scores lower than training by more than this is marked."""
STAGGER = 0.4
"""Marks of all seeds at one review are spread over this share of the time between two, so that none hides another."""


@house_style
def draw_adaptation(rows: Sequence[Mapping[str, Any]], path: Path) -> Figure:
    """Test accuracy over training with marks where the check solver scored less, above the number of steps; or above
    the tolerance and the evaluations it took. One colour for each seed; saved as a PNG."""
    members = _members(rows)
    adapts_tolerance = any("tolerance" in row for row in rows)
    figure = new_figure(8.0, 8.5 if adapts_tolerance else 6.5)
    if adapts_tolerance:
        panels = figure.subplots(3, 1, sharex=True, height_ratios=(3.4, 2.0, 2.0))
        _draw_precision(panels[1], members, [member.precision for member in members], "tolerance", "{:.1e}")
        _draw_evaluations(panels[2], members)
    else:
        panels = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 2.4))
        _draw_precision(panels[1], members, [1 / member.precision for member in members], "number of steps", "{:.0f}")
    _draw_accuracy(panels[0], members)
    panels[-1].set(xlabel="iteration", xlim=(0, 1.01 * max(member.end for member in members)))
    seeds = [Line2D([], [], color=member.color, label=f"seed {member.seed}", linewidth=2) for member in members]
    figure.legend(handles=seeds, loc="outside lower center", ncols=min(len(seeds), 7), frameon=False)
    save(figure, path)
    return figure


@dataclass(frozen=True, kw_only=True, eq=False)
class _Member:
    """One seed's numbers."""

    seed: Any
    color: str
    batches: Array
    """[2, rows]: iteration and accuracy on its batch"""
    tests: Array
    """[2, tests]: iteration and test accuracy"""
    evaluations: Array
    """[2, rows]: iteration and forward evaluations since the start"""
    reviews: Array
    """[5, reviews]: iteration, scores of training and check solver, precision before and after"""

    @property
    def end(self) -> float:
        return float(max(self.batches[0].max(initial=1), self.reviews[0].max()))

    @property
    def precision(self) -> Array:
        """[reviews + 1]: before the first review, and after each."""
        return np.append(self.reviews[3, :1], self.reviews[4])

    @property
    def lower(self) -> Array:
        """Of the reviews, those where the check solver scored lower."""
        return np.asarray(self.reviews[1] - self.reviews[2] > MARGIN)


def _members(rows: Sequence[Mapping[str, Any]]) -> list[_Member]:
    seeds = list(dict.fromkeys(row.get("seed", 0) for row in rows if "before" in row))
    if not seeds:
        raise UsageError(
            "there is nothing to draw: no row of metrics is the decision of a review; "
            "train with --adapt, for at least as many iterations as lie between two reviews"
        )
    return [
        _member(seed, MEMBERS[index % len(MEMBERS)], [row for row in rows if row.get("seed", 0) == seed])
        for index, seed in enumerate(seeds)
    ]


def _member(seed: Any, color: str, rows: Sequence[Mapping[str, Any]]) -> _Member:
    decisions, others = [row for row in rows if "before" in row], [row for row in rows if "before" not in row]
    reviews = _columns(decisions, "iteration", "trained", "checked", "before", "after")
    if reviews.shape[1] < len(decisions) or not np.all(reviews[3:] > 0):
        raise UsageError(f"decisions need iteration, trained, checked, before and after (seed {seed} lacks some)")
    return _Member(
        seed=seed,
        color=color,
        batches=_columns(others, "iteration", "accuracy"),
        tests=_columns(others, "iteration", "test_accuracy"),
        evaluations=_columns(others, "iteration", "evaluations_forward"),
        reviews=reviews,
    )


def _columns(rows: Sequence[Mapping[str, Any]], *keys: str) -> Array:
    """[keys, rows] of the rows that have them all; a null becomes not a number, which leaves a gap."""
    try:
        there = [[row[key] for key in keys] for row in rows if all(key in row for key in keys)]
        return np.array(there, dtype=float).reshape(len(there), len(keys)).T
    except (TypeError, ValueError) as error:
        raise UsageError(f"{', '.join(keys)} must be one member's numbers in each row: {error}") from error


# ---------------------------------------------------------------------------------------------------------
# Panels


def _draw_accuracy(axes: Axes, members: Sequence[_Member]) -> None:
    for index, member in enumerate(members):
        axes.plot(*member.batches, color=member.color, linewidth=0.8, alpha=0.3, zorder=2)
        axes.plot(*member.tests, color=member.color, marker="o", markersize=3.5, linewidth=1.6, zorder=4)
        at, trained, checked, *_ = member.reviews[:, member.lower]
        at = at + STAGGER * (index - (len(members) - 1) / 2) / len(members) * member.reviews[0, 0]
        axes.vlines(at, checked, trained, color=member.color, linewidth=0.8, zorder=3)
        axes.plot(
            at, checked, "v", color=member.color, markeredgecolor="white", markeredgewidth=0.5, markersize=7, zorder=5
        )
    lower, reviews = sum(int(member.lower.sum()) for member in members), sum(len(member.lower) for member in members)
    axes.set(ylabel="accuracy")
    axes.set_ylim(top=1.02)
    axes.set_title(
        f"In {lower} of {reviews} reviews, a finer solver scored lower by more than {MARGIN:g}"
        if lower
        else f"In none of {reviews} reviews did a finer solver score lower by more than {MARGIN:g}"
    )
    axes.legend(handles=_signs(members), fontsize=8.5, loc="best").set_zorder(6)
    axes.grid()


def _signs(members: Sequence[_Member]) -> list[Line2D]:
    """What is drawn for each seed, of what there is."""
    tests = Line2D([], [], color=INK, marker="o", markersize=3.5, linewidth=1.6, label="on the test set")
    batches = Line2D([], [], color=FAINT, linewidth=0.8, label="on the training batch")
    marks = Line2D([], [], color=INK, marker="v", markersize=7, linestyle="", label="the finer solver, on that batch")
    tested, marked = any(member.tests.size for member in members), any(member.lower.any() for member in members)
    return [*([tests] if tested else []), batches, *([marks] if marked else [])]


def _draw_precision(axes: Axes, members: Sequence[_Member], values: Sequence[Array], name: str, written: str) -> None:
    """As stairs, since a precision holds until the next review; the first seeds' wider, to be seen beneath others."""
    widths = np.linspace(2.8, 1.2, len(members)) if len(members) > 1 else [1.4]
    for member, own, width in zip(members, values, widths, strict=True):
        edges = np.concatenate([[0.0], member.reviews[0], [member.end]])
        axes.stairs(own, edges, baseline=None, color=member.color, linewidth=width, zorder=3)
    first, last = (_range([own[index] for own in values], written) for index in (0, -1))
    axes.set_title(f"{name[0].upper()}{name[1:]}: {first} at the start, {last} at the end")
    axes.set(ylabel=name)
    _scale(axes, np.concatenate(values), plain=name != "tolerance")


def _draw_evaluations(axes: Axes, members: Sequence[_Member]) -> None:
    """Means between two rows."""
    means = []
    for member in members:
        iterations, totals = np.concatenate([np.zeros((2, 1)), member.evaluations], axis=1)
        apart = np.diff(iterations) > 0
        edges = np.append(0.0, iterations[1:][apart])
        if len(edges) < 2:
            continue
        means.append(np.diff(totals)[apart] / np.diff(iterations)[apart])
        axes.stairs(means[-1], edges, baseline=None, color=member.color, linewidth=1.4, zorder=3)
    if means:
        first, last = (_range([own[index] for own in means], "{:.0f}") for index in (0, -1))
        axes.set_title(f"Forward evaluations per iteration: {first} at the start, {last} at the end")
    axes.set(ylabel="evaluations")
    axes.set_ylim(bottom=0)
    axes.grid()


def _range(values: Sequence[float], written: str) -> str:
    """Of all seeds."""
    low, high = written.format(min(values)), written.format(max(values))
    return low if low == high else f"{low} to {high}"


def _scale(axes: Axes, values: Array, *, plain: bool) -> None:
    """Logarithmic, since precisions change by factors; plain numbers have ticks at 1, 2, 5, 10, 20, ..."""
    axes.set_yscale("log")
    axes.set_ylim(0.8 * values.min(), 1.25 * values.max())
    if plain or values.max() < 10 * values.min():
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid()
