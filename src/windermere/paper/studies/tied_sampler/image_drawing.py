"""What is drawn of samplers of images, from the tables."""

from collections.abc import Mapping, Sequence

from windermere.paper.figures.digits_figure import DigitsPanel, DistancesPanel
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.tied_sampler.findings import IMAGES, NAMES, constant, of_setting
from windermere.paper.studies.tied_sampler.kept import images_of
from windermere.paper.studies.tied_sampler.rows import DIGITS, OPINIONS, TUNED, JudgedRow, TunedRow
from windermere.paper.studies.tied_sampler.runs import MATCHING

STAGES = {
    "own_before": "before, own solver",
    "flow_before": "before, flow",
    "own": "after, own solver",
    "flow": "after, flow",
}
LINES = {
    "own_before": "own solver before",
    "own": "own solver after",
    "flow_before": "flow before",
    "flow": "flow after",
}
CONTROL = "flow, if flow matching goes on"


def distances(tables: Tables) -> list[DistancesPanel]:
    """For each setting what it was tuned by, and the other yardsticks."""
    return [panel for data, network in IMAGES for panel in _of_setting(tables, data, network)]


def _of_setting(tables: Tables, data: str, network: str) -> list[DistancesPanel]:
    energy, control = (constant(of_setting(tables[TUNED], data, network, k), "euler") for k in ("energy", MATCHING))
    if not energy:
        return []
    panels = [DistancesPanel(title=f"{NAMES[data]}: tuned by this", lines=_lines(energy, control))]
    for name in dict.fromkeys(row.yardstick for row in tables[OPINIONS]):
        mine = {row.key: row for row in tables[OPINIONS] if row.yardstick == name}
        judged = (
            {n: [mine[row.key] for row in some if row.key in mine] for n, some in each.items()}
            for each in (energy, control)
        )
        panels.append(DistancesPanel(title=f"{name} alone", lines=_lines(*judged)))
    return panels


Judged = Mapping[int, Sequence[JudgedRow]]


def _lines(energy: Judged, control: Judged) -> dict[str, dict[int, list[float]]]:
    found = {words: _values(energy, stage) for stage, words in LINES.items()}
    return {**found, CONTROL: _values(control, "flow")} if control else found


def _values(by_steps: Judged, stage: str) -> dict[int, list[float]]:
    return {steps: [getattr(row, stage) for row in some] for steps, some in by_steps.items()}


def digits(tables: Tables) -> list[DigitsPanel]:
    """For each run and seed, its stages one below the other."""
    about = {row.key: row for row in tables[TUNED]}
    return [_digits(tables, about[key]) for key in dict.fromkeys(row.key for row in tables[DIGITS]) if key in about]


def _digits(tables: Tables, about: TunedRow) -> DigitsPanel:
    mine = [row for row in tables[DIGITS] if row.key == about.key]
    lines = {words: images_of([row for row in mine if row.stage == stage]) for stage, words in STAGES.items()}
    return DigitsPanel(title=f"tuned through {about.steps} Euler steps (seed {about.seed})", lines=lines)
