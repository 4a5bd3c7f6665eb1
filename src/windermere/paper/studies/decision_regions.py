"""Sphere2 in its plane: where a coarse solver takes the test points, and how they are classified (Figure 2)."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from windermere.paper.figures import OutputsPanel, draw_outputs
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.rows import draw_both, where
from windermere.paper.studies.study import MAIN, Finding, Finished, Study, Tables
from windermere.paper.studies.trajectories import (
    COARSE,
    accuracies_of,
    accuracy_rows,
    config,
    decisions,
    head_rows,
    mean_and_range,
    own_steps,
    regions,
    rows_of_first_seed,
    scored_rows,
    walks,
)
from windermere.paper.training import RunConfig
from windermere.records import Row
from windermere.report.frame import Frame
from windermere.solvers import FixedStep

REFINED = 2
"""The second panel tests with so many times the steps of training."""


def region_runs(quick: bool) -> Mapping[str, RunConfig]:
    return {"coarse": config(COARSE, quick=quick)}


def measure_regions(run: Finished) -> Tables:
    steps = round(1 / run.trained.solvers[0].precision)
    tests = (steps, REFINED * steps)
    heads = head_rows(run.trained, run.name)
    first = where(heads, seed=run.trained.config.seeds[0])
    inputs, labels = run.test_set[0], run.test_set[1].tolist()
    outputs = list[Row]()
    for count in tests:
        solvers = (FixedStep.of("euler", steps=count),) * run.trained.ensemble.size
        ends = walks(run.trained, inputs, solvers)[-1, 0]
        outputs += [
            {"run": run.name, "seed": first[0]["seed"], "test_steps": count, "point": i, "label": labels[i],
             "predicted": int(predicted), "x": float(x), "y": float(y)}
            for i, ((x, y), predicted) in enumerate(zip(ends, decisions(first, ends), strict=True))
        ]  # fmt: skip
    return {MAIN: accuracy_rows(run, tests), "outputs": outputs, "heads": heads}


def draw_regions(tables: Tables, folder: Path) -> list[Path]:
    if not scored_rows(tables):
        return []
    tests = sorted({row["test_steps"] for row in tables["outputs"]})
    panels = [_outputs_panel(tables, count, letter) for letter, count in zip("ab", tests, strict=True)]
    return draw_both(partial(draw_outputs, panels), folder, "decision-regions")


def _outputs_panel(tables: Tables, count: int, letter: str) -> OutputsPanel:
    table, rows = scored_rows(tables), rows_of_first_seed(where(tables["outputs"], test_steps=count))
    run, seed = rows[0]["run"], rows[0]["seed"]
    outputs = np.array([[row["x"], row["y"]] for row in rows])
    labels, predicted = (np.array([row[name] for row in rows]) for name in ("label", "predicted"))
    trained = " as in training" if count == own_steps(table, run) else ""
    accuracy = accuracies_of(table, run, count)
    wrong = f"{int((labels != predicted).sum())} of {len(rows)} wrong"
    others = f"; {min(accuracy):.3f} to {max(accuracy):.3f} right over {len(accuracy)} seeds" if accuracy[1:] else ""
    return OutputsPanel(
        title=f"({letter}) tested with h = 1/{count}{trained}",
        remark=wrong + others,
        outputs=outputs,
        labels=labels,
        predicted=predicted,
        decision=regions(where(tables["heads"], run=run, seed=seed), Frame.around(outputs)),
    )


def region_findings(tables: Tables) -> list[Finding]:
    table = scored_rows(tables)
    if not table:
        return []
    own = own_steps(table, "coarse")
    before, after = (accuracies_of(table, "coarse", count) for count in (own, REFINED * own))
    return [
        Finding(
            claim="Trained with h = 1/2, the classifier separates the outputs of that step, and not those of h = 1/4.",
            ours=f"accuracy {mean_and_range(before)} at h = 1/{own}, {mean_and_range(after)} at h = 1/{REFINED * own}",
            agrees=fmean(before) - fmean(after) > THRESHOLD,
        )
    ]


DECISION_REGIONS = Study(
    name="decision-regions",
    paper="Figure 2",
    what="Where the model of the large step takes the test points, and how it classifies them: its own step, and half",
    runs=region_runs,
    measure=measure_regions,
    draw=draw_regions,
    findings=region_findings,
)
