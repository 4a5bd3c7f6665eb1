"""Sphere2 in its plane: trajectories of a coarse and of a fine solver (Figure 1).

Shapes: S steps, M members, N points in the plane, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.crossings import count_crossings
from windermere.paper.figures.trajectory_figure import TrajectoryPanel, draw_trajectories, near_frame
from windermere.paper.stacked import StackedField
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.measuring import scores, steps_at
from windermere.paper.studies.rows import (
    MAIN,
    Floats,
    RunRow,
    StateRow,
    Table,
    Tables,
    draw_png,
    state_rows,
    states_of,
)
from windermere.paper.studies.statistics import surely
from windermere.paper.studies.study import QUICK_SPHERES, SEEDS, Finding, Finished, Study
from windermere.paper.training import RunConfig, Trained, paper_settings
from windermere.records import sparse
from windermere.report.frame import DecisionRegions, Frame
from windermere.solvers import FixedStep, Solver, solve

COARSE, FINE = FixedStep.of("euler", steps=2), FixedStep.of("euler", steps=128)
"""h = 1/2 is the paper's; of the small step it only says that it is small: ours is on the fine side of Table 1."""
TEST_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
DRAWN_POINTS, CROSSING_POINTS = 60, 200
ALMOST_EXACT = FixedStep("rk4", step=1 / 512)


@dataclass(frozen=True, kw_only=True)
class AccuracyRow(RunRow):
    """One model with one number of Euler steps."""

    method: str
    steps: int
    """The number of steps in training."""
    test_method: str = "euler"
    test_steps: int
    own: bool
    accuracy: float | None
    """None where training diverged."""
    diverged_at: int | None = sparse()


@dataclass(frozen=True, kw_only=True)
class PathRow(StateRow, RunRow):
    """On the way of a trained model's solver."""


@dataclass(frozen=True, kw_only=True)
class HeadRow(RunRow):
    """What the linear layer of a model has for one class."""

    class_: int
    weight_x: float
    weight_y: float
    bias: float


@dataclass(frozen=True, kw_only=True)
class ModelCrossingsRow(RunRow):
    """How often trajectories cross: the solver's polygons, and the flow's at the same nodes."""

    points: int
    own_total: int
    own_between_classes: int
    flow_total: int
    flow_between_classes: int


ACCURACY, PATHS = Table(MAIN, AccuracyRow), Table("trajectories", PathRow)
HEADS, CROSSINGS = Table("heads", HeadRow), Table("crossings", ModelCrossingsRow)


# What both studies, and the demo, take from trained members.


def config(solver: Solver, *, quick: bool) -> RunConfig:
    settings = {**paper_settings("sphere2", solver), **(QUICK_SPHERES if quick else {})}
    return RunConfig(data="sphere2", solver=solver, seeds=SEEDS, **settings)


@torch.no_grad()
def walks(trained: Trained, inputs: Tensor, solvers: Sequence[Solver]) -> Floats:
    """Every member's states [S + 1, M, N, 2] as its solver walks."""
    solution = solve(*_in_double(trained, inputs), solvers, record=True)
    assert solution.trajectory is not None  # asked for
    return _on_host(solution.trajectory.states)


@torch.no_grad()
def flows(trained: Trained, inputs: Tensor, times: Sequence[float]) -> Floats:
    """Every member's states [len(times), M, N, 2] as its flow takes them."""
    solvers = (ALMOST_EXACT,) * trained.ensemble.size
    return _on_host(solve(*_in_double(trained, inputs), solvers, times).states)


def _on_host(states: Any) -> Floats:
    """Whatever device they were walked on."""
    return np.asarray(states.cpu(), dtype=np.float64)


def _in_double(trained: Trained, inputs: Tensor) -> tuple[StackedField, Tensor]:
    """Fields and states for all members: in float64, so that rounding makes no crossings."""
    ensemble = trained.ensemble.subset(range(trained.ensemble.size), torch.float64)
    return ensemble.first_solve(inputs.double().expand(ensemble.size, *inputs.shape))


