"""Whether one number tells tied models on all spheres: Euler steps on Sphere3 and Sphere10, beside Sphere2's.

The numbers are those of the study of recipes, which has asked them of Sphere2's models; so are the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median

from windermere.paper.figures.recipes_figure import draw_laws
from windermere.paper.studies.chances import best_threshold
from windermere.paper.studies.critical import LEAST_ON_SPHERES, THRESHOLD, ends
from windermere.paper.studies.critical import bracket as in_words
from windermere.paper.studies.recipe_measures import RecipeRow, audited, costs
from windermere.paper.studies.recipe_measures import untested_row as untested_recipe
from windermere.paper.studies.recipes import AXES, LAWS, area_of, decided, law_of, loss_of, panel
from windermere.paper.studies.rows import MAIN, Table, Tables, draw_png, grouped
from windermere.paper.studies.study import QUICK_SPHERES, Finding, Finished, Study, data_name, of_ours, paper_config
from windermere.paper.training import RunConfig
from windermere.solvers import FixedStep

DATA = ("sphere3", "sphere10")
EULER = "euler"
STEPS, QUICK_STEPS = (4, 8, 16, 32, 64), (4, 32)
"""Numbers of Euler steps."""


@dataclass(frozen=True, kw_only=True)
class LawRow(RecipeRow):
    """One model of constant steps."""

    data: str


LAW = Table(MAIN, LawRow)
SPHERE2 = Table("recipes", RecipeRow)
"""Where the study of recipes is beside this one."""


def runs(quick: bool) -> dict[str, RunConfig]:
    return {
        f"{data}-{EULER}-{steps}": paper_config(
            data, FixedStep.of(EULER, steps=steps), **(QUICK_SPHERES if quick else {})
        )
        for data in DATA
        for steps in (QUICK_STEPS if quick else STEPS)
    }


def measure(run: Finished) -> Tables:
    config = run.trained.config
    rows = audited(run.name, _recipe(run.name), run.trained, run.test_set, costs(run.folder))
    return Tables({LAW: [LawRow(**vars(row), data=config.data) for row in rows]})


def untested_row(run: str, config: RunConfig, seed: int) -> LawRow:
    return LawRow(**{**vars(untested_recipe(run, config, seed)), "recipe": _recipe(run)}, data=config.data)


def _recipe(run: str) -> str:
    """ "constant-euler-2", of "sphere3-euler-2"."""
    return f"constant-{run.partition('-')[2]}"


def draw(tables: Tables, folder: Path) -> list[Path]:
    known = [row for row in tables[LAW] if row.flow_accuracy is not None]
    kinds = [data_name(row.data) for row in known]
    return draw_png(partial(draw_laws, [panel(law, known, kinds) for law in AXES], THRESHOLD), folder, ONE_LAW.name)


# ---------------------------------------------------------------------------------------------------------
# Findings

Grids = dict[str, list[RecipeRow]]
"""Rows by data set."""


def findings(tables: Tables) -> list[Finding]:
    grids = grids_of(tables)
    return [*_areas(grids), *_thresholds(grids), *_critical(grids)]


def grids_of(tables: Tables) -> Grids:
    """Models of constant steps that trained: nothing can be said of what never learnt."""
    own: Grids = {"sphere2": [row for row in tables[SPHERE2] if row.recipe.startswith("constant")]}
    own |= {data: [row for row in tables[LAW] if row.data == data] for data in DATA}
    return {data: trained for data, rows in own.items() if (trained := [row for row in rows if _counts(row)])}


def _counts(row: RecipeRow) -> bool:
    return (row.accuracy or 0.0) >= LEAST_ON_SPHERES and row.flow_accuracy is not None


def _of_euler(rows: Sequence[RecipeRow]) -> list[RecipeRow]:
    return [row for row in rows if row.method == EULER]


def _areas(grids: Grids) -> Iterator[Finding]:
    """Over each grid, and over all of them at once."""
    pooled = decided([row for rows in grids.values() for row in rows])
    of_euler = {data: _of_euler(decided(rows)) for data, rows in grids.items()}
    parts = {f"Euler's on {data_name(data)} ({len(rows)})": rows for data, rows in of_euler.items()}
    parts |= {f"Euler's on all ({len(_of_euler(pooled))})": _of_euler(pooled)}
    parts |= {f"these and those of Sphere2's midpoint and rk4 ({len(pooled)})": pooled}
    for law, words in LAWS.items():
        told = [f"{name} {area}" for name, some in parts.items() if (area := area_of(some, law))]
        claim = f"Across spheres, tied models are told apart by {words} (area under the ROC curve)."
        yield of_ours(claim, "; ".join(told), law)


def _thresholds(grids: Grids) -> Iterator[Finding]:
    """A threshold that was chosen on Sphere2's Euler models, elsewhere."""
    for law, words in LAWS.items():
        if (limit := threshold_of(grids, law)) is None:
            continue
        told = [
            f"{data_name(data)}: right on {_right(some, law, limit)} of {len(some)}"
            for data, rows in grids.items()
            if data in DATA and (some := decided(rows))
        ]
        claim = f"A threshold for {words}, chosen on Sphere2's Euler models, tells tied ones elsewhere."
        yield of_ours(claim, "; ".join([f"above {limit:.2g}", *told]), law)


