"""What being tied costs: tied models and flows of equal accuracy, with what might tell them apart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from windermere.paper.figures.being_tied_figure import MeasurePanel, draw_measures
from windermere.paper.studies.being_tied_measures import MEASURES, TIED, TiedRow, lost_row, measure
from windermere.paper.studies.chances import holm
from windermere.paper.studies.recipe_runs import TEN_SEEDS, recipe_runs
from windermere.paper.studies.rows import Tables, draw_png
from windermere.paper.studies.statistics import LEVEL, against, told
from windermere.paper.studies.study import Finding, Study
from windermere.paper.training import RunConfig

FLOWS = "constant-euler-128"
"""What tied models are compared with; the recipes' own names are kept."""
COARSE = ("constant-euler-2", "constant-euler-4", "constant-euler-8")
CHEAP = "random-6-finish-0.2"
"""Flows that were trained otherwise, to see what tells flows apart."""
ALIKE = 0.02 + 1e-9
"""Accuracies that are no further apart are equal."""
FEWEST = 3
"""Pairs that a test takes."""
WORDS: Mapping[str, str] = {
    "lost": "inputs lost on the way back",
    "strayed": "inputs that come back far off",
    "strayed_finely": "far off by a fine way back",
    "noise_1": "accuracy, noise of 0.01",
    "noise_2": "accuracy, noise of 0.02",
    "noise_5": "accuracy, noise of 0.05",
    "attack_05": "accuracy, attack of 0.005",
    "attack_10": "accuracy, attack of 0.01",
    "attack_20": "accuracy, attack of 0.02",
    "calibration_error": "calibration error",
    "loss": "cross-entropy",
    "bfloat16": "accuracy in bfloat16",
    "float64_changes": "decisions changed by float64",
    "batch_changes": "decisions changed by batches of one",
    "longer_125": "accuracy until 1.25",
    "longer_150": "accuracy until 1.5",
}


def runs(quick: bool) -> dict[str, RunConfig]:
    known = recipe_runs(quick)
    names = ("constant-euler-4", "constant-euler-64") if quick else (*COARSE, FLOWS, CHEAP)
    return {name: replace(known[name], seeds=TEN_SEEDS) for name in names}


def draw(tables: Tables, folder: Path) -> list[Path]:
    names = list(dict.fromkeys(row.run for row in tables[TIED]))
    panels = [
        MeasurePanel(
            title=WORDS[name],
            values=[
                [v for row in tables[TIED] if row.run == run and (v := _of(row, name)) is not None] for run in names
            ],
        )
        for name in MEASURES
    ]
    labels = [name.removeprefix("constant-") for name in names]
    return draw_png(partial(draw_measures, panels, labels), folder, TIED_STUDY.name)


def _of(row: TiedRow, name: str) -> float | None:
    value: float | None = getattr(row, name)
    return value


# ---------------------------------------------------------------------------------------------------------
# Findings


def findings(tables: Tables) -> list[Finding]:
    rows = {row.key: row for row in tables[TIED] if row.accuracy is not None}
    names = dict.fromkeys(row.run for row in tables[TIED])
    flows = FLOWS if FLOWS in names else next((name for name in names if name not in COARSE), "")
    return [found for name in names if name != flows for found in _compared(name, flows, rows)]


def _compared(name: str, flows: str, rows: Mapping[tuple[str, int], TiedRow]) -> Iterator[Finding]:
    """Every measure of one run against the flows', paired by seeds."""
    every = [(row, rows[flows, row.seed]) for row in rows.values() if row.run == name and (flows, row.seed) in rows]
    pairs = [(one, other) for one, other in every if abs((one.accuracy or 0) - (other.accuracy or 0)) <= ALIKE]
    outcomes = [sum(one.outcome == kind for one, _ in pairs) for kind in ("TIED", "FLOW", "UNDECIDED")]
    yield Finding(
        claim=f"Which models are compared with those of {flows}.",
        ours=f"{len(pairs)} of {len(every)} seeds have accuracies within {ALIKE:g} of each other and are compared; of "
        f"these {outcomes[0]} are TIED, {outcomes[1]} FLOW and {outcomes[2]} UNDECIDED; accuracy "
        f"{_mean([one.accuracy for one, _ in pairs])} against {_mean([other.accuracy for _, other in pairs])}, under "
        f"the flow {_mean([one.flow_accuracy for one, _ in pairs])} against "
        f"{_mean([other.flow_accuracy for _, other in pairs])}",
        agrees=None,
        beyond=True,
        case=name,
    )
    if not pairs:
        return
    both = {m: [(a, b) for one, other in pairs if (a := _of(one, m)) is not None and (b := _of(other, m)) is not None]
            for m in MEASURES}  # fmt: skip
    chances = holm([_chance([a - b for a, b in values]) for values in both.values()])
    for (name_of, values), chance in zip(both.items(), chances, strict=True):
        shows = "differs" if chance < LEVEL else "nothing shows"
        yield Finding(
            claim=f"{WORDS[name_of].capitalize()}.",
            ours=f"{_mean([a for a, _ in values])} against {_mean([b for _, b in values])} ({len(values)} pairs of "
            f"seeds, Student's test, {told(chance)} by Holm): {shows}",
            agrees=None,
            beyond=True,
            case=name,
        )


def _chance(differences: Sequence[float]) -> float:
    """The p-value of paired differences."""
    return against(differences).p if len(differences) >= FEWEST else 1.0


def _mean(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{fmean(there):.3g}" if there else "nothing"


TIED_STUDY = Study(
    name="what-being-tied-costs",
    paper="beyond the paper",
    what="Tied models and flows of equal accuracy on Sphere2: the way back, robustness, calibration, arithmetic, time",
    tables=(TIED,),
    runs=runs,
    measure=measure,
    lost=lost_row,
    draw=draw,
    findings=findings,
)