def head_rows(trained: Trained, name: str) -> list[HeadRow]:
    """The linear layer of every member: a row for each class."""
    tensors = trained.ensemble.tensors
    weights, biases = (tensors[f"2.{part}"].detach().double().tolist() for part in ("weight", "bias"))
    return [
        HeadRow(run=name, seed=seed, class_=c, weight_x=x, weight_y=y, bias=bias)
        for seed, rows, offsets in zip(trained.config.seeds, weights, biases, strict=True)
        for c, ((x, y), bias) in enumerate(zip(rows, offsets, strict=True))
    ]


def decisions(heads: Sequence[HeadRow], points: Floats) -> Any:
    """What one member's head (its rows) says of points [..., 2]."""
    weights = np.array([(row.weight_x, row.weight_y) for row in heads])
    return (points @ weights.T + np.array([row.bias for row in heads])).argmax(axis=-1)


def regions(heads: Sequence[HeadRow], frame: Frame) -> DecisionRegions:
    xx, yy = frame.grid(400)
    return DecisionRegions(xx=xx, yy=yy, predicted=decisions(heads, np.stack([xx, yy], axis=-1)))


def seen(heads: Sequence[HeadRow], states: Floats) -> dict[str, DecisionRegions | None]:
    """The regions behind trajectories [S + 1, N, 2], all of them and near their start."""
    near = near_frame(states)
    return {
        "decision": regions(heads, Frame.around_most(states)),
        "near": None if near is None else regions(heads, near),
    }


def accuracy_rows(run: Finished, test_steps: Sequence[int]) -> list[AccuracyRow]:
    """A row for each number of test steps and seed."""
    trained, rows = run.trained, list[AccuracyRow]()
    for count in test_steps:
        solvers = (FixedStep.of("euler", steps=count),) * trained.ensemble.size
        found = scores(trained.ensemble, solvers, run.test_set)
        for seed, solver, score in zip(trained.config.seeds, trained.solvers, found, strict=True):
            row = _row(run.name, seed, solver, count, score.accuracy or 0.0)  # one that fails classifies nothing
            rows.append(row)
    return rows


def _row(run: str, seed: int, solver: Solver, count: int, accuracy: float | None) -> AccuracyRow:
    method, steps = solver.method, steps_at(solver.precision)
    own = (method, steps) == ("euler", count)
    return AccuracyRow(run=run, seed=seed, method=method, steps=steps, test_steps=count, own=own, accuracy=accuracy)


def lost_row(run: str, config: RunConfig, seed: int, iteration: int) -> AccuracyRow:
    """The row of a seed that diverged."""
    untested = _row(run, seed, config.solver, steps_at(config.solver.precision), None)
    return replace(untested, diverged_at=iteration)


def scored_rows(tables: Tables, run: str) -> list[AccuracyRow]:
    """The rows of a run, without those of seeds that diverged."""
    return [row for row in tables[ACCURACY] if row.run == run and row.accuracy is not None]


def accuracies_of(rows: Sequence[AccuracyRow], test_steps: int) -> list[float]:
    return [row.accuracy or 0.0 for row in rows if row.test_steps == test_steps]


def head_of(tables: Tables, row: RunRow) -> list[HeadRow]:
    """The head of the model that a row is about."""
    return [head for head in tables[HEADS] if head.key == row.key]


K = TypeVar("K", bound=RunRow)


def of_first_seed(rows: Sequence[K], run: str) -> list[K]:
    """Seeds that were trained apart have trajectories or outputs of one each; the first's are drawn."""
    first = min(row.seed for row in rows if row.run == run)
    return [row for row in rows if row.key == (run, first)]


def mean_and_range(values: Sequence[float]) -> str:
    """A mean, and the least and the most."""
    several = (
        f" ({min(values):.3f} to {max(values):.3f} over {len(values)} seeds)" if len(values) > 1 else " (one seed)"
    )
    return f"{fmean(values):.3f}{several}"


# Figure 1.


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
    lost=lost_row,
    draw=draw_trajectory_study,
    findings=trajectory_findings,
)
