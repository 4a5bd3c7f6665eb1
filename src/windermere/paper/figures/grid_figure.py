"""A grid of trainings, each tested with other solvers: the paper's Figure 4, and every seed of it (Appendix E).

Both figures share their encoding. Colour: the precision of training. Mark: the method of the test. Filled: the solver
of training. Grey: seeds that did not train, without a dark edge and with their names in brackets, for print without
colours. Precisions are placed by their logarithm, coarse ones on the left.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from windermere.paper.figures.grid_layout import GridFigure, GridLayout, GridTest, precision_label, with_unit
from windermere.report.palette import FAINT, GRID, INK
from windermere.report.style import add_legend, house_style, new_figure, save

GREY = "#a3a9b1"
OWN: dict[str, Any] = {"marker": "o", "markersize": 9.5, "markeredgecolor": INK, "markeredgewidth": 0.9}
OTHER: dict[str, Any] = {"markersize": 5.2, "markerfacecolor": "white", "markeredgewidth": 1.2}
EXCLUDED: dict[str, Any] = {"marker": "o", "markersize": 7, "markeredgecolor": "white", "markeredgewidth": 0.6}
FAILED: dict[str, Any] = {"marker": "s", "markersize": 5.5, "clip_on": False, "zorder": 7}
DOT: dict[str, Any] = {"marker": ".", "markersize": 4, "markeredgewidth": 0, "alpha": 0.5}
LEAST_HEIGHT = 0.2
"""The least height of the accuracy axis: twice the drop that counts as one, so that a smaller drop looks small."""


@house_style
def draw_grid(figure: GridFigure, path: Path | str) -> None:
    """Accuracy against the precision of the test, as means over the seeds that trained; as PNG or SVG."""
    grid = GridLayout(figure)
    span = np.ptp([grid.place(test.tested) for test in figure.tests])
    canvas = new_figure(float(np.clip(3.5 + 1.05 * span, 9.0, 14.0)), 7.6)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    axes = body.subplots()
    if figure.fails is not None and figure.passes is not None:
        axes.axvspan(grid.place(figure.fails), grid.place(figure.passes), color=GRID, alpha=0.55, linewidth=0, zorder=0)
    for trained in grid.precisions:
        for method in grid.methods:
            _draw_curve(axes, grid, trained, method)
        _draw_excluded(axes, grid, trained)
    _scale_grid(axes, grid)
    axes.set_title(f"{figure.name}\n{critical_sentence(figure)}", loc="left")
    title = "steps of\ntraining" if grid.steps else "tolerance\nof training"
    colours = [Line2D([], [], **OWN, color=grid.colours[p], linestyle="", label=grid.label(p)) for p in grid.precisions]
    axes.legend(handles=colours, title=title, loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False)
    add_legend(body, _legend(grid, means=True))
    save(canvas, path)


@house_style
def draw_grid_seeds(figure: GridFigure, path: Path | str) -> None:
    """Every seed, in a panel for each training precision; as PNG or SVG."""
    grid = GridLayout(figure)
    columns = 2 if len(grid.precisions) == 4 else min(3, len(grid.precisions))
    rows = -(-len(grid.precisions) // columns)
    canvas = new_figure(max(5.0 * columns, 9.0), 1.6 + 3.0 * rows, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    panels = body.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, trained in zip(panels, grid.precisions, strict=False):
        for seed in grid.seeds:
            _draw_seed(axes, grid, trained, seed)
        _scale_seeds(axes, grid, trained)
    for axes in panels[len(grid.precisions) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel("test accuracy")
    body.suptitle(f"{figure.name}: every seed\n{critical_sentence(figure)}", fontsize=13)
    add_legend(body, _legend(grid, means=False))
    save(canvas, path)


def critical_sentence(figure: GridFigure) -> str:
    """Where finer solvers begin to agree, in words."""
    fails, passes, steps = figure.fails, figure.passes, figure.precision_name == "step"
    if passes is not None and fails is not None:
        agreed, not_yet = with_unit(passes, steps=steps), precision_label(fails, steps=steps)
        return f"finer solvers agree from {agreed} on, and not at {not_yet}"
    if passes is not None:
        everywhere = " everywhere," if passes == max(test.trained for test in figure.tests) else ""
        return f"finer solvers agree{everywhere} from {with_unit(passes, steps=steps)} on"
    if fails is not None:
        even = "" if len({test.trained for test in figure.tests}) == 1 else ", not even"
        return f"finer solvers do not agree{even} at {with_unit(fails, steps=steps)}"
    return "whether finer solvers agree is not known"


def _accuracies(tests: Sequence[GridTest]) -> list[float]:
    return [test.accuracy for test in tests if test.accuracy is not None]


def _scale_accuracy(axes: Axes, grid: GridLayout) -> None:
    values = _accuracies(grid.figure.tests) or [0.0, 1.0]
    height = max(max(values) - min(values), LEAST_HEIGHT)
    high = max(values) + 0.04 * height
    axes.set_ylim(min(min(values) - 0.06 * height, high - LEAST_HEIGHT), high)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


# ---------------------------------------------------------------------------------------------------------
# Figure 4


def _draw_curve(axes: Axes, grid: GridLayout, trained: float, method: str) -> None:
    """The tests of one training precision with one method: means, and their seeds from the worst to the best."""
    colour, tests = grid.colours[trained], grid.of(trained, method=method, counts=True)
    by_place: dict[float, list[GridTest]] = {}
    for test in tests:
        by_place.setdefault(grid.place(test.tested) + grid.aside(trained, test.tested, method), []).append(test)
    for place, there in by_place.items():
        _draw_failed(axes, place, sum(test.accuracy is None and not test.own for test in there), colour, "white")
    seeds = {place: _accuracies(there) for place, there in by_place.items() if _accuracies(there)}
    means = {place: float(np.mean(values)) for place, values in seeds.items()}
    axes.plot(list(means), list(means.values()), color=colour, linewidth=0.8, alpha=0.5, zorder=1)
    _draw_spread(axes, seeds, colour)
    for place, mean in means.items():
        own = any(test.own for test in by_place[place])
        look = {**OWN, "zorder": 3} if own else {**OTHER, "marker": grid.mark(method), "zorder": 4}
        axes.plot(place, mean, **look, color=colour, linestyle="")


def _draw_spread(axes: Axes, seeds: Mapping[float, Sequence[float]], colour: str) -> None:
    several = {place: values for place, values in seeds.items() if len(values) > 1}
    if several:
        lows, highs = ([end(values) for values in several.values()] for end in (min, max))
        axes.vlines(list(several), lows, highs, color=colour, linewidth=0.8, alpha=0.4, zorder=2)
        dots = np.array([(place, value) for place, values in several.items() for value in values])
        axes.plot(*dots.T, **DOT, color=colour, linestyle="", zorder=2)


def _draw_excluded(axes: Axes, grid: GridLayout, trained: float) -> None:
    """Seeds that did not train, with their own solver; those without any accuracy on the lower edge."""
    tests = grid.of(trained, own=True)
    place = grid.place(trained)
    _draw_failed(axes, place, sum(test.accuracy is None for test in tests), GREY, GREY)
    for accuracy in _accuracies([test for test in tests if not test.counts]):
        axes.plot(place, accuracy, **EXCLUDED, color=GREY, linestyle="", zorder=6)


def _draw_failed(axes: Axes, place: float, count: int, colour: str, face: str) -> None:
    """A mark on the lower edge, with its number where there are several."""
    edge = axes.get_xaxis_transform()
    if count:
        axes.plot(place, 0, **FAILED, color=colour, markerfacecolor=face, transform=edge)
    if count > 1:
        text: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8, "color": INK}
        axes.annotate(str(count), (place, 0), (0, 5), xycoords=edge, **text)


def _scale_grid(axes: Axes, grid: GridLayout) -> None:
    _scale_accuracy(axes, grid)
    tested = [test.tested for test in grid.figure.tests]
    ticks = {grid.place(p): grid.label(p) for p in (*grid.precisions, min(tested), max(tested))}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(grid.place(max(tested)) - 0.3, grid.place(min(tested)) + 0.3)
    unit = "T / h" if grid.steps else "tolerance"
    axes.set(xlabel=f"{unit} of the test solver (equal ones are drawn side by side)", ylabel="test accuracy")


# ---------------------------------------------------------------------------------------------------------
# Appendix E


def _draw_seed(axes: Axes, grid: GridLayout, trained: float, seed: int) -> None:
    """All tests of one model, side by side from coarse to fine, those of one precision together."""
    tests, methods = grid.of(trained, seed=seed), len(grid.methods)
    tested = sorted({grid.place(test.tested) for test in grid.of(trained)})
    own = np.searchsorted(tested, grid.place(trained)) * methods
    gap = min(0.82 / (len(tested) * methods + 2), 0.12)
    start = grid.seeds.index(seed) - gap * (len(tested) * methods - 1) / 2
    for number, method in enumerate(grid.methods):
        points = []
        for test in (test for test in tests if test.method == method):
            index = tested.index(grid.place(test.tested)) * methods + number
            place = start + gap * (index + float(np.sign(index - own)))  # more room around the largest mark
            colour = grid.colours[trained] if test.counts else GREY
            if test.accuracy is None:
                _draw_failed(axes, place, 1, GREY if test.own else colour, GREY if test.own else "white")
                continue
            points.append((place, test.accuracy))
            own_look = OWN if test.counts else {**OWN, "markeredgecolor": GREY}
            look = own_look if test.own else {**OTHER, "marker": grid.mark(method)}
            look = {**look, "markersize": 0.82 * look["markersize"], "zorder": 3 if test.own else 4}
            axes.plot(*points[-1], **look, color=colour, linestyle="")
        axes.plot(*np.array(points).reshape(-1, 2).T, color=FAINT, linewidth=0.6, alpha=0.6, zorder=1)


def _scale_seeds(axes: Axes, grid: GridLayout, trained: float) -> None:
    _scale_accuracy(axes, grid)
    for edge in range(1, len(grid.seeds)):
        axes.axvline(edge - 0.5, color=GRID, linewidth=0.8, zorder=0)
    left_out = {test.seed for test in grid.of(trained, own=True, counts=False) if test.accuracy is not None}
    names = [f"(seed {seed})" if seed in left_out else f"seed {seed}" for seed in grid.seeds]
    axes.set_xticks(range(len(grid.seeds)), names)
    axes.set_xlim(-0.55, len(grid.seeds) - 0.45)
    axes.tick_params(axis="x", length=0, pad=6)
    axes.tick_params(axis="y", labelleft=True)
    axes.set_title(f"trained with {with_unit(trained, steps=grid.steps)}", fontsize=10.5)


# ---------------------------------------------------------------------------------------------------------
# Legend


def _legend(grid: GridLayout, *, means: bool) -> list[Line2D | Patch]:
    """Every mark that is drawn."""
    tests, figure = grid.figure.tests, grid.figure
    other = "number of steps" if grid.steps else "tolerance"
    signs: list[Line2D | Patch] = [_sign(f"solver of training ({grid.method})", OWN)]
    for method in grid.methods:
        if any(test.method == method and not test.own for test in tests):
            label = f"{method}, other {other}" if method == grid.method else f"tested with {method}"
            signs.append(_sign(label, {**OTHER, "marker": grid.mark(method)}))
    if means and len(grid.seeds) > 1:
        signs.append(_sign("one seed", {**DOT, "markersize": 7}))
        signs.append(_sign("worst to best seed", {"marker": "|", "markersize": 13}))
    if any(not test.counts and test.accuracy is not None for test in tests):
        label = "seed that did not train (own solver)" if means else "grey, in brackets: seed that did not train"
        signs.append(_sign(label, EXCLUDED, GREY))
    if any(test.own and test.accuracy is None for test in tests):
        signs.append(_sign("training diverged, or own solve failed", FAILED, GREY))
    if any(not test.own and test.accuracy is None for test in tests):
        signs.append(_sign("solve of a test failed", {**FAILED, "markerfacecolor": "white"}))
    if means and figure.fails is not None and figure.passes is not None:
        signs.append(Patch(color=GRID, alpha=0.55, label="where finer solvers begin to agree"))
    return signs


def _sign(label: str, look: Mapping[str, Any], colour: str = INK) -> Line2D:
    return Line2D([], [], **look, color=colour, linestyle="", label=label)
