"""What is drawn of samplers of images, from the tables."""

from collections.abc import Mapping, Sequence

from windermere.paper.figures.digits_figure import DigitsPanel, DistancesPanel
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.tied_sampler.findings import IMAGES, NAMES, constant, of_setting
from windermere.paper.studies.tied_sampler.images import AIM, RATIO
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
SCORES = {
    "energy": "energy distance from real digits",
    "reward": f"-log p({AIM})",
}
CONTROL = "flow, if flow matching goes on"


def distances(tables: Tables, loss: str) -> list[DistancesPanel]:
    """For each setting what it was tuned by, and the other yardsticks."""
    return [panel for data, network in IMAGES for panel in _of_setting(tables, data, network, loss)]


def _of_setting(tables: Tables, data: str, network: str, loss: str) -> list[DistancesPanel]:
    control_of = MATCHING if loss == "energy" else ""
    tuned, control = (constant(of_setting(tables[TUNED], data, network, k), "euler") for k in (loss, control_of))
    if not tuned:
        return []
    found = {f"{NAMES[data]}: tuned by this": _lines(tuned, control)}
    for name in dict.fromkeys(row.yardstick for row in tables[OPINIONS] if row.yardstick != RATIO):
        mine = {row.key: row for row in tables[OPINIONS] if row.yardstick == name}
        judged = [
            {n: [mine[row.key] for row in some if row.key in mine] for n, some in each.items()}
            for each in (tuned, control)
        ]
        if any(judged[0].values()):
            found[f"{name} alone"] = _lines(*judged)
    return [DistancesPanel(title=title, score=SCORES[loss], lines=lines) for title, lines in found.items()]


Judged = Mapping[int, Sequence[JudgedRow]]


def _lines(tuned: Judged, control: Judged) -> dict[str, dict[int, list[float]]]:
    found = {words: _values(tuned, stage) for stage, words in LINES.items()}
    return {**found, CONTROL: _values(control, "flow")} if control else found


def _values(by_steps: Judged, stage: str) -> dict[int, list[float]]:
    return {steps: [getattr(row, stage) for row in some] for steps, some in by_steps.items()}


def digits(tables: Tables, loss: str) -> list[DigitsPanel]:
    """For each run of a loss and its seed, the stages one below the other."""
    about = {row.key: row for row in tables[TUNED] if row.loss == loss}
    return [_digits(tables, about[key]) for key in dict.fromkeys(row.key for row in tables[DIGITS]) if key in about]


def _digits(tables: Tables, about: TunedRow) -> DigitsPanel:
    mine = [row for row in tables[DIGITS] if row.key == about.key]
    lines = {words: images_of([row for row in mine if row.stage == stage]) for stage, words in STAGES.items()}
    return DigitsPanel(title=f"tuned through {about.steps} Euler steps (seed {about.seed})", lines=lines)