def _right(rows: Sequence[RecipeRow], law: str, limit: float) -> int:
    """How many a threshold tells rightly."""
    return sum(((law_of(row, law) or 0.0) > limit) == (row.outcome == "TIED") for row in rows)


def threshold_of(grids: Grids, law: str) -> float | None:
    known = _of_euler(decided(grids.get("sphere2", [])))
    pairs = [(value, row.outcome == "TIED") for row in known if (value := law_of(row, law)) is not None]
    return best_threshold([value for value, _ in pairs], [tied for _, tied in pairs])


def _critical(grids: Grids) -> Iterator[Finding]:
    """Where the mean gap falls to the threshold of Algorithm 2, and where medians of a number fall to theirs."""
    for data, rows in grids.items():
        some = _of_euler(rows)
        found = bracket(some, lambda own: fmean(abs(loss_of(row)) for row in own) > THRESHOLD + 1e-9)
        told = [f"found {found}"]
        for law, title in AXES.items():
            if (limit := threshold_of(grids, law)) is not None:
                told.append(f"by {title} {bracket(some, _above(law, limit))}")
        claim = "The critical number of Euler steps is predicted by a number and its threshold from Sphere2."
        yield of_ours(claim, "; ".join(told), data_name(data))


def _above(law: str, limit: float) -> Callable[[Sequence[RecipeRow]], bool]:
    return lambda own: median(value for row in own if (value := law_of(row, law)) is not None) > limit


def bracket(rows: Sequence[RecipeRow], fails: Callable[[Sequence[RecipeRow]], bool]) -> str:
    """The largest number of steps whose models fail, and the smallest from which on all pass."""
    by_steps = grouped((round(row.steps or 0), row) for row in rows)
    return in_words(*ends((steps, not fails(own)) for steps, own in sorted(by_steps.items())))


def left_out(tables: Tables) -> str:
    """Models that did not train are in no number."""
    lost = [row for row in tables[LAW] if not _counts(row)]
    named = ", ".join(f"{row.run} seed {row.seed}" for row in lost)
    return f"Did not train, and left out: {named}." if lost else f"All {len(tables[LAW])} models trained."


ONE_LAW = Study(
    name="one-law",
    paper="beyond the paper",
    what="Which number tells tied models of Euler steps on three spheres, and where it puts the critical step",
    tables=(LAW,),
    runs=runs,
    measure=measure,
    untested=untested_row,
    draw=draw,
    findings=findings,
    beside=("recipes",),
    left_out=left_out,
)
