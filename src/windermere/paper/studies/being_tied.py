"""What being tied costs: tied models and flows of equal accuracy, with what might tell them apart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from windermere.paper.figures.being_tied_figure import MeasurePanel, draw_measures
from windermere.paper.studies.being_tied_measures import (
    ATTACKS,
    MEASURES,
    NOISES,
    SCALES,
    TIED,
    TiedRow,
    measure,
    untested_row,
)
from windermere.paper.studies.chances import holm
from windermere.paper.studies.recipe_runs import PATCHES, SPHERE2, Ground, recipe_runs
from windermere.paper.studies.rows import Tables, draw_png
from windermere.paper.studies.statistics import LEVEL, against, told
from windermere.paper.studies.study import Finding, Study, of_ours
from windermere.paper.training import RunConfig


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Which recipes are compared; their own names are kept."""

    ground: Ground
    coarse: tuple[str, ...]
    flows: str
    """What tied models are compared with."""
    drawn: str
    """Flows that were trained otherwise, to see what tells flows apart."""
    quick: tuple[str, ...]


SPHERE2_GROUPS = Groups(
    ground=SPHERE2,
    coarse=("constant-euler-2", "constant-euler-4", "constant-euler-8"),
    flows="constant-euler-128",
    drawn="random-6-finish-0.2",
    quick=("constant-euler-4", "constant-euler-64"),
)
IMAGE_GROUPS = Groups(
    ground=PATCHES,
    coarse=("constant-euler-2", "constant-euler-4"),
    flows="constant-euler-16",
    drawn="random-2",
    quick=("constant-euler-2", "constant-euler-8"),
)
ALIKE = 0.02 + 1e-9
"""Accuracies that are no further apart are equal."""
FEWEST = 3
"""Pairs that a test takes."""
WORDS: Mapping[str, str] = {
    "lost": "inputs lost on the way back",
    "strayed": "inputs that come back far off",
    "strayed_finely": "far off by a fine way back",
    "noise_1": "accuracy, noise of {}",
    "noise_2": "accuracy, noise of {}",
    "noise_5": "accuracy, noise of {}",
    "attack_05": "accuracy, attack of {}",
    "attack_10": "accuracy, attack of {}",
    "attack_20": "accuracy, attack of {}",
    "calibration_error": "calibration error",
    "loss": "cross-entropy",
    "bfloat16": "accuracy in bfloat16",
    "float64_changes": "decisions changed by float64",
    "batch_changes": "decisions changed by batches of one",
    "longer_125": "accuracy until 1.25",
    "longer_150": "accuracy until 1.5",
}


def words(data: str) -> dict[str, str]:
    """What is measured on some data, with the amounts of noise and of attacks there."""
    scales = SCALES[data]
    amounts = dict(zip((*NOISES, *ATTACKS), (*scales.noise, *scales.attacks), strict=True))
    return {name: text.format(f"{amounts[name]:g}") if name in amounts else text for name, text in WORDS.items()}


def runs(quick: bool, groups: Groups) -> dict[str, RunConfig]:
    known = recipe_runs(quick, groups.ground)
    names = groups.quick if quick else (*groups.coarse, groups.flows, groups.drawn)
    many = len(groups.ground.seeds)
    return {name: replace(known[name], seeds=known[name].seeds[:many]) for name in names}


def draw(name: str, groups: Groups, tables: Tables, folder: Path) -> list[Path]:
    names, titles = list(dict.fromkeys(row.run for row in tables[TIED])), words(groups.ground.data)
    panels = [
        MeasurePanel(
            title=titles[kind],
            unit="nats" if kind == "loss" else "share",
            values=[
                [v for row in tables[TIED] if row.run == run and (v := _of(row, kind)) is not None] for run in names
            ],
        )
        for kind in MEASURES
    ]
    labels = [name.removeprefix("constant-") for name in names]
    return draw_png(partial(draw_measures, panels, labels), folder, name)


def _of(row: TiedRow, name: str) -> float | None:
    value: float | None = getattr(row, name)
    return value


# ---------------------------------------------------------------------------------------------------------
# Findings


def findings(groups: Groups, tables: Tables) -> list[Finding]:
    rows = {row.key: row for row in tables[TIED] if row.accuracy is not None}
    names = dict.fromkeys(row.run for row in tables[TIED])
    flows = groups.flows if groups.flows in names else next((name for name in names if name not in groups.coarse), "")
    told_of = words(groups.ground.data)
    return [found for name in names if name != flows for found in _compared(name, flows, rows, told_of)]


def _compared(
    name: str, flows: str, rows: Mapping[tuple[str, int], TiedRow], told_of: Mapping[str, str]
) -> Iterator[Finding]:
    """Every measure of one run against the flows', paired by seeds."""
    every = [(row, rows[flows, row.seed]) for row in rows.values() if row.run == name and (flows, row.seed) in rows]
    pairs = [(one, other) for one, other in every if abs((one.accuracy or 0) - (other.accuracy or 0)) <= ALIKE]
    outcomes = [sum(one.outcome == kind for one, _ in pairs) for kind in ("TIED", "FLOW", "UNDECIDED")]
    yield of_ours(
        f"Which models are compared with those of {flows}.",
        f"{len(pairs)} of {len(every)} seeds have accuracies within {ALIKE:g} of each other and are compared; of "
        f"these {outcomes[0]} are TIED, {outcomes[1]} FLOW and {outcomes[2]} UNDECIDED; accuracy "
        f"{_mean([one.accuracy for one, _ in pairs])} against {_mean([other.accuracy for _, other in pairs])}, under "
        f"the flow {_mean([one.flow_accuracy for one, _ in pairs])} against "
        f"{_mean([other.flow_accuracy for _, other in pairs])}",
        name,
    )
    if not pairs:
        return
    both = {m: [(a, b) for one, other in pairs if (a := _of(one, m)) is not None and (b := _of(other, m)) is not None]
            for m in MEASURES}  # fmt: skip
    chances = holm([_chance([a - b for a, b in values]) for values in both.values()])
    for (name_of, values), chance in zip(both.items(), chances, strict=True):
        shows = "differs" if chance < LEVEL else "nothing shows"
        yield of_ours(
            f"{told_of[name_of].capitalize()}.",
            f"{_mean([a for a, _ in values])} against {_mean([b for _, b in values])} ({len(values)} pairs of "
            f"seeds, Student's test, {told(chance)} by Holm): {shows}",
            name,
        )


def _chance(differences: Sequence[float]) -> float:
    """The p-value of paired differences."""
    return against(differences).p if len(differences) >= FEWEST else 1.0


def _mean(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{fmean(there):.3g}" if there else "nothing"


def _study(name: str, groups: Groups, where: str) -> Study:
    return Study(
        name=name,
        paper="beyond the paper",
        what=f"Tied models and flows of equal accuracy on {where}: the way back, robustness, calibration, arithmetic, "
        "time",
        tables=(TIED,),
        runs=partial(runs, groups=groups),
        measure=measure,
        untested=untested_row,
        draw=partial(draw, name, groups),
        findings=partial(findings, groups),
    )


TIED_STUDY = _study("what-being-tied-costs", SPHERE2_GROUPS, "Sphere2")
IMAGE_TIED = _study("what-being-tied-costs-mnist", IMAGE_GROUPS, "MNIST in patches")
