"""Trajectories of a coarse and of a fine solver through the plane of Sphere2, and their crossings (Figure 1).

Shapes: S steps, M members, N points in the plane.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from windermere.auditing.evidence.crossings import count_crossings
from windermere.paper.figures.trajectory_figure import TrajectoryPanel, draw_trajectories
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.plane import (
    ACCURACY,
    COARSE,
    HEADS,
    TEST_STEPS,
    AccuracyRow,
    accuracies_of,
    accuracy_rows,
    config,
    flows,
    head_of,
    head_rows,
    mean_and_range,
    of_first_seed,
    scored_rows,
    seen,
    untested_row,
    walks,
)
from windermere.paper.studies.rows import Floats, RunRow, StateRow, Table, Tables, draw_png, state_rows, states_of
from windermere.paper.studies.statistics import surely
from windermere.paper.studies.study import Finding, Finished, Study
from windermere.paper.training import RunConfig
from windermere.solvers import FixedStep

FINE = FixedStep.of("euler", steps=128)
"""The paper says only that the small step is small: ours is on the fine side of Table 1."""
DRAWN_POINTS, CROSSING_POINTS = 60, 200


@dataclass(frozen=True, kw_only=True)
class PathRow(StateRow, RunRow):
    """On the way of a trained model's solver."""


@dataclass(frozen=True, kw_only=True)
class ModelCrossingsRow(RunRow):
    """How often trajectories cross: the solver's polygons, and the flow's at the same nodes."""

    points: int
    own_total: int
    own_between_classes: int
    flow_total: int
    flow_between_classes: int


PATHS, CROSSINGS = Table("trajectories", PathRow), Table("crossings", ModelCrossingsRow)


def trajectory_runs(quick: bool) -> Mapping[str, RunConfig]:
    return {"fine": config(FINE, quick=quick), "coarse": config(COARSE, quick=quick)}


def measure_trajectories(run: Finished) -> Tables:
    seeds, (inputs, labels) = run.trained.config.seeds, (part[:CROSSING_POINTS] for part in run.test_set)
    own, classes = walks(run.trained, inputs, run.trained.solvers), labels.cpu().numpy()
    flow = flows(run.trained, inputs, np.linspace(0, 1, len(own)).tolist())
    path, path_labels = own[:, 0, :DRAWN_POINTS], classes[:DRAWN_POINTS]
    return Tables(
        {
            ACCURACY: accuracy_rows(run, TEST_STEPS),
            PATHS: state_rows(PathRow, path, path_labels, run=run.name, seed=seeds[0]),
            HEADS: head_rows(run.trained, run.name),
            CROSSINGS: [_crossings(run.name, s, own[:, m], flow[:, m], classes) for m, s in enumerate(seeds)],
        }
    )


def _crossings(run: str, seed: int, own: Floats, flow: Floats, labels: Any) -> ModelCrossingsRow:
    solvers, flows = (count_crossings(states, labels) for states in (own, flow))
    return ModelCrossingsRow(
        run=run,
        seed=seed,
        points=own.shape[1],
        own_total=solvers.total,
        own_between_classes=solvers.between_classes,
        flow_total=flows.total,
        flow_between_classes=flows.between_classes,
    )


def draw_trajectory_study(tables: Tables, folder: Path) -> list[Path]:
    panels = trajectory_panels(tables)
    return draw_png(partial(draw_trajectories, panels), folder, "trajectories") if panels else []


def trajectory_panels(tables: Tables) -> list[TrajectoryPanel]:
    return [_trajectory_panel(tables, run) for run in ("fine", "coarse") if scored_rows(tables, run)]


def _trajectory_panel(tables: Tables, run: str) -> TrajectoryPanel:
    path, rows = of_first_seed(tables[PATHS], run), scored_rows(tables, run)
    states, labels = states_of(path)
    seeds = sorted({row.seed for row in rows}, key=lambda seed: (seed != path[0].seed, seed))
    tests, accuracy = sorted({row.test_steps for row in rows}), {(r.seed, r.test_steps): r.accuracy for r in rows}
    steps = rows[0].steps
    return TrajectoryPanel(
        title=f"trained with {steps} Euler steps, h = 1/{steps}",
        states=states,
        labels=labels,
        test_steps=np.array(tests),
        accuracy=np.array([[accuracy[seed, count] for count in tests] for seed in seeds]),
        trained_steps=steps,
        **seen(head_of(tables, path[0]), states),
    )


