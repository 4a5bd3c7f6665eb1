"""Table 1: what a grid search over Euler steps costs and reaches, against Algorithm 2, which needs none.

Its rows have the columns of the studies of grids and of adaptation, so `borrowed` takes from those what they have
measured already.
"""

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from windermere.adaptation.step_size import check_solver
from windermere.paper.figures import CostPanel, GridPoint, PrintedValue, draw_costs
from windermere.paper.studies.adaptation import OTHER_LR, QUICK, algorithm_2
from windermere.paper.studies.adaptation_findings import PAPER, by_seed, is_same, percent, spread
from windermere.paper.studies.adaptation_measures import TestSolver, final_rows, rule_of
from windermere.paper.studies.critical import short_number
from windermere.paper.studies.folder import read_provenance, run_of
from windermere.paper.studies.grid_findings import PRINTED_BRACKET, within_a_factor_of_two
from windermere.paper.studies.study import (
    MAIN,
    SEEDS,
    Borrowed,
    Finding,
    Finished,
    Study,
    Tables,
    data_name,
    seed_count,
)
from windermere.paper.studies.table1_lines import GRID, PRINTED_GRID, Line, StepsEntry, lines
from windermere.paper.training import RunConfig, paper_settings
from windermere.records import Row, read_rows, write_atomically, write_rows
from windermere.solvers import FixedStep

LENDERS = ("sphere2-fixed", "cifar10-fixed", "step-adaptation-sphere2", "step-adaptation-cifar10")
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
    grid = {
        f"{data}-euler-{steps}" + (f"-lr{short_number(lr)}" if data in OTHER_LR else ""): _constant(
            data, steps, lr, quick
        )
        for lr in rates
        for steps in (QUICK_GRID if quick else GRID)[data]
    }
    return {**grid, **algorithm_2(data, quick)}


