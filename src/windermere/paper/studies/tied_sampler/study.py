"""The study itself: its figures, made from its tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from windermere.paper.figures.digits_figure import draw_digits, draw_distances
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
from windermere.paper.studies.tied_sampler import image_drawing
from windermere.paper.studies.tied_sampler.findings import (
    IMAGES,
    NAMES,
    PLANAR,
    constant,
    of_setting,
    sampler_findings,
)
from windermere.paper.studies.tied_sampler.image_drawing import STAGES
from windermere.paper.studies.tied_sampler.image_findings import image_findings
from windermere.paper.studies.tied_sampler.image_runs import image_runs
from windermere.paper.studies.tied_sampler.rows import DIGITS, OPINIONS, SAMPLES, TUNED, SampleRow, TunedRow
from windermere.paper.studies.tied_sampler.runs import CONTROLLERS, DRAWN, LOSSES, own_runs
from windermere.paper.studies.tied_sampler.text import numbers, opinions
from windermere.records import write_atomically
from windermere.solvers.tableaus import tableau

SCORES = {"energy": "energy distance", "reward": "distance from an aim"}
Figures: TypeAlias = Sequence[tuple[str, Sequence[Any], Callable[[Any, Path], None]]]
"""How their names end, what they show, and who draws it."""


def draw(tables: Tables, folder: Path) -> list[Path]:
    """Own solver and flow over the number of steps; controllers; samples, where they were kept. The numbers as text."""
    rows, of_runs = tables[TUNED], tables[SAMPLES]
    write_atomically(folder / "numbers.md", numbers(rows).encode())
    samples = [_samples(of_runs, run) for run in DRAWN if any(row.run == run for row in of_runs)]
    tuned = [[panel for setting in PLANAR for panel in _panels(rows, *setting, loss)] for loss in LOSSES]
    figures = (
        ("", [line for line in tuned if line], draw_tuned),
        ("-controllers", _controlled(rows, *PLANAR[0]), draw_controlled),
        ("-samples", samples, draw_samples),
    )
    return _drawn(figures, folder / "tied-sampler")


def draw_images(tables: Tables, folder: Path) -> list[Path]:
    """How far all samples are from real digits, the controllers, some of the digits, and the numbers as text."""
    rows, judged = tables[TUNED], tables[OPINIONS]
    write_atomically(folder / "numbers.md", "\n".join((numbers(rows), opinions(judged))).encode())
    figures = (
        ("", image_drawing.distances(tables, "energy"), draw_distances),
        ("-reward", image_drawing.distances(tables, "reward"), draw_distances),
        ("-controllers", [panel for setting in IMAGES for panel in _controlled(rows, *setting)], draw_controlled),
        ("-digits", image_drawing.digits(tables, "energy"), draw_digits),
        ("-reward-digits", image_drawing.digits(tables, "reward"), draw_digits),
    )
    return _drawn(figures, folder / "tied-sampler-images")


def _drawn(figures: Figures, stem: Path) -> list[Path]:
    """Draws the figures that have panels."""
    paths = list[Path]()
    for ending, panels, drawing in figures:
        if panels:
            drawing(panels, path := stem.with_name(f"{stem.name}{ending}.png"))
            paths.append(path)
    return paths


def _panels(rows: Sequence[TunedRow], data: str, network: str, loss: str) -> list[TunedPanel]:
    some = of_setting(rows, data, network, loss)
    euler, midpoint = (_points(some, method) for method in ("euler", "midpoint"))
    title = f"{NAMES[data]}, {NAMES[network]}: {loss}"
    before = [row.flow_before for row in some]
    panel = TunedPanel(title=title, score=SCORES[loss], euler=euler, midpoint=midpoint, flow_before=before)
    return [panel] if euler or midpoint else []


def _points(rows: Sequence[TunedRow], method: str) -> list[TunedPoint]:
    return [
        TunedPoint(cost=steps * len(tableau(method).b), own=[r.own for r in some], flow=[r.flow for r in some])
        for steps, some in constant(rows, method).items()
    ]


def _controlled(rows: Sequence[TunedRow], data: str, network: str) -> list[ControlledPanel]:
    return [panel for loss in LOSSES if (panel := _controlled_by(rows, data, network, loss)).controllers]


def _controlled_by(rows: Sequence[TunedRow], data: str, network: str, loss: str) -> ControlledPanel:
    some = of_setting(rows, data, network, loss)
    score = (image_drawing.SCORES if (data, network) in IMAGES else SCORES)[loss]
    found = {name: [row for row in some if row.through == name] for name in CONTROLLERS}
    return ControlledPanel(
        title=f"{NAMES[data]}, {NAMES[network]}: {loss}",
        score=f"the flow's {score}",
        constant=_points(some, "euler"),
        controllers=[(k, [r.evaluations for r in v], [r.flow for r in v]) for k, v in found.items() if v],
        flow_before=[row.flow_before for row in some],
    )


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
TIED_IMAGE_SAMPLER = Study(
    name="tied-sampler-images",
    paper="beyond the paper",
    what="A U-Net that makes digits, tuned through the few steps of its sampler (MNIST at 14 x 14; on a GPU, as it is)",
    tables=(TUNED, OPINIONS, DIGITS),
    own_runs=image_runs,
    needs=("mnist",),
    on_devices=True,
    draw=draw_images,
    findings=image_findings,
)
