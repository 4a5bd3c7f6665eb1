"""The audit's two panels of solvers: what the model scores with each, and how far from the flow each ends.

In both, a marker is a method, and its colour says whether the rule looks at the solver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isclose, isfinite, log, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from windermere.report.audit_data import AuditFigure, SolverPoint, fraction
from windermere.report.numbers import ACCURACY
from windermere.report.palette import FAINT, INK

COUNTS, COARSE, BAND = "#6a3d9a", "#b9c1ca", "#efe9f5"
"""A violet that is no class's colour, a light grey for what does not count, and the violet as a background."""
MARKERS = {
    "euler": "o", "midpoint": "x", "rk4": "^", "heun": "s", "rk4_38": "v", "heun3": "<", "heun21": "d",
    "fehlberg21": "D", "bosh32": "+", "dopri54": "p", "tsit54": "h",
}  # fmt: skip
OTHER = "*"
REFERENCE = "rk4"
"""The method whose steps the audit halves to find the flow, and the order."""
FILLED = {"x": "X", "+": "P"}
FAILED = "every solver failed"
DECADE = 10.0
HIDDEN = 1e-3
"""So close to the training solver's score at its cost, a smaller marker would lie under its own."""
REACH = 3.0
"""Metrics of solvers that don't count are shown up to so many ranges away from those that do."""


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """A solver's place in a panel."""

    x: float
    y: float
    point: SolverPoint


# ---------------------------------------------------------------------------------------------------------
# Metrics


def draw_metrics(axes: Axes, figure: AuditFigure) -> None:
    """The metric under each solver against its cost, or its precision where costs could not be counted."""
    there = [point for point in figure.points if isfinite(point.metric)]
    counted = all(point.evaluations > 0 for point in there)
    spots = [_Spot(x=p.evaluations if counted else p.precision, y=p.metric, point=p) for p in there]
    _draw_band(axes, figure)
    _draw_spots(axes, spots)
    _scale_x(axes, [spot.x for spot in spots], octaves=counted or figure.precision_name == "step")
    low, high = _metric_limits(figure, there)
    outside = sum(not low <= point.metric <= high for point in there)
    if figure.relative and low > 0:
        axes.set_yscale("log")
    axes.set(ylim=(low, high), xlabel="evaluations of the field" if counted else figure.precision_name)
    axes.set_ylabel(figure.metric_name, parse_math=False)
    if axes.get_yscale() == "linear":
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_title("The same weights under other solvers" + (f" ({outside} outside)" if outside else ""))
    axes.grid()


def _draw_band(axes: Axes, figure: AuditFigure) -> None:
    """Where the rule wants every solver that counts, and the flow."""
    own, flow = figure.own.metric, figure.reference_metric
    if isfinite(own):
        axes.axhspan(*figure.limits, color=BAND, linewidth=0, zorder=0)
    if isfinite(flow):
        axes.axhline(flow, color=INK, linestyle=(0, (5, 3)), linewidth=1.2, zorder=2)
        _beside(axes, flow, "the flow\nitself")


def _metric_limits(figure: AuditFigure, there: Sequence[SolverPoint]) -> tuple[float, float]:
    """All that decides, and what does not as far as it leaves room for the rest to be read."""
    deciding = [*figure.limits, figure.reference_metric, *(p.metric for p in there if p.counts)]
    deciding = [m for m in deciding if isfinite(m)] or [0.0]
    if figure.relative and min(deciding) > 0:  # on a logarithmic scale there is room for all
        metrics = [*deciding, *(p.metric for p in there if p.metric > 0)]
        return min(metrics) / 1.3, max(metrics) * 1.3
    low, high = min(deciding), max(deciding)
    reach = REACH * max(high - low, 1e-9)
    low = min([low, *(p.metric for p in there if p.metric >= low - reach)])
    high = max([high, *(p.metric for p in there if p.metric <= high + reach)])
    if figure.metric_name == ACCURACY:  # no accuracy is above 1, though the band may be
        high = min(high, 1.0)
    margin = 0.07 * max(high - low, 0.01 * abs(high), 1e-9)
    return low - margin, high + margin


# ---------------------------------------------------------------------------------------------------------
# Errors


def draw_errors(axes: Axes, figure: AuditFigure) -> None:
    """The distance from the flow against the step or tolerance; solvers without any lie on a line marked 0.

    The reference's own error is left out where it is so small that it would squeeze all else.
    """
    there = [point for point in figure.points if isfinite(point.error)]
    positive = [point.error for point in there if point.error > 0]
    zero = 10.0 ** floor(log10(min(positive, default=1.0)) - 1)
    spots = [_Spot(x=p.precision, y=p.error or zero, point=p) for p in there]
    axes.set_yscale("log")
    scored = any(isfinite(point.metric) for point in figure.points)
    _draw_spots(axes, spots, nothing="the flow is not known" if scored else FAILED)
    _scale_x(axes, [spot.x for spot in spots], octaves=figure.precision_name == "step")
    if len(positive) < len(there):
        _mark_zero(axes, zero, positive)
    if isfinite(figure.reference_error) and positive and figure.reference_error > 2 * zero:
        axes.axhline(figure.reference_error, color=FAINT, linewidth=1.0, linestyle=(0, (1, 1.5)), zorder=1)
        _beside(axes, figure.reference_error, "error of the\nreference", FAINT)
    _draw_order(axes, _order_of(figure), [spot for spot in spots if spot.point.error > 0])
    axes.set(xlabel=figure.precision_name, ylabel="distance from the flow (median)")
    axes.set_title("How far from the flow they end")
    axes.grid()


