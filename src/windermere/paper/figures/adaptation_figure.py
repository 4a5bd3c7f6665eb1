"""The figure of an adapted run, as the paper's Figure 5: accuracy, how it fares in checks, and the precision.

Drawn from rows of metrics. Rows with `before` are decisions of reviews, those of a steady controller with the `signal`
it watches; all others are those of iterations.
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

from windermere.report.palette import INK, MEMBERS, Array
from windermere.report.style import house_style, new_figure, save

SAME = 1e-6
"""A step so close to T/N takes N steps, as for the solvers."""
SIGNS = ("o", "s", "D", "P", "X", "*", "^")
"""One for each seed beside its colour, so that prints in black and white can be read."""
SIGNS_ON_A_LINE = 6


@house_style
def draw_adaptation(
    rows: Sequence[Mapping[str, Any]],
    path: Path | str,
    *,
    check: str | None = None,
    threshold: float = 0.1,
    target: float | None = None,
) -> Figure:
    """Test accuracy over training; at each review, how much lower the solver of the `check` scored, beside the
    `threshold`; what a steady controller watches, beside its `target`; the number of steps, or the tolerance and the
    evaluations it took. One colour and sign for each seed; saved as PNG or SVG."""
    members = members_of(rows)
    steady, adapts_tolerance = any(member.signals.size for member in members), any("tolerance" in row for row in rows)
    below = 2 + steady + adapts_tolerance
    figure = new_figure(8.0, 4.0 + 2.0 * below)
    panels = figure.subplots(1 + below, 1, sharex=True, height_ratios=(3.0, *[2.2] * below))
    draw_accuracy(panels[0], members)
    draw_gaps(panels[1], members, threshold, check)
    if steady:
        _draw_signal(panels[2], members, target)
    if adapts_tolerance:
        draw_tolerances(panels[-2], members)
        draw_evaluations(panels[-1], members)
    else:
        draw_steps(panels[-1], members)
    panels[-1].set(xlabel="iteration", xlim=(0, 1.01 * max(member.end for member in members)))
    figure.legend(handles=seed_legend(members), loc="outside lower center", ncols=min(len(members), 7), frameon=False)
    save(figure, path)
    return figure


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One seed's numbers."""

    seed: int
    index: int = 0
    """Its place among the seeds, of which there are `of`."""
    of: int = 1
    batches: Array
    """[2, rows]: iteration and accuracy on its batch"""
    tests: Array
    """[2, tests]: iteration and test accuracy"""
    evaluations: Array
    """[2, rows]: iteration and forward evaluations since the start"""
    reviews: Array
    """[5, reviews]: iteration, scores of training and check solver, precision before and after"""
    signals: Array
    """[2, reviews of a steady controller]: iteration, and how far the check solver moved the outputs, smoothed"""

    @property
    def color(self) -> str:
        return MEMBERS[self.index % len(MEMBERS)]

    @property
    def look(self) -> dict[str, Any]:
        again = self.index // len(MEMBERS)  # how often its colour was there before: each time with another sign
        return {"color": self.color, "marker": SIGNS[(self.index + again) % len(SIGNS)], "markersize": 4.5}

    def places(self, points: int) -> list[int]:
        """The places along a line of so many points where this seed's sign is drawn; each seed has its own."""
        places = np.arange(SIGNS_ON_A_LINE) + (self.index + 0.5) / self.of
        return sorted({int(place * points / SIGNS_ON_A_LINE) for place in places})

    @property
    def end(self) -> float:
        """The last iteration of which there is a row."""
        there = (self.batches, self.tests, self.evaluations, self.reviews)
        return float(max(rows[0].max(initial=1) for rows in there))

    @property
    def precision(self) -> Array:
        """[reviews + 1]: before the first review, and after each."""
        return np.append(self.reviews[3, :1], self.reviews[4])

    def failed(self, threshold: float) -> int:
        """In how many reviews the two scores were further apart."""
        return int((np.abs(self.reviews[1] - self.reviews[2]) > threshold).sum())


def members_of(rows: Sequence[Mapping[str, Any]]) -> list[Member]:
    """The seeds that were reviewed, from rows of metrics."""
    seeds = list(dict.fromkeys(row["seed"] for row in rows if "before" in row))
    return [_member(n, len(seeds), seed, [row for row in rows if row["seed"] == seed]) for n, seed in enumerate(seeds)]


def _member(index: int, of: int, seed: int, rows: Sequence[Mapping[str, Any]]) -> Member:
    decisions, others = [row for row in rows if "before" in row], [row for row in rows if "before" not in row]
    signals = _columns(decisions, "iteration", "signal")
    return Member(
        seed=seed,
        index=index,
        of=of,
        batches=_columns(others, "iteration", "accuracy"),
        tests=_columns(others, "iteration", "test_accuracy"),
        evaluations=_columns(others, "iteration", "evaluations_forward"),
        reviews=_columns(decisions, "iteration", "trained", "checked", "before", "after"),
        signals=signals[:, signals[1] > 0],
    )


def _columns(rows: Sequence[Mapping[str, Any]], *keys: str) -> Array:
    """[keys, rows] of the rows that have them all; a null becomes not a number, which leaves a gap."""
    there = [[row[key] for key in keys] for row in rows if all(key in row for key in keys)]
    return np.array(there, dtype=float).reshape(len(there), len(keys)).T


