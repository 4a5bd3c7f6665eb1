"""Sphere2 in its plane: where a coarse solver takes the test points, and how they are classified (Figure 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from windermere.paper.figures.outputs_figure import OutputsPanel, draw_outputs
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.plane import (
    ACCURACY,
    COARSE,
    HEADS,
    accuracies_of,
    accuracy_rows,
    config,
    decisions,
    head_of,
    head_rows,
    mean_and_range,
    of_first_seed,
    regions,
    scored_rows,
    untested_row,
    walks,
)
from windermere.paper.studies.rows import RunRow, Table, Tables, draw_png
from windermere.paper.studies.statistics import surely
from windermere.paper.studies.study import Finding, Finished, Study
from windermere.paper.training import RunConfig
from windermere.report.frame import Frame
from windermere.solvers import FixedStep

REFINED = 2
"""The second panel tests with so many times the steps of training."""


RUN = "coarse"


@dataclass(frozen=True, kw_only=True)
class OutputRow(RunRow):
    """Where a model takes a test point, and what it says of it."""

    test_steps: int
    point: int
    label: int
    predicted: int
    x: float
    y: float


OUTPUTS = Table("outputs", OutputRow)


def region_runs(quick: bool) -> Mapping[str, RunConfig]:
    return {RUN: config(COARSE, quick=quick)}


def measure_regions(run: Finished) -> Tables:
    steps = round(1 / run.trained.solvers[0].precision)
    tests = (steps, REFINED * steps)
    heads, seed = head_rows(run.trained, run.name), run.trained.config.seeds[0]
    inputs, labels = run.test_set[0], run.test_set[1].tolist()
    outputs = list[OutputRow]()
    for count in tests:
        solvers = (FixedStep.of("euler", steps=count),) * run.trained.ensemble.size
        ends = walks(run.trained, inputs, solvers)[-1, 0]
        said = decisions([head for head in heads if head.seed == seed], ends).tolist()
        outputs += [
            OutputRow(run=run.name, seed=seed, test_steps=count, point=i, label=labels[i], predicted=said[i], x=x, y=y)
            for i, (x, y) in enumerate(ends.tolist())
        ]
    return Tables({ACCURACY: accuracy_rows(run, tests), OUTPUTS: outputs, HEADS: heads})


def draw_regions(tables: Tables, folder: Path) -> list[Path]:
    if not scored_rows(tables, RUN):
        return []
    return draw_png(partial(draw_outputs, output_panels(tables)), folder, "decision-regions")


def output_panels(tables: Tables) -> list[OutputsPanel]:
    tests = sorted({row.test_steps for row in tables[OUTPUTS]})
    return [_outputs_panel(tables, count, letter) for letter, count in zip("ab", tests, strict=True)]


def _outputs_panel(tables: Tables, count: int, letter: str) -> OutputsPanel:
    scored, rows = scored_rows(tables, RUN), of_first_seed(tables[OUTPUTS], RUN)
    rows = [row for row in rows if row.test_steps == count]
    outputs = np.array([(row.x, row.y) for row in rows])
    trained = " as in training" if count == scored[0].steps else ""
    accuracy = accuracies_of(scored, count)
    wrong = f"{sum(row.label != row.predicted for row in rows)} of {len(rows)} wrong"
    others = f"; {min(accuracy):.3f} to {max(accuracy):.3f} right over {len(accuracy)} seeds" if accuracy[1:] else ""
    return OutputsPanel(
        title=f"({letter}) tested with h = 1/{count}{trained}",
        remark=wrong + others,
        outputs=outputs,
        labels=np.array([row.label for row in rows]),
        predicted=np.array([row.predicted for row in rows]),
        decision=regions(head_of(tables, rows[0]), Frame.around(outputs)),
    )


def region_findings(tables: Tables) -> list[Finding]:
    if not (scored := scored_rows(tables, RUN)):
        return []
    own = scored[0].steps
    before, after = (accuracies_of(scored, count) for count in (own, REFINED * own))
    return [
        Finding(
            claim="Trained with h = 1/2, the classifier separates the outputs of that step, and not those of h = 1/4.",
            ours=f"accuracy {mean_and_range(before)} at h = 1/{own}, {mean_and_range(after)} at h = 1/{REFINED * own}",
            agrees=surely(THRESHOLD, [one - other for one, other in zip(before, after, strict=True)]),
        )
    ]


DECISION_REGIONS = Study(
    name="decision-regions",
    paper="Figure 2",
    what="Where the model of the large step takes the test points, and how it classifies them: its own step, and half",
    runs=region_runs,
    tables=(ACCURACY, OUTPUTS, HEADS),
    measure=measure_regions,
    untested=untested_row,
    draw=draw_regions,
    findings=region_findings,
)
