"""The study itself: its figures, made from its tables."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from windermere.paper.figures.sampler_figure import (
    ControlledPanel,
    SamplesPanel,
    TunedPanel,
    TunedPoint,
    draw_controlled,
    draw_samples,
    draw_tuned,
)
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Study
from windermere.paper.studies.tied_sampler.findings import NAMES, SETTINGS, constant, of_setting, sampler_findings
from windermere.paper.studies.tied_sampler.runs import (
    CONTROLLERS,
    DRAWN,
    LOSSES,
    SAMPLES,
    TUNED,
    SampleRow,
    TunedRow,
    own_runs,
)
from windermere.paper.studies.tied_sampler.text import numbers
from windermere.records import write_atomically

SCORES = {"energy": "energy distance", "reward": "distance from an aim"}
STAGES = {
    "own_before": "before, own solver",
    "flow_before": "before, flow",
    "own": "after, own solver",
    "flow": "after, flow",
}


def draw(tables: Tables, folder: Path) -> list[Path]:
    """Own solver and flow over the number of steps; controllers; samples, where they were kept. The numbers as text."""
    rows = tables[TUNED]
    write_atomically(folder / "numbers.md", numbers(rows).encode())
    panels = [[panel for setting in SETTINGS for panel in _panels(rows, *setting, loss)] for loss in LOSSES]
    paths = {name: folder / f"tied-sampler{name}.png" for name in ("", "-controllers", "-samples")}
    drawn = []
    if tuned := [line for line in panels if line]:
        draw_tuned(tuned, paths[""])
        drawn.append(paths[""])
    if controlled := [panel for loss in LOSSES for panel in _controlled(rows, loss)]:
        draw_controlled(controlled, paths["-controllers"])
        drawn.append(paths["-controllers"])
    if samples := [_samples(tables[SAMPLES], run) for run in DRAWN if any(r.run == run for r in tables[SAMPLES])]:
        draw_samples(samples, paths["-samples"])
        drawn.append(paths["-samples"])
    return drawn


def _panels(rows: Sequence[TunedRow], data: str, network: str, loss: str) -> list[TunedPanel]:
    some = of_setting(rows, data, network, loss)
    euler, midpoint = (_points(some, method) for method in ("euler", "midpoint"))
    title = f"{NAMES[data]}, {NAMES[network]}: {loss}"
    before = [row.flow_before for row in some]
    panel = TunedPanel(title=title, score=SCORES[loss], euler=euler, midpoint=midpoint, flow_before=before)
    return [panel] if euler or midpoint else []


def _points(rows: Sequence[TunedRow], method: str) -> list[TunedPoint]:
    return [
        TunedPoint(cost=some[0].evaluations, own=[r.own for r in some], flow=[r.flow for r in some])
        for some in constant(rows, method).values()
    ]


def _controlled(rows: Sequence[TunedRow], loss: str) -> list[ControlledPanel]:
    some = of_setting(rows, *SETTINGS[0], loss)
    found = {name: [row for row in some if row.through == name] for name in CONTROLLERS}
    panel = ControlledPanel(
        title=f"{NAMES[SETTINGS[0][0]]}, {NAMES[SETTINGS[0][1]]}: {loss}",
        score=f"the flow's {SCORES[loss]}",
        constant=_points(some, "euler"),
        controllers=[(k, [r.evaluations for r in v], [r.flow for r in v]) for k, v in found.items() if v],
        flow_before=[row.flow_before for row in some],
    )
    return [panel] if panel.controllers else []


def _samples(rows: Sequence[SampleRow], run: str) -> list[SamplesPanel]:
    mine, loss = [row for row in rows if row.run == run], "energy" if "energy" in run else "reward"
    return [
        SamplesPanel(
            title=f"{loss}: {words}",
            samples=np.array([(getattr(row, f"{stage}_x"), getattr(row, f"{stage}_y")) for row in mine]),
        )
        for stage, words in STAGES.items()
    ]


TIED_SAMPLER = Study(
    name="tied-sampler",
    paper="beyond the paper",
    what="Flow-matching models that are tuned through the few steps of their sampler, and their flow before and after",
    tables=(TUNED, SAMPLES),
    own_runs=own_runs,
    draw=draw,
    findings=sampler_findings,
)
