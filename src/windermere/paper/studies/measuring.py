"""A trained run under other solvers: one row for every seed and test solver.

A member whose solve fails has a row without an accuracy, and leaves the others' numbers as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from windermere.auditing.candidates import STEP_FACTORS, TOLERANCE_FACTORS
from windermere.errors import SolverError, StepBudgetError, ToleranceError, VanishingStepError
from windermere.paper.arithmetic import IMAGES
from windermere.paper.studies.critical import is_full_length
from windermere.paper.studies.rows import GRID, GridRow, Tables
from windermere.paper.studies.study import Finished
from windermere.paper.training import Ensemble, Labelled, RunConfig, evaluate
from windermere.records import read_metrics
from windermere.solvers import Adaptive, FixedStep, Solver

R = TypeVar("R")
TESTED_WITH = {
    "euler": ("euler", "midpoint", "rk4"),
    "rk4": ("rk4",),
    "fehlberg21": ("fehlberg21", "dopri54"),
    "dopri54": ("dopri54",),
}
"""The methods to test with, by training method."""
SPAN = 1.0
"""The paper's T: no step is larger."""
FEWER_IMAGES = 256
"""Runs on images that are shorter than the paper's are tested on so many."""
BEYOND_FLOAT32 = (ToleranceError, VanishingStepError, StepBudgetError)
"""What an adaptive solver meets where rounding is as large as the error it may make."""


def measure(run: Finished) -> Tables:
    """The paper's tests of one run."""
    config, by_seed, rows = run.trained.config, costs(run), list[GridRow]()
    for trial in trials(config.solver):
        found = scores(run.trained.ensemble, [trial.solver] * len(config.seeds), run.test_set)
        for seed, cost, score in zip(config.seeds, by_seed, found, strict=True):
            row = replace(untested_row(run.name, config, seed), cost=cost, float64=score.float64)
            rows.append(tested(row, trial, score))
    return Tables({GRID: rows})


def tested(row: R, trial: "Trial", score: "MemberScore") -> R:
    """A row that says of a model's training what it can, with one test of it."""
    untested: Any = row
    found: R = replace(
        untested,
        test_method=trial.solver.method,
        test_steps=steps_of(trial.solver),
        test_tolerance=tolerance_of(trial.solver),
        factor=trial.factor,
        own=trial.own,
        accuracy=score.accuracy,
        evaluations=score.evaluations,
    )
    return found


def untested_row(run: str, config: RunConfig, seed: int) -> GridRow:
    """What a row of a grid says of its training."""
    solver = config.solver
    return GridRow(
        run=run,
        seed=seed,
        data=config.data,
        method=solver.method,
        steps=steps_of(solver),
        tolerance=tolerance_of(solver),
        gradient=config.gradient,
        lr=config.lr,
        iterations=config.iterations,
        own=True,
        accuracy=None,
    )


def steps_of(solver: Solver) -> int | None:
    """How many an adaptive one takes is not known beforehand."""
    return None if isinstance(solver, Adaptive) else steps_at(solver.precision)


def tolerance_of(solver: Solver) -> float | None:
    return solver.precision if isinstance(solver, Adaptive) else None


def steps_at(step: float) -> int:
    """How many of this size a solve takes, the shortened last one included."""
    return len(FixedStep("euler", step=step).nodes(0.0, SPAN)) - 1


def costs(run: Finished) -> list[float]:
    """Forward evaluations per training iteration, by seed."""
    config, steps = run.trained.config, steps_of(run.trained.config.solver)
    if steps is not None:
        return [float(steps * config.solver.tableau.propagating)] * len(config.seeds)
    last = {row["seed"]: row for row in read_metrics(run.folder) if "evaluations_forward" in row}
    return [last[seed]["evaluations_forward"] / last[seed]["iteration"] for seed in config.seeds]


def part_to_test(config: RunConfig, test_set: Labelled) -> Labelled:
    inputs, labels = test_set
    fewer = config.data in IMAGES and not is_full_length(config.data, config.iterations)
    return (inputs[:FEWER_IMAGES], labels[:FEWER_IMAGES]) if fewer else test_set


# ---------------------------------------------------------------------------------------------------------
# Solvers to test with


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A solver to test with."""

    solver: Solver
    factor: float
    """Its step or tolerance divided by the training solver's."""
    own: bool
    """Whether it is the training solver."""


def trials(trained: Solver) -> Iterator[Trial]:
    """The training solver, and all others that the paper tests with; none with a step above T."""
    for method in TESTED_WITH[trained.method]:
        for factor in TOLERANCE_FACTORS if isinstance(trained, Adaptive) else STEP_FACTORS:
            precision = float(f"{trained.precision * factor:.12g}")  # 1e-05, not 1.0000000000000001e-05
            own = method == trained.method and factor == 1
            if own:
                yield Trial(solver=trained, factor=factor, own=True)
            elif isinstance(trained, Adaptive):
                yield Trial(solver=Adaptive(method, tolerance=precision), factor=factor, own=False)
            elif precision <= SPAN:
                yield Trial(solver=FixedStep(method, step=precision), factor=factor, own=False)


# ---------------------------------------------------------------------------------------------------------
# Scores


@dataclass(frozen=True, kw_only=True)
class MemberScore:
    """One member's result under one solver."""

    accuracy: float | None
    """None where the solve failed."""
    evaluations: int | None
    """How often one pass evaluates the field."""
    float64: bool
    """Whether float32 could not resolve the tolerance."""


def scores(ensemble: Ensemble, solvers: Sequence[Solver], test_set: Labelled) -> list[MemberScore]:
    """By member, each with its solver. Where all together fail, each is asked alone; where float32 is at fault, in
    float64."""
    double = ensemble.dtype == torch.float64
    try:
        found = evaluate(ensemble, solvers, test_set)
    except SolverError as error:
        if ensemble.size > 1:
            return [scores(ensemble.subset([s]), solvers[s : s + 1], test_set)[0] for s in range(ensemble.size)]
        if isinstance(error, BEYOND_FLOAT32) and not double:
            inputs, labels = test_set
            return scores(ensemble.subset([0], torch.float64), solvers, (inputs.double(), labels))
        return [MemberScore(accuracy=None, evaluations=None, float64=double)]
    return [
        MemberScore(accuracy=accuracy, evaluations=evaluations, float64=double)
        for accuracy, evaluations in zip(found.accuracy, found.evaluations, strict=True)
    ]