def _constant(data: str, steps: int, lr: float, quick: bool) -> RunConfig:
    solver = FixedStep.of("euler", steps=steps)
    values = {"seeds": SEEDS, **paper_settings(data, solver), "lr": lr, **(QUICK[data] if quick else {})}
    return RunConfig(data=data, solver=solver, evaluate_every=values["iterations"] // 10, **values)


def measure(run: Finished) -> Tables:
    """As the studies of adaptation do; grids are tested with the very check of Algorithm 2 as well."""
    config = run.trained.config
    if config.controller is not None:
        return {MAIN: final_rows(run)}
    step = config.solver.precision
    check = TestSolver("midpoint", check_solver(config.solver.method, "midpoint", step, 1.0).precision / step)
    rows = final_rows(run, extra=[check] if check.factor < 1 else [])
    return {MAIN: [{**row, "steps": row["final_steps"], "tolerance": None} for row in rows]}


def borrowed(results: Path, quick: bool) -> Borrowed:
    """What other studies' tables have of this one's runs, under the names that they have here."""
    names = {_key(_wanted_row(config)): name for name, config in runs(quick).items()}
    rows, made = list[Row](), dict[str, Any]()
    for lender in LENDERS:
        lent = [row for row in read_rows(results / lender / f"{MAIN}.csv") if _key(row) in names]
        rows += [{**row, "run": names[_key(row)]} for row in lent]
        here, known = {row["run"]: names[_key(row)] for row in lent}, read_provenance(results / lender).items()
        made |= {
            f"{lender}/{here[run]}{name.removeprefix(run)}": {**how, "borrowed": lender}
            for name, how in known
            if (run := run_of(name)) in here
        }
    return rows, made


def _wanted_row(config: RunConfig) -> Row:
    steps = round(1 / config.solver.precision) if config.controller is None else None
    return {**rule_of(config), "steps": steps}


def _key(row: Row) -> tuple[Any, ...]:
    """What makes two rows those of one configuration."""
    if row.get("algorithm") in ("paper", "steady"):
        return tuple(
            row.get(name) for name in ("data", "method", "lr", "iterations", "algorithm", "check", "threshold")
        )
    return tuple(row.get(name) for name in ("data", "method", "lr", "iterations", "steps"))


# ---------------------------------------------------------------------------------------------------------
# What is drawn and written


def draw(tables: Tables, folder: Path) -> list[Path]:
    """The figure, and the table itself as CSV and as Markdown."""
    if not (found := lines(tables[MAIN])):
        return []
    figures = [folder / f"table1.{kind}" for kind in ("png", "svg")]
    draw_costs([_panel(line) for line in found], figures)
    printed = [_printed_row(data) for data in dict.fromkeys(line.data for line in found)]
    write_rows(folder / "table1.csv", [*printed, *map(_row, found)])
    write_atomically(folder / "table1.md", markdown(found).encode())
    return [*figures, folder / "table1.csv", folder / "table1.md"]


def _panel(line: Line) -> CostPanel:
    critical, (low, high), printed = line.critical, PRINTED_BRACKET[line.data], PAPER[line.data]
    accuracy, around = PRINTED_GRID[line.data]
    return CostPanel(
        title=line.name,
        grid=[GridPoint(cost=e.steps, accuracy=e.accuracy, checked=e.checked) for e in line.entries],
        critical=(line.fails or 0, critical.steps if critical else inf) if line.entries else None,
        adapted=list(zip(line.adapted_column("cost"), line.adapted_column("accuracy"), strict=True)),
        printed_grid=PrintedValue(costs=(low + 1, high + 1), accuracy=accuracy, spread=around),
        printed_adapted=PrintedValue(
            costs=(printed.cost, printed.cost), accuracy=printed.accuracy, spread=printed.spread
        ),
    )


def _row(line: Line) -> Row:
    critical, accuracy = line.critical, line.adapted_column("accuracy")
    grid = critical.accuracy if critical else []
    return {
        "data": line.data,
        "source": "ours",
        "lr": line.lr,
        "grid_fails": line.fails,
        "grid_passes": critical.steps if critical else None,
        "grid_accuracy": fmean(grid) if grid else None,
        "grid_spread": spread(grid) if grid else None,
        "grid_seeds": len(grid),
        "adapted_evaluations": fmean(line.adapted_column("cost")) if accuracy else None,
        "adapted_accuracy": fmean(accuracy) if accuracy else None,
        "adapted_spread": spread(accuracy) if accuracy else None,
        "adapted_seeds": len(accuracy),
    }


def _printed_row(data: str) -> Row:
    (low, high), (accuracy, around), adapted = PRINTED_BRACKET[data], PRINTED_GRID[data], PAPER[data]
    grid = {"grid_fails": low, "grid_passes": high, "grid_accuracy": accuracy, "grid_spread": around, "grid_seeds": 5}
    return {
        "data": data,
        "source": "paper",
        **grid,
        "adapted_evaluations": adapted.cost,
        "adapted_accuracy": adapted.accuracy,
        "adapted_spread": adapted.spread,
        "adapted_seeds": 5,
    }


def markdown(found: Sequence[Line]) -> str:
    heads = ("data set", "", "grid search: evaluations", "accuracy", "Algorithm 2: evaluations", "accuracy")
    rows = []
    for data in dict.fromkeys(line.data for line in found):
        rows += [_printed_cells(data), *(_cells(line) for line in found if line.data == data)]
    return "\n".join([_joined(heads), "|---" * len(heads) + "|", *map(_joined, rows), "", NOTE])


def _printed_cells(data: str) -> tuple[str, ...]:
    (low, high), (accuracy, around), adapted = PRINTED_BRACKET[data], PRINTED_GRID[data], PAPER[data]
    reached = [f"{100 * a:.1f} ± {100 * s:.1f} %" for a, s in ((accuracy, around), (adapted.accuracy, adapted.spread))]
    return (data_name(data), "paper", f"{low + 1}-{high + 1}", reached[0], f"{adapted.cost}", reached[1])


def _cells(line: Line) -> tuple[str, ...]:
    critical, costs = line.critical, line.adapted_column("cost")
    return (
        "",
        f"ours, learning rate {short_number(line.lr)}",
        line.bracket,
        percent(critical.accuracy) + (" (one seed)" if len(critical.accuracy) == 1 else "") if critical else "",
        f"{fmean(costs):.1f} ({by_seed(costs)})" if costs else "",
        percent(line.adapted_column("accuracy")) if costs else "",
    )


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def findings(tables: Tables) -> list[Finding]:
    return [finding for line in lines(tables[MAIN]) for finding in _findings(line)]


def _findings(line: Line) -> Iterator[Finding]:
    low, high = PRINTED_BRACKET[line.data]
    accuracy, around = PRINTED_GRID[line.data]
    critical, adapted = line.critical, line.adapted_column("accuracy")
    passes = critical.steps if critical else None
    if line.entries:
        yield Finding(
            claim="a grid search over Euler steps finds the printed critical number, within a factor of two",
            ours=f"{line.bracket} (printed: {low}-{high}), of {line.entries[0].steps} to {line.entries[-1].steps} "
            f"steps ({seed_count(*(len(e.accuracy) for e in line.entries))})",
            agrees=within_a_factor_of_two(line.fails, passes, low, high) if line.whole else None,
            case=line.name,
        )
    if critical is None:
        return
    own = critical.accuracy
    yield Finding(
        claim="the accuracy of the coarsest run that passes is as printed",
        ours=f"{percent(own)} with {critical.steps} steps ({seed_count(len(own))}) where {100 * accuracy:.1f} ± "
        f"{100 * around:.1f} % is printed",
        agrees=is_same(own, accuracy, around) if line.whole else None,
        case=line.name,
    )
    if adapted:
        yield from _adapted(line, critical)


def _adapted(line: Line, critical: StepsEntry) -> Iterator[Finding]:
    own, adapted, costs = critical.accuracy, line.adapted_column("accuracy"), line.adapted_column("cost")
    par = fmean(own) - fmean(adapted) <= spread(own) + spread(adapted)
    yield Finding(
        claim="Algorithm 2 is as accurate as the coarsest run that passes, without a search",
        ours=f"{percent(adapted)} against {percent(own)} ({len(adapted)} and {len(own)} seeds)",
        agrees=par if line.whole else None,
        case=line.name,
    )
    yield Finding(
        claim="Algorithm 2 costs no more than the coarsest run that passes",
        ours=f"{fmean(costs):.1f} evaluations per iteration ({by_seed(costs)}) against {critical.steps}",
        agrees=fmean(costs) <= critical.steps if line.whole else None,
        case=line.name,
    )


TABLE1 = Study(
    name="table1",
    paper="Table 1",
    what="A grid search over Euler steps against Algorithm 2, on Sphere2 and CIFAR-10: accuracy and cost",
    runs=runs,
    measure=measure,
    borrow=borrowed,
    draw=draw,
    findings=findings,
)
