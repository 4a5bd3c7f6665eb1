"""Table 1: what a grid search over Euler steps costs and reaches, against Algorithm 2, which needs none.

Its rows have the columns of the studies of grids and of adaptation, so `borrowed` takes from those what they have
measured already.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from windermere.adaptation.step_size import check_solver
from windermere.paper.figures.cost_figure import CostPanel, GridPoint, PrintedValue, draw_costs
from windermere.paper.studies.adaptation import OTHER_LR, QUICK, algorithm_2
from windermere.paper.studies.adaptation_findings import by_seed, percent, spread
from windermere.paper.studies.adaptation_measures import ADAPTED, AdaptedRow, TestSolver, final_rows
from windermere.paper.studies.adaptation_measures import untested_row as untested_adapted_row
from windermere.paper.studies.critical import PRINTED, short_number
from windermere.paper.studies.folder import read_provenance, run_of
from windermere.paper.studies.measuring import untested_row as untested_grid_row
from windermere.paper.studies.rows import GRID as GRID_TABLE
from windermere.paper.studies.rows import GridRow, Table, Tables
from windermere.paper.studies.study import Finished, Study, data_name, paper_config
from windermere.paper.studies.table1_findings import findings
from windermere.paper.studies.table1_lines import GRID, TABLE, Line, Table1Row, lines
from windermere.paper.training import RunConfig, paper_settings
from windermere.records import write_atomically
from windermere.solvers import FixedStep

LENDERS: dict[str, Table[Any]] = {
    "sphere2-fixed": GRID_TABLE,
    "cifar10-fixed": GRID_TABLE,
    "step-adaptation-sphere2": ADAPTED,
    "step-adaptation-cifar10": ADAPTED,
}
QUICK_GRID = {**GRID, "cifar10": (1, 4)}
NOTE = """\
Evaluations are of the field, per training iteration, those of all checks included. The paper counts one more than the
steps (65-129 for 64-128, 17-33 for 16-32); ours are Euler's own, one for each step. The grid's two numbers are the
finest that fails the check of Algorithm 2 on the test set and the coarsest from which on all pass, averaged over the
seeds that trained; its accuracy is that of the latter. (The check's midpoint steps, or the finest that were tested.)
"""


# ---------------------------------------------------------------------------------------------------------
# Runs


def runs(quick: bool) -> dict[str, RunConfig]:
    return {**_runs("sphere2", quick), **_runs("cifar10", quick)}


def _runs(data: str, quick: bool) -> dict[str, RunConfig]:
    rates = [paper_settings(data, FixedStep("euler", step=1.0))["lr"]]
    if data in OTHER_LR and not quick:
        rates.append(OTHER_LR[data])
    grid = dict[str, RunConfig]()
    for lr in rates:
        ending = f"-lr{short_number(lr)}" if data in OTHER_LR else ""
        settings = {"lr": lr, **(QUICK[data] if quick else {})}
        for steps in (QUICK_GRID if quick else GRID)[data]:
            grid[f"{data}-euler-{steps}{ending}"] = paper_config(data, FixedStep.of("euler", steps=steps), **settings)
    return {**grid, **algorithm_2(data, quick)}


def measure(run: Finished) -> Tables:
    """As the studies of adaptation do; grids are tested with the very check of Algorithm 2 as well."""
    config = run.trained.config
    if config.controller is not None:
        return Tables({TABLE: [_row_of(row) for row in final_rows(run)]})
    step = config.solver.precision
    check = TestSolver("midpoint", check_solver(config.solver.method, "midpoint", step, 1.0).precision / step)
    rows = final_rows(run, extra=[check] if check.factor < 1 else [])
    return Tables({TABLE: [replace(_row_of(row), steps=row.final_steps) for row in rows]})


def _row_of(row: GridRow | AdaptedRow) -> Table1Row:
    return Table1Row(**vars(row))


def untested_row(run: str, config: RunConfig, seed: int) -> Table1Row:
    untested = untested_grid_row if config.adapt == "none" else untested_adapted_row
    return _row_of(untested(run, config, seed))


def borrowed(results: Path, quick: bool) -> tuple[list[Table1Row], dict[str, Any]]:
    """What other studies' tables have of this one's runs, under the names that they have here."""
    names = {_wanted(config): name for name, config in runs(quick).items()}
    rows, made = list[Table1Row](), dict[str, Any]()
    for lender, table in LENDERS.items():
        lent = [row for row in map(_row_of, table.read(results / lender)) if _key(row) in names]
        rows += [replace(row, run=names[_key(row)]) for row in lent]
        here, known = {row.run: names[_key(row)] for row in lent}, read_provenance(results / lender).items()
        made |= {
            f"{lender}/{here[run]}{name.removeprefix(run)}": {**how, "borrowed": lender}
            for name, how in known
            if (run := run_of(name)) in here
        }
    return rows, made


def _wanted(config: RunConfig) -> tuple[Any, ...]:
    """The key of the rows of a run."""
    about = (config.data, config.solver.method, config.lr, config.iterations)
    if config.controller is not None:
        rule = vars(config.controller)
        return *about, None, "paper", rule["check"], rule["threshold"]
    return *about, round(1 / config.solver.precision), None, None, None


def _key(row: Table1Row) -> tuple[Any, ...]:
    """What makes two rows those of one configuration."""
    about = (row.data, row.method, row.lr, row.iterations)
    return *about, row.steps, row.algorithm, row.check, row.threshold


# ---------------------------------------------------------------------------------------------------------
# What is drawn and written


@dataclass(frozen=True, kw_only=True)
class LineRow:
    """A line of Table 1 as numbers: the paper's, or ours."""

    data: str
    source: str
    grid_fails: int | None = None
    grid_passes: int | None = None
    grid_accuracy: float | None = None
    grid_spread: float | None = None
    grid_seeds: int
    adapted_evaluations: float | None = None
    adapted_accuracy: float | None = None
    adapted_spread: float | None = None
    adapted_seeds: int
    lr: float | None = None


LINES = Table("table1", LineRow)


def draw(tables: Tables, folder: Path) -> list[Path]:
    """The figure, and the table itself as CSV and as Markdown."""
    if not (found := lines(tables[TABLE])):
        return []
    draw_costs([_panel(line) for line in found], figure := folder / "table1.png")
    printed = [_printed_row(data) for data in dict.fromkeys(line.data for line in found)]
    LINES.write(folder, [*printed, *map(_line_row, found)])
    write_atomically(folder / "table1.md", markdown(found).encode())
    return [figure, folder / "table1.csv", folder / "table1.md"]


def _panel(line: Line) -> CostPanel:
    critical, printed = line.critical, PRINTED[line.data]
    grid, adapted = (printed.fails, printed.passes), (printed.cost, printed.cost)
    return CostPanel(
        title=line.name,
        grid=[GridPoint(cost=e.precision, accuracy=e.own, checked=e.checked) for e in line.entries],
        critical=(line.fails or 0, critical.precision if critical else inf) if line.entries else None,
        adapted=list(zip(line.costs, line.adapted, strict=True)),
        printed_grid=PrintedValue(costs=grid, accuracy=printed.grid.mean, spread=printed.grid.spread),
        printed_adapted=PrintedValue(costs=adapted, accuracy=printed.adapted.mean, spread=printed.adapted.spread),
    )


def _line_row(line: Line) -> LineRow:
    critical, accuracy = line.critical, line.adapted
    grid = critical.own if critical else []
    return LineRow(
        data=line.data,
        source="ours",
        lr=line.lr,
        grid_fails=line.fails,
        grid_passes=int(critical.precision) if critical else None,
        grid_accuracy=fmean(grid) if grid else None,
        grid_spread=spread(grid) if grid else None,
        grid_seeds=len(grid),
        adapted_evaluations=fmean(line.costs) if accuracy else None,
        adapted_accuracy=fmean(accuracy) if accuracy else None,
        adapted_spread=spread(accuracy) if accuracy else None,
        adapted_seeds=len(accuracy),
    )


def _printed_row(data: str) -> LineRow:
    printed = PRINTED[data]
    return LineRow(
        data=data,
        source="paper",
        grid_fails=printed.fails,
        grid_passes=printed.passes,
        grid_accuracy=printed.grid.mean,
        grid_spread=printed.grid.spread,
        grid_seeds=5,
        adapted_evaluations=printed.cost,
        adapted_accuracy=printed.adapted.mean,
        adapted_spread=printed.adapted.spread,
        adapted_seeds=5,
    )


def markdown(found: Sequence[Line]) -> str:
    heads = ("data set", "", "grid search: evaluations", "accuracy", "Algorithm 2: evaluations", "accuracy")
    rows = []
    for data in dict.fromkeys(line.data for line in found):
        rows += [printed_cells(data), *(_cells(line) for line in found if line.data == data)]
    return "\n".join([_joined(heads), "|---" * len(heads) + "|", *map(_joined, rows), "", NOTE])


def printed_cells(data: str) -> tuple[str, ...]:
    printed = PRINTED[data]
    steps = f"{printed.fails + 1}-{printed.passes + 1}"
    return (data_name(data), "paper", steps, f"{printed.grid}", f"{printed.cost}", f"{printed.adapted}")


def _cells(line: Line) -> tuple[str, ...]:
    critical, costs = line.critical, line.costs
    return (
        "",
        f"ours, learning rate {short_number(line.lr)}",
        line.bracket,
        percent(critical.own) + (" (one seed)" if len(critical.own) == 1 else "") if critical else "",
        f"{fmean(costs):.1f} ({by_seed(costs)})" if costs else "",
        percent(line.adapted) if costs else "",
    )


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


TABLE1 = Study(
    name="table1",
    paper="Table 1",
    what="A grid search over Euler steps against Algorithm 2, on Sphere2 and CIFAR-10: accuracy and cost",
    tables=(TABLE,),
    runs=runs,
    measure=measure,
    untested=untested_row,
    borrow=borrowed,
    draw=draw,
    findings=findings,
)
