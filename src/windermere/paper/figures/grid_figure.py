"""A grid of trainings, each tested with other solvers: the paper's Figure 4, and every seed of it (Appendix E).

Both figures share the paper's encoding. Colour: the precision of training; dark with the solver of training, light
with others. Mark: the method of the test. Grey: seeds that did not train, with their names in brackets. Precisions are
placed by their logarithm, coarse ones on the left.
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
OWN: dict[str, Any] = {"marker": "o", "markersize": 9.0, "markeredgewidth": 0}
OTHER: dict[str, Any] = {"markersize": 6.0, "markeredgewidth": 1.3}
FAILED: dict[str, Any] = {"marker": "s", "markersize": 5.5, "clip_on": False, "zorder": 7}
FULLY_NAMED = 6
"""So many seeds find room for their names side by side; of more all but the first are numbers."""
ROOMY = 10
"""So many find room for their marks at full size; of more the axis says that these are seeds, and all are numbers."""
LEAST_HEIGHT = 0.2
"""The least height of the accuracy axis: twice the drop that counts as one, so that a smaller drop looks small."""


@house_style
def draw_grid(figure: GridFigure, path: Path | str) -> None:
    """Accuracy against the precision of the test, as means over the seeds that trained."""
    grid = GridLayout(figure)
    span = np.ptp([grid.place(test.tested) for test in figure.tests])
    canvas = new_figure(float(np.clip(3.5 + 0.8 * span, 9.2, 11.0)), 6.0)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    axes = body.subplots()
    draw_band(axes, grid)
    draw_tests(axes, grid)
    scale_grid(axes, grid)
    axes.set_title(figure.name, loc="left")
    title = "steps of\ntraining" if grid.steps else "tolerance\nof training"
    axes.legend(
        handles=training_legend(grid), title=title, loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False
    )
    add_legend(body, mark_legend(grid, means=True))
    save(canvas, path)


@house_style
def draw_grid_seeds(figure: GridFigure, path: Path | str) -> None:
    """Every seed, in a panel for each training precision."""
    grid = GridLayout(figure)
    columns = 2 if len(grid.precisions) == 4 else min(3, len(grid.precisions))
    rows = -(-len(grid.precisions) // columns)
    canvas = new_figure(max(4.4 * columns, 8.0), 1.6 + 2.6 * rows, padding=5 / 72)
    (body,) = canvas.subfigures(1, 1, squeeze=False)[0]
    panels = body.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for number, (axes, trained) in enumerate(zip(panels, grid.precisions, strict=False)):
        draw_seeds(axes, grid, trained)
        axes.set_title(f"({chr(97 + number)}) trained with {with_unit(trained, steps=grid.steps)}", fontsize=10.5)
        axes.tick_params(axis="y", labelleft=True)
    for axes in panels[len(grid.precisions) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel("test accuracy")
    body.suptitle(f"{figure.name}: every seed, its tests from coarse to fine", fontsize=13)
    add_legend(body, mark_legend(grid, means=False))
    save(canvas, path)


def critical_sentence(figure: GridFigure) -> str:
    """Where the means of finer solvers begin to lie within Algorithm 2's threshold, in words."""
    fails, passes, steps = figure.fails, figure.passes, figure.precision_name == "step"
    if passes is not None and fails is not None:
        agreed, not_yet = with_unit(passes, steps=steps), precision_label(fails, steps=steps)
        return f"finer solvers within 0.1 in the mean from {agreed} on, and not at {not_yet}"
    if passes is not None:
        everywhere = " everywhere," if passes == max(test.trained for test in figure.tests) else ""
        return f"finer solvers within 0.1 in the mean{everywhere} from {with_unit(passes, steps=steps)} on"
    if fails is not None:
        even = "" if len({test.trained for test in figure.tests}) == 1 else ", not even"
        return f"finer solvers not within 0.1 in the mean{even} at {with_unit(fails, steps=steps)}"
    return "whether finer solvers come within 0.1 is not known"


def _accuracies(tests: Sequence[GridTest]) -> list[float]:
    return [test.accuracy for test in tests if test.accuracy is not None]


def _scale_accuracy(axes: Axes, drawn: Sequence[float]) -> None:
    values = drawn or [0.0, 1.0]
    height = max(max(values) - min(values), LEAST_HEIGHT)
    high = max(values) + 0.04 * height
    axes.set_ylim(min(min(values) - 0.06 * height, high - LEAST_HEIGHT), high)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


# ---------------------------------------------------------------------------------------------------------
# Figure 4