def seed_legend(members: Sequence[Member]) -> list[Line2D]:
    return [Line2D([], [], **member.look, label=f"seed {member.seed}", linewidth=2) for member in members]


# ---------------------------------------------------------------------------------------------------------
# Panels


def draw_accuracy(axes: Axes, members: Sequence[Member]) -> None:
    """Each seed's accuracy on the test set, and lightly on its batches."""
    for member in members:
        axes.plot(*member.batches, color=member.color, linewidth=0.7, alpha=0.25, zorder=2)
        signs = member.places(member.tests.shape[1]) if member.tests.size else []
        look = {**member.look, "markersize": 4.5, "linewidth": 1.4}
        axes.plot(*member.tests, **look, markevery=signs, zorder=4)
    tested = any(member.tests.size for member in members)
    axes.set_title("test accuracy (light: on the training batch)" if tested else "accuracy on the training batch")
    axes.set(ylabel="accuracy")
    axes.grid()


def draw_gaps(axes: Axes, members: Sequence[Member], threshold: float, check: str | None = None) -> None:
    """Every review's difference, so that those after one that failed are seen as well."""
    for member in members:
        gaps = member.reviews[1] - member.reviews[2]
        look = {**member.look, "markersize": 2.6, "markeredgewidth": 0}
        axes.plot(member.reviews[0], gaps, **look, linestyle="", zorder=3)
    axes.axhline(threshold, color=INK, linestyle="--", linewidth=1.0, zorder=4)
    failed, reviews = sum(member.failed(threshold) for member in members), sum(m.reviews.shape[1] for m in members)
    axes.set_title(
        f"own score less {check or 'the check'}'s on that batch: over {threshold:g} in {failed} of {reviews}"
    )
    axes.set(ylabel="difference")
    axes.grid()


def _draw_signal(axes: Axes, members: Sequence[Member], target: float | None) -> None:
    for member in members:
        axes.plot(*member.signals, **member.look, markevery=member.places(member.signals.shape[1]), zorder=3)
    values = np.concatenate([member.signals[1] for member in members])
    if target is not None:
        axes.axhline(target, color=INK, linestyle="--", linewidth=1.4, zorder=4)
        values = np.append(values, target)
    dashed = "" if target is None else f"; dashed: target {target:g}"
    axes.set_title(f"Share of probability mass that a finer solver moves (smoothed{dashed})")
    axes.set(ylabel="share moved")
    _scale(axes, values, plain=values.max() < 300 * values.min())


def draw_steps(axes: Axes, members: Sequence[Member]) -> None:
    steps = [np.ceil((1 - SAME) / member.precision) for member in members]
    _draw_precision(axes, members, steps, "number of steps", "{:.0f}")


def draw_tolerances(axes: Axes, members: Sequence[Member]) -> None:
    _draw_precision(axes, members, [member.precision for member in members], "tolerance", "{:.1e}")


def _draw_precision(axes: Axes, members: Sequence[Member], values: Sequence[Array], name: str, written: str) -> None:
    """As stairs, since a precision holds until the next review; the first seeds' wider, to be seen beneath others."""
    widths = np.linspace(2.8, 1.2, len(members)) if len(members) > 1 else [1.4]
    for member, own, width in zip(members, values, widths, strict=True):
        edges = np.concatenate([[0.0], member.reviews[0], [member.end]])
        _draw_stairs(axes, member, own, edges, width)
    # What a review in the last iteration chose, nothing was trained with.
    lasts = [own[-2 if m.reviews[0, -1] >= m.end else -1] for m, own in zip(members, values, strict=True)]
    first, last = _range([own[0] for own in values], written), _range(lasts, written)
    axes.set_title(f"{name[0].upper()}{name[1:]}: {first} at the start, {last} at the end")
    axes.set(ylabel=name)
    _scale(axes, np.concatenate(values), plain=name != "tolerance")


def draw_evaluations(axes: Axes, members: Sequence[Member]) -> None:
    """Draws the mean number of evaluations per iteration between each two rows of metrics."""
    means = []
    for member in members:
        iterations, totals = np.concatenate([np.zeros((2, 1)), member.evaluations], axis=1)
        apart = np.diff(iterations) > 0
        edges = np.append(0.0, iterations[1:][apart])
        if len(edges) < 2:
            continue
        means.append(np.diff(totals)[apart] / np.diff(iterations)[apart])
        _draw_stairs(axes, member, means[-1], edges, 1.4)
    if means:
        first, last = (_range([own[index] for own in means], "{:.0f}") for index in (0, -1))
        axes.set_title(f"Forward evaluations per iteration: {first} at the start, {last} at the end")
    axes.set(ylabel="evaluations")
    axes.set_ylim(bottom=0)
    axes.grid()


def _draw_stairs(axes: Axes, member: Member, values: Array, edges: Array, width: float) -> None:
    axes.stairs(values, edges, baseline=None, color=member.color, linewidth=width, zorder=3)
    places = member.places(len(values))
    axes.plot((edges[:-1] + edges[1:])[places] / 2, values[places], **member.look, linestyle="", zorder=4)


def _range(values: Sequence[float], written: str) -> str:
    """The range of all seeds' values in words, or the one value where all are written alike."""
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
