"""The figures of the paper's appendix in its layout, each from the tables of studies alone."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from windermere.paper.figures.adaptation_figure import draw_accuracy, draw_evaluations, draw_tolerances, seed_legend
from windermere.paper.figures.camera_ready import letter, print_figure, print_legend, thin
from windermere.paper.figures.grid_figure import draw_seeds, shared_legend
from windermere.paper.figures.grid_layout import GridLayout, with_unit
from windermere.paper.figures.toy_figures import draw_points, draw_quiver, draw_walks, walks_legend
from windermere.paper.studies.crossing_field import crossing_panels
from windermere.paper.studies.printing import (
    Results,
    draw_adapted,
    grid_panels,
    members_of,
    scale_iterations,
    share_limits,
)
from windermere.paper.studies.sphere2 import points_and_labels

SEEDS_AT_ONCE = 3
"""Precisions of training on a page of Appendix E."""


def field(results: Results) -> Figure:
    quiver, *_ = crossing_panels(results["crossing-field"])
    figure = print_figure(1.8, width=2.75)
    axes = figure.subplots()
    draw_quiver(axes, quiver)
    axes.set(xlabel="x", ylabel="y")
    return figure


def crossings(results: Results) -> Figure:
    _, panels, names = crossing_panels(results["crossing-field"])
    figure = print_figure(2.1)
    row = figure.subplots(1, len(panels))
    for axes, panel in zip(row, panels, strict=True):
        draw_walks(axes, panel)
        axes.set_xlabel("x")
    row[0].set_ylabel("y")
    thin(row)
    letter(row, [panel.title.partition(" ")[2].partition(":")[0] for panel in panels])
    print_legend(figure, walks_legend(names))
    return figure


def data_set(results: Results) -> Figure:
    figure = print_figure(2.75, width=2.75)
    draw_points(axes := figure.subplots(), *points_and_labels(results["sphere2-data"]), size=1.6)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, markerscale=2)
    return figure


def grids_of(results: Results, names: Sequence[str]) -> Figure:
    return grid_panels([grid for name in names for grid in results.grids(name)])


def adapted_steps(results: Results, name: str, pairs: Sequence[str]) -> Figure:
    runs = results.adapted(name)
    figure = print_figure(1.9 * len(pairs))
    panels: list[Axes] = []
    for pair, part in zip(pairs, figure.subfigures(len(pairs), 1, squeeze=False)[:, 0], strict=True):
        row = part.subplots(1, 2)
        draw_adapted(row, runs[pair], part if pair == pairs[-1] else None)
        panels.extend(row)
    letter(panels, [words for pair in pairs for words in (pair, "")])
    return figure


def adapted_tolerances(results: Results) -> Figure:
    runs = results.adapted("tolerance-adaptation-sphere2")
    figure = print_figure(1.8 * len(runs))
    panels = figure.subplots(len(runs), 3)
    for row, run in zip(panels, runs.values(), strict=True):
        members = members_of(run)
        draw_accuracy(row[0], members)
        draw_evaluations(row[1], members)
        draw_tolerances(row[2], members)
        scale_iterations(row, members)
    thin(figure.axes)
    letter(panels.ravel(), [words for pair in runs for words in (pair, "", "")])
    print_legend(figure, seed_legend(members))
    return figure


def seeds_of(results: Results, name: str, page: int) -> Figure:
    """Three numbers of steps on a page, Euler's method beside rk4."""
    grids = [GridLayout(grid) for grid in results.grids(name)]
    chosen = grids[0].precisions[SEEDS_AT_ONCE * page :][:SEEDS_AT_ONCE]
    figure = print_figure(1.5 * len(chosen) + 0.3)
    panels = figure.subplots(len(chosen), len(grids), squeeze=False, sharey=True)
    shown: list[tuple[Axes, str]] = []
    limits: list[tuple[float, float]] = []
    for row, trained in zip(panels, chosen, strict=True):
        for axes, grid in zip(row, grids, strict=True):
            if trained not in grid.precisions:
                axes.set_visible(False)
                continue
            draw_seeds(axes, grid, trained, scale=0.42)
            limits.append(axes.get_ylim())
            shown.append((axes, f"{grid.method}, {with_unit(trained, steps=True)}"))
        row[0].set_ylabel("test accuracy")
    share_limits(panels[0, 0], limits)
    letter([axes for axes, _ in shown], [title for _, title in shown])
    print_legend(figure, shared_legend(grids, means=False, scale=0.5))
    return figure