def _mark_zero(axes: Axes, zero: float, positive: Sequence[float]) -> None:
    """A place for zero on a logarithmic axis, below all that is positive."""
    axes.axhline(zero, color=FAINT, linewidth=0.8, linestyle=":", zorder=1)
    axes.set_ylim(zero / 2, max([*positive, zero * 10]) * 2)
    every = range(ceil(log10(min(positive))), ceil(log10(max(positive))) + 1) if positive else range(0)
    powers = every[:: 1 + len(every) // 9]
    axes.set_yticks([zero, *(10.0**power for power in powers)], ["0", *(f"$10^{{{power}}}$" for power in powers)])
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_order(axes: Axes, order: float | None, spots: Sequence[_Spot]) -> None:
    """A thin line of the observed slope, from the finest solve of the method that the reference refines towards finer
    ones: it was observed there, and says nothing of coarser steps."""
    if order is None or not spots:
        return
    along = [s for s in spots if s.point.method == REFERENCE] or spots
    anchor = min(along, key=lambda spot: spot.x)
    x = np.array([min(spot.x for spot in spots) / 1.4, anchor.x])
    y = anchor.y * (x / anchor.x) ** order
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, max(y[0], anchor.y / DECADE)), high)  # some of it is seen, and all else has room
    axes.plot(x, y, color=INK, linewidth=0.9, zorder=2)


def _order_of(figure: AuditFigure) -> float | None:
    """The observed slope, where it is drawn: where any error is known and not zero."""
    order = figure.order
    drawn = order is not None and isfinite(order) and any(0 < p.error < inf for p in figure.points)
    return order if drawn else None


# ---------------------------------------------------------------------------------------------------------
# Both


def sweep_legend(figure: AuditFigure) -> list[Line2D | Patch]:
    """Words for the markers, their colours, and the band; where the flow is not known, no solver counts or does not."""
    known = any(isfinite(point.error) for point in figure.points)
    counts, not_ = ("", "") if figure.of_flow_alone else (": counts", ": does not count")
    meanings = {COUNTS: f"at least as accurate{counts}", COARSE: f"less accurate{not_}"} if known else {}
    methods = [Line2D([], [], **_look(method, INK, 7), label=method) for method in figure.methods]
    order = _order_of(figure)
    slope = [] if order is None else [f"as the reference went on: order {order:.1f}"]
    return [
        *methods,
        Line2D([], [], **_look(figure.own.method, INK, 10, filled=True), label=f"trained with: {figure.trained_with}"),
        *(Line2D([], [], marker="s", color=color, linewidth=0, label=label) for color, label in meanings.items()),
        Patch(facecolor=BAND, edgecolor=COARSE, label=_band_words(figure)),
        *(Line2D([], [], color=INK, linewidth=0.9, label=words) for words in slope),
    ]


def _band_words(figure: AuditFigure) -> str:
    if figure.relative:
        return f"within a factor of {figure.digits.limit} of its own error"
    return f"within {figure.digits.limit} of its own score"


def _draw_spots(axes: Axes, spots: Sequence[_Spot], nothing: str = FAILED) -> None:
    """A thin line along each method, the solvers that count above those that don't, the training solver above all."""
    if not spots:
        axes.text(0.5, 0.25, nothing, transform=axes.transAxes, ha="center", va="center")
    for method in dict.fromkeys(spot.point.method for spot in spots):
        along = sorted((spot for spot in spots if spot.point.method == method), key=lambda spot: spot.x)
        axes.plot([s.x for s in along], [s.y for s in along], color=COARSE, linewidth=0.9, alpha=0.7, zorder=1)
    owns = [spot for spot in spots if spot.point.own]
    for spot in spots:
        if not spot.point.own:
            color, order = (COUNTS, 4) if spot.point.counts else (COARSE, 3)
            if any(spot.x == own.x and isclose(spot.y, own.y, rel_tol=HIDDEN) for own in owns):
                color, order = "white", 7  # seen on the filled one
            axes.plot(spot.x, spot.y, **_look(spot.point.method, color, 7), zorder=order)
    for spot in owns:
        axes.plot(spot.x, spot.y, **_look(spot.point.method, INK, 11, filled=True), zorder=6)


def _look(method: str, color: str, size: float, *, filled: bool = False) -> dict[str, Any]:
    """Hollow, so that two solvers in one place are both seen; the training solver is filled."""
    marker = MARKERS.get(method, OTHER)
    if filled:
        return {"marker": FILLED.get(marker, marker), "markersize": size, "color": color, "linewidth": 0}
    return {
        "marker": marker, "markersize": size, "markeredgewidth": 1.5, "color": color, "markerfacecolor": "none",
        "linewidth": 0,
    }  # fmt: skip


def _scale_x(axes: Axes, values: Sequence[float], *, octaves: bool) -> None:
    """Logarithmic, from one power of 2 or 10 to another, however few the values."""
    base = 2.0 if octaves else 10.0
    axes.set_xscale("log", base=base)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(LogLocator(base=base, numticks=9))
    if octaves:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, at: fraction(x)))
    if values:
        low, high = floor(log(min(values), base) + 1e-9), ceil(log(max(values), base) - 1e-9)
        axes.set_xlim(base ** (low - 0.4), base ** (max(high, low + 1) + 0.4))


def _beside(axes: Axes, y: float, words: str, color: str = INK) -> None:
    """Words to the right of a horizontal line, outside the panel, where nothing is in their way."""
    axes.text(1.015, y, words, transform=axes.get_yaxis_transform(), color=color, ha="left", va="center", fontsize=9)
