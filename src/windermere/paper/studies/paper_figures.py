"""The paper's figures and its table in the paper's layout, each from the tables of studies alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from windermere.paper.figures.camera_ready import (
    for_print,
    letter,
    print_figure,
    print_legend,
    save_contact_sheet,
    save_pdf,
    thin,
)
from windermere.paper.figures.forks_figure import draw_accuracy_at_forks, draw_steps_at_forks, fork_legend
from windermere.paper.figures.grid_layout import GridFigure, GridLayout
from windermere.paper.figures.outputs_figure import draw_output_panel, output_legend
from windermere.paper.figures.table_figure import table_figure
from windermere.paper.figures.toy_figures import draw_fan_panels, draw_ladder, fan_legend
from windermere.paper.figures.trajectory_figure import draw_accuracy_panel, draw_trajectory_panel, trajectory_legend
from windermere.paper.studies import appendix_figures as appendix
from windermere.paper.studies.adaptation_findings import percent
from windermere.paper.studies.critical import PRINTED, rate_apart, short_number
from windermere.paper.studies.critical_findings import RULES, bracket, on_training_batches
from windermere.paper.studies.critical_rows import CHECKS
from windermere.paper.studies.decision_regions import output_panels
from windermere.paper.studies.fan import fan_panels
from windermere.paper.studies.printing import Results, draw_adapted, grid_panels
from windermere.paper.studies.smaller_step import figure_of, forks_by_run
from windermere.paper.studies.study import data_name
from windermere.paper.studies.table1 import printed_cells
from windermere.paper.studies.table1_lines import TABLE, lines
from windermere.paper.studies.trajectories import trajectory_panels
from windermere.records import storing

NOTE = (
    "NFE of a grid: between the last number that fails the check and the first that passes. The paper counts one more."
    "\nOurs: on the test set, of seeds 0 to 4 on Sphere2, and of three to five seeds on CIFAR-10. On training batches,"
    "\nas the paper checks: {}."
)


def figure_1(results: Results) -> Figure:
    panels = trajectory_panels(results["trajectories"])
    figure = print_figure(4.0)
    rows = figure.subplots(2, len(panels), squeeze=False, height_ratios=(2.0, 1.0))
    for panel, plane, curve in zip(panels, rows[0], rows[1], strict=True):
        draw_trajectory_panel(plane, panel)
        draw_accuracy_panel(curve, panel)
        curve.tick_params(axis="x", labelsize=6)
    rows[1, 0].set_ylabel("test accuracy")
    thin(figure.axes)
    letter(rows.ravel(), [panel.title for panel in panels])
    signs = [line for line in rows[1, 0].lines if not str(line.get_label()).startswith("_")]
    print_legend(figure, [*trajectory_legend(panels), *signs])
    return figure


def figure_2(results: Results) -> Figure:
    panels = output_panels(results["decision-regions"])
    figure = print_figure(3.0)
    row = figure.subplots(1, len(panels))
    for axes, panel in zip(row, panels, strict=True):
        draw_output_panel(axes, panel, size=5.0)
    letter(row, [panel.title.partition(" ")[2] for panel in panels])
    print_legend(figure, output_legend(panels))
    return figure


def figure_3(results: Results) -> Figure:
    panels, ladder = fan_panels(results["fan"])
    figure = print_figure(3.5)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(2.3, 1.2))[:, 0]
    row = above.subplots(1, len(panels), sharex=True, sharey=True)
    draw_fan_panels(row, panels, scale=0.6)
    print_legend(above, fan_legend(panels))
    axes = below.subplots()
    draw_ladder(axes, ladder, size=3.5)
    letter([*row, axes], [*(panel.title.partition(" ")[2] for panel in panels), "linearly separable or not"])
    return figure


def figure_4(results: Results) -> Figure:
    """Every second precision of training, as the paper shows them."""
    return grid_panels(
        [_every_second(grid) for name in ("sphere2-fixed", "cifar10-adaptive") for grid in results.grids(name)]
    )


def _every_second(figure: GridFigure) -> GridFigure:
    chosen = GridLayout(figure).precisions[::2]
    return replace(figure, tests=[test for test in figure.tests if test.trained in chosen])


def figure_5(results: Results) -> Figure:
    images, tables = results.adapted("step-adaptation-cifar10")["euler/midpoint"], results["smaller-step-sphere2"]
    what = figure_of(tables, next(iter(forks_by_run(tables))), "")
    figure = print_figure(4.2)
    above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
    upper, lower = above.subplots(1, 2), below.subplots(1, 2)
    draw_adapted(upper, images, above)
    draw_accuracy_at_forks(lower[0], what, size=5)
    draw_steps_at_forks(lower[1], what)
    lower[0].set_xlabel("iteration")
    thin(lower, 0.8)
    print_legend(below, fork_legend(what))
    letter([*upper, *lower], ["CIFAR-10", "", f"Sphere2, seed {what.seed}"])
    return figure


def table_1(results: Results) -> Figure:
    found = lines(results["table1"][TABLE])
    rows: list[Sequence[str]] = []
    for data in dict.fromkeys(line.data for line in found):
        rows += [(), printed_cells(data)]
        for line in (line for line in found if line.data == data):
            critical = line.critical
            own, costs = percent(critical.own) if critical else "", f"{fmean(line.costs):.1f}" if line.costs else ""
            ours = f"ours, rate {short_number(line.lr)}"
            rows.append(("", ours, line.bracket, own, costs, percent(line.adapted) if line.costs else ""))
    heads = ("Data set", "", "Grid search: NFE", "Accuracy", "Algorithm 2: NFE", "Accuracy")
    return table_figure(heads, rows[1:], (0.01, 0.22, 0.42, 0.58, 0.76, 0.92), NOTE.format(_on_batches(results)))


def _on_batches(results: Results) -> str:
    """The brackets of the paper's own check, at its learning rates."""
    rows = [row for row in results["critical-steps"][CHECKS] if row.method == "euler" and row.steps is not None]
    rule, told = next(iter(RULES.values())), []
    for data in PRINTED:
        own = [row for row in rows if row.data == data and not rate_apart(data, row.lr)]
        told.append(f"{bracket(on_training_batches(own), rule)[2]} on {data_name(data)}")
    return ", ".join(told)