def draw_band(axes: Axes, grid: GridLayout) -> None:
    """From the last precision that fails the check to the first that passes."""
    fails, passes = grid.figure.fails, grid.figure.passes
    if fails is not None and passes is not None:
        axes.axvspan(grid.place(fails), grid.place(passes), color=GRID, alpha=0.55, linewidth=0, zorder=0)


def draw_tests(axes: Axes, grid: GridLayout, scale: float = 1.0) -> None:
    """All tests, as means; marks may be smaller by a scale."""
    for trained in grid.precisions:
        for method in grid.methods:
            _draw_curve(axes, grid, trained, method, scale)
        _draw_excluded(axes, grid, trained, scale)


def _draw_curve(axes: Axes, grid: GridLayout, trained: float, method: str, scale: float) -> None:
    """The tests of one training precision with one method: their means over seeds, at their places."""
    by_place: dict[float, list[GridTest]] = {}
    for test in grid.of(trained, method=method, counts=True):
        by_place.setdefault(grid.place(test.tested), []).append(test)
    for place, there in by_place.items():
        count = sum(test.accuracy is None and not test.own for test in there)
        _draw_failed(axes, place, count, grid.light[trained], "white", scale)
    means = {place: float(np.mean(_accuracies(there))) for place, there in by_place.items() if _accuracies(there)}
    axes.plot(list(means), list(means.values()), color=grid.light[trained], linewidth=0.9 * scale, zorder=1)
    for place, mean in means.items():
        own = any(test.own for test in by_place[place])
        look = _scaled({**OWN, "zorder": 3} if own else {**OTHER, "marker": grid.mark(method), "zorder": 2}, scale)
        axes.plot(place, mean, **look, color=(grid.dark if own else grid.light)[trained], linestyle="")


def _scaled(look: Mapping[str, Any], scale: float) -> dict[str, Any]:
    return {
        name: scale * value if name.startswith("marker") and name != "marker" else value for name, value in look.items()
    }


def _draw_excluded(axes: Axes, grid: GridLayout, trained: float, scale: float) -> None:
    """Seeds that did not train, with their own solver; those without any accuracy on the lower edge."""
    tests = grid.of(trained, own=True)
    place = grid.place(trained)
    _draw_failed(axes, place, sum(test.accuracy is None for test in tests), GREY, GREY, scale)
    for accuracy in _accuracies([test for test in tests if not test.counts]):
        axes.plot(place, accuracy, **_scaled({**OWN, "markersize": 7}, scale), color=GREY, linestyle="", zorder=6)


def _draw_failed(axes: Axes, place: float, count: int, colour: str, face: str, scale: float) -> None:
    """A mark on the lower edge, with its number where there are several."""
    edge = axes.get_xaxis_transform()
    if count:
        axes.plot(place, 0, **{**_scaled(FAILED, scale), "color": colour, "markerfacecolor": face, "transform": edge})
    if count > 1:
        text: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 2 + 6 * scale, "color": INK}
        axes.annotate(str(count), (place, 0), (0, 5), xycoords=edge, **text)


def scale_grid(axes: Axes, grid: GridLayout) -> None:
    drawn = [line for line in axes.lines if line.get_transform() == axes.transData]  # else marks on the edge
    _scale_accuracy(axes, np.concatenate([[], *(np.asarray(line.get_ydata(), float) for line in drawn)]).tolist())
    tested = [test.tested for test in grid.figure.tests]
    named = (*grid.precisions, min(tested), max(tested)) if grid.steps else tested  # of steps too many were tested
    ticks = {grid.place(p): grid.label(p) for p in named}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlim(grid.place(max(tested)) - 0.3, grid.place(min(tested)) + 0.3)
    name = "T / h" if grid.steps else "tolerance"
    axes.set(xlabel=f"{name} of the test solver", ylabel="test accuracy")


# ---------------------------------------------------------------------------------------------------------
# Appendix E