VERY_HIGH = 0.95
"""An accuracy."""


def trajectory_findings(tables: Tables) -> list[Finding]:
    rows = {run: scored_rows(tables, run) for run in ("fine", "coarse")}
    if not all(rows.values()):
        return []
    steps = {run: own[0].steps for run, own in rows.items()}
    own = {run: accuracies_of(rows[run], steps[run]) for run in rows}
    drops = {run: _drops(rows[run]) for run in rows}
    crossings = {run: [row for row in tables[CROSSINGS] if row.run == run] for run in rows}
    own_count = {run: [row.own_between_classes for row in crossings[run]] for run in rows}
    flow_count = {run: [row.flow_between_classes for row in crossings[run]] for run in rows}
    points = crossings["fine"][0].points
    return [
        Finding(
            claim="Trained with a small step or with a large one, the accuracy is very high.",
            ours=f"{mean_and_range(own['fine'])} with {steps['fine']} steps, "
            f"{mean_and_range(own['coarse'])} with {steps['coarse']}",
            agrees=surely(VERY_HIGH, *own.values()),
        ),
        Finding(
            claim="The model of the small step keeps its accuracy under smaller ones.",
            ours=f"with more than {steps['fine']} steps it loses {mean_and_range(drops['fine'])} at most, "
            f"and more than {THRESHOLD} in {sum(drop > THRESHOLD for drop in drops['fine'])} of "
            f"{len(drops['fine'])} seeds",
            agrees=surely(-THRESHOLD, [-drop for drop in drops["fine"]]),
        ),
        Finding(
            claim="The model of the large step drops significantly under smaller ones.",
            ours=f"with more than {steps['coarse']} steps it loses {mean_and_range(drops['coarse'])} at most, each "
            f"seed with the number that takes most; with one number for all {_drop_of_mean(rows['coarse']):.3f}",
            agrees=surely(THRESHOLD, drops["coarse"]),
        ),
        Finding(
            claim="With the large step, trajectories of different classes cross.",
            ours=f"they do, {_listed(own_count['coarse'])} times by seed among {points} test points; but so does the "
            f"flow as seen at the same nodes ({_listed(flow_count['coarse'])}), and {steps['fine']} steps "
            f"({_listed(own_count['fine'])}, the flow {_listed(flow_count['fine'])}): chords cross where a solution "
            "does not, so counts alone tell little",
            agrees=_all_or_none([a > b for a, b in zip(own_count["coarse"], flow_count["coarse"], strict=True)]),
        ),
    ]


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


def _all_or_none(holds: Sequence[bool]) -> bool | None:
    """Whether a claim holds for every seed or for none; None where it holds for some seeds and not for others."""
    return all(holds) if len(set(holds)) == 1 else None


def _drops(rows: Sequence[AccuracyRow]) -> list[float]:
    """The most accuracy that each seed loses with more steps than it was trained with."""
    finer = {own: [r for r in rows if r.seed == own.seed and r.test_steps > own.steps] for own in rows if own.own}
    return [max((own.accuracy or 0.0) - (row.accuracy or 0.0) for row in others) for own, others in finer.items()]


def _drop_of_mean(rows: Sequence[AccuracyRow]) -> float:
    """The most accuracy that all seeds lose in the mean with one number of steps."""
    finer = {row.test_steps for row in rows if row.test_steps > row.steps}
    return max(fmean(accuracies_of(rows, rows[0].steps)) - fmean(accuracies_of(rows, count)) for count in finer)


TRAJECTORIES = Study(
    name="trajectories",
    paper="Figure 1",
    what="Sphere2 trained with a small and with a large step: both are accurate, one of them with its own step only",
    runs=trajectory_runs,
    tables=(ACCURACY, PATHS, HEADS, CROSSINGS),
    measure=measure_trajectories,
    untested=untested_row,
    draw=draw_trajectory_study,
    findings=trajectory_findings,
)
