"""What figures for print are drawn from, and the rows of panels that several of them have."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from windermere.errors import RunError
from windermere.paper.figures.adaptation_figure import Member, draw_accuracy, draw_steps, seed_legend
from windermere.paper.figures.camera_ready import letter, print_figure, print_legend, thin
from windermere.paper.figures.grid_figure import draw_tests, scale_grid, shared_legend
from windermere.paper.figures.grid_layout import GridFigure, GridLayout
from windermere.paper.studies.adaptation import member_of
from windermere.paper.studies.adaptation_runs import Adapted, adapted_runs
from windermere.paper.studies.critical import grids_in, rate_apart
from windermere.paper.studies.folder import from_tables, read_tables
from windermere.paper.studies.fresh_seeds import is_first
from windermere.paper.studies.grids import grid_figure
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import GRID, MAIN, Tables, of_seeds


class Results:
    """The folder of all studies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Tables:
        """A study's tables, of the paper's five seeds: its layout has room for these."""
        path = self.folder / name
        if not (path / f"{MAIN}.csv").exists():
            raise RunError(f"{self.folder} has no table of '{name}': run that study first, or name another folder")
        with from_tables(path):
            return of_seeds(read_tables(path, find_study(name)), is_first)

    def grids(self, name: str) -> list[GridFigure]:
        """The grids of a study's training methods, at the paper's learning rate."""
        return [grid_figure(grid) for grid in grids_in(self[name][GRID]).values() if not grid.apart]

    def adapted(self, name: str) -> dict[str, Adapted]:
        """The paper's algorithm, by the pair of methods, at its learning rate."""
        runs = [run for run in adapted_runs(self[name]) if run.first.algorithm == "paper"]
        usual = [run for run in runs if not rate_apart(run.first.data, run.first.lr)]
        return {f"{run.first.method}/{run.first.check}": run for run in usual}


def grid_panels(grids: Sequence[GridFigure]) -> Figure:
    """Rows of two, each with one scale of accuracy and without its band, as the paper has none. Colours need no legend:
    dark marks stand at their precision."""
    rows = -(-len(grids) // 2)
    figure = print_figure(2.15 * rows + 0.25)
    panels: list[Axes] = []
    for number, part in enumerate(figure.subfigures(rows, 1, squeeze=False)[:, 0]):
        layouts = [GridLayout(replace(grid, fails=None)) for grid in grids[2 * number : 2 * number + 2]]
        row = part.subplots(1, len(layouts), sharey=True, squeeze=False)[0]
        limits = [_draw_grid(axes, grid) for axes, grid in zip(row, layouts, strict=True)]
        share_limits(row[0], limits)
        for axes in row[1:]:
            axes.set_ylabel("")
        print_legend(part, shared_legend(layouts, means=True, scale=0.5))
        panels.extend(row)
    letter(panels, [grid.name.partition(", learning rate")[0] for grid in grids])
    return figure


def share_limits(axes: Axes, limits: Sequence[tuple[float, float]]) -> None:
    """Gives panels that have one axis of accuracy the limits that hold all of them."""
    axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _draw_grid(axes: Axes, grid: GridLayout) -> tuple[float, float]:
    draw_tests(axes, grid, scale=0.5)
    scale_grid(axes, grid)
    axes.tick_params(axis="x", labelsize=6)
    return axes.get_ylim()


def draw_adapted(row: Sequence[Axes], run: Adapted, part: SubFigure | Figure | None = None) -> None:
    """Test accuracy of every seed, and its number of steps; a legend below the part of a figure, where one is given."""
    members = members_of(run)
    draw_accuracy(row[0], members)
    draw_steps(row[1], members)
    row[0].set(ylabel="test accuracy")
    scale_iterations(row, members)
    thin(row)
    if part is not None:
        print_legend(part, seed_legend(members))


def members_of(run: Adapted) -> list[Member]:
    """Without their accuracies on batches, which the paper does not show."""
    found = [member_of(curve) for curve in run.by_seed]
    return [replace(m, index=n, of=len(found), batches=m.batches[:, :0]) for n, m in enumerate(found)]


def scale_iterations(row: Sequence[Axes], members: Sequence[Member]) -> None:
    for axes in row:
        axes.set(xlabel="iteration", xlim=(0, 1.01 * max(member.end for member in members)))