# ---------------------------------------------------------------------------------------------------------
# All of them

FIGURES: Mapping[str, Callable[[Results], Figure]] = {
    "figure1": figure_1,
    "figure2": figure_2,
    "figure3": figure_3,
    "figure4": figure_4,
    "figure5": figure_5,
    "table1": table_1,
    "appendix-a-field": appendix.field,
    "appendix-a-crossings": appendix.crossings,
    "appendix-b-sphere2-data": appendix.data_set,
    **{
        f"appendix-b-{name}": partial(appendix.grids_of, names=(name,))
        for name in (
            "sphere2-fixed", "cifar10-fixed", "mnist-fixed", "sphere3-fixed", "sphere10-fixed", "sphere900-fixed",
            "cifar10-adaptive", "mnist-adaptive",
        )
    },
    "appendix-b-sphere2-adaptive": partial(appendix.grids_of, names=("sphere2-adaptive", "sphere2-adjoint")),
    "appendix-c-cifar10": partial(
        appendix.adapted_steps, name="step-adaptation-cifar10", pairs=("euler/rk4", "midpoint/rk4")
    ),
    "appendix-c-mnist": partial(appendix.adapted_steps, name="step-adaptation-mnist", pairs=("euler/midpoint",)),
    "appendix-c-sphere2": partial(
        appendix.adapted_steps,
        name="step-adaptation-sphere2",
        pairs=("euler/midpoint", "euler/rk4", "midpoint/rk4"),
    ),
    "appendix-c-tolerances": appendix.adapted_tolerances,
    **{f"appendix-e-sphere2-{n + 1}": partial(appendix.seeds_of, name="sphere2-fixed", page=n) for n in range(3)},
    **{f"appendix-e-cifar10-{n + 1}": partial(appendix.seeds_of, name="cifar10-fixed", page=n) for n in range(3)},
}  # fmt: skip
SHEET = "contact-sheet.png"


@for_print
def draw_paper_figures(results: Path, out: Path) -> list[Path]:
    """A PDF for each, and one page with all of them small."""
    figures = {name: draw(Results(results)) for name, draw in FIGURES.items()}
    paths = [out / f"{name}.pdf" for name in figures]
    with storing(out, "created"):
        out.mkdir(parents=True, exist_ok=True)
    for figure, path in zip(figures.values(), paths, strict=True):
        save_pdf(figure, path)
    save_contact_sheet(figures, out / SHEET)
    return [*paths, out / SHEET]