def draw_seeds(axes: Axes, grid: GridLayout, trained: float, scale: float = 0.82) -> None:
    """Every seed that was trained with this precision, side by side."""
    seeds = sorted({test.seed for test in grid.of(trained)})
    scale *= min(1.0, ROOMY / len(seeds))
    for place, seed in enumerate(seeds):
        _draw_seed(axes, grid, trained, seed, place, scale)
    _scale_accuracy(axes, _accuracies(grid.figure.tests))
    for edge in range(1, len(seeds)):
        axes.axvline(edge - 0.5, color=GRID, linewidth=0.8, zorder=0)
    left_out = {test.seed for test in grid.of(trained, own=True, counts=False) if test.accuracy is not None}
    named = 0 if len(seeds) > ROOMY else len(seeds) if len(seeds) <= FULLY_NAMED else 1
    words = [f"seed {seed}" if place < named else f"{seed}" for place, seed in enumerate(seeds)]
    names = [f"({word})" if seed in left_out else word for word, seed in zip(words, seeds, strict=True)]
    axes.set_xticks(range(len(seeds)), names)
    if not named:
        axes.set_xlabel("seed", labelpad=2)
    axes.set_xlim(-0.55, len(seeds) - 0.45)
    axes.tick_params(axis="x", length=0, pad=6)


def _draw_seed(axes: Axes, grid: GridLayout, trained: float, seed: int, middle: int, scale: float) -> None:
    """All tests of one model, side by side from coarse to fine, those of one precision together."""
    tests, methods = grid.of(trained, seed=seed), len(grid.methods)
    tested = sorted({grid.place(test.tested) for test in grid.of(trained)})
    own = np.searchsorted(tested, grid.place(trained)) * methods
    gap = min(0.82 / (len(tested) * methods + 2), 0.12)
    start = middle - gap * (len(tested) * methods - 1) / 2
    for number, method in enumerate(grid.methods):
        points = []
        for test in (test for test in tests if test.method == method):
            index = tested.index(grid.place(test.tested)) * methods + number
            place = start + gap * (index + float(np.sign(index - own)))  # more room around the largest mark
            colour = (grid.dark if test.own else grid.light)[trained] if test.counts else GREY
            if test.accuracy is None:
                _draw_failed(axes, place, 1, colour, GREY if test.own else "white", scale)
                continue
            points.append((place, test.accuracy))
            look = OWN if test.own else {**OTHER, "marker": grid.mark(method)}
            axes.plot(*points[-1], **_scaled(look, scale), color=colour, linestyle="", zorder=3 if test.own else 4)
        axes.plot(*np.array(points).reshape(-1, 2).T, color=FAINT, linewidth=0.6, alpha=0.6, zorder=1)


# ---------------------------------------------------------------------------------------------------------
# Legends


def training_legend(grid: GridLayout) -> list[Line2D]:
    """The colours."""
    return [Line2D([], [], **OWN, color=grid.dark[p], linestyle="", label=grid.label(p)) for p in grid.precisions]


def shared_legend(grids: Sequence[GridLayout], *, means: bool, scale: float = 1.0) -> list[Line2D | Patch]:
    """Every mark of panels that have one legend; their titles name the methods of training."""
    signs = (sign for grid in grids for sign in mark_legend(grid, means=means, scale=scale, named=False))
    return list({sign.get_label(): sign for sign in signs}.values())


def mark_legend(grid: GridLayout, *, means: bool, scale: float = 1.0, named: bool = True) -> list[Line2D | Patch]:
    """Every mark that is drawn."""
    tests, figure = grid.figure.tests, grid.figure
    other, light = "number of steps" if grid.steps else "tolerance", GridLayout.light_ink
    own, its = (f"{grid.method}, solver of training", grid.method) if named else ("solver of training", "its method")
    signs: list[Line2D | Patch] = [_sign(own, _scaled(OWN, scale))]
    for method in grid.methods:
        if any(test.method == method and not test.own for test in tests):
            label = f"{its}, other {other}" if method == grid.method else f"tested with {method}"
            signs.append(_sign(label, _scaled({**OTHER, "marker": grid.mark(method)}, scale), light))
    if any(not test.counts and test.accuracy is not None for test in tests):
        label = "seed that did not train (own solver)" if means else "grey, in brackets: seed that did not train"
        signs.append(_sign(label, _scaled({**OWN, "markersize": 7}, scale), GREY))
    if any(test.own and test.accuracy is None for test in tests):
        signs.append(_sign("training diverged, or own solve failed", _scaled(FAILED, scale), GREY))
    if any(not test.own and test.accuracy is None for test in tests):
        signs.append(_sign("solve of a test failed", {**_scaled(FAILED, scale), "markerfacecolor": "white"}))
    if means and figure.fails is not None and figure.passes is not None:
        signs.append(Patch(color=GRID, alpha=0.55, label=critical_sentence(figure)))
    return signs


def _sign(label: str, look: Mapping[str, Any], colour: str = INK) -> Line2D:
    return Line2D([], [], **look, color=colour, linestyle="", label=label)
