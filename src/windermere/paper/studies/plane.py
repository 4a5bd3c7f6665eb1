"""Models of Sphere2 in its plane: how their solvers walk, how their heads classify, and what they score with other
numbers of steps. Figures 1 and 2 show this, and the demo does.

Shapes: S steps, M members, N points in the plane, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from windermere.paper.figures.trajectory_figure import near_frame
from windermere.paper.stacked import StackedField
from windermere.paper.studies.measuring import scores, steps_at
from windermere.paper.studies.rows import MAIN, Floats, RunRow, Table, Tables
from windermere.paper.studies.study import QUICK_SPHERES, SEEDS, Finished
from windermere.paper.training import RunConfig, Trained, paper_settings
from windermere.records import sparse
from windermere.report.frame import DecisionRegions, Frame
from windermere.solvers import FixedStep, Solver, solve

COARSE = FixedStep.of("euler", steps=2)
"""The paper's large step, h = 1/2."""
TEST_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
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
class HeadRow(RunRow):
    """What the linear layer of a model has for one class."""

    class_: int
    weight_x: float
    weight_y: float
    bias: float


ACCURACY, HEADS = Table(MAIN, AccuracyRow), Table("heads", HeadRow)


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


def untested_row(run: str, config: RunConfig, seed: int) -> AccuracyRow:
    return _row(run, seed, config.solver, steps_at(config.solver.precision), None)


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
