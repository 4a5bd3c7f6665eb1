"""Figure 5 and Appendix C: precision adapted while training, with Algorithms 2 and 3 and with the steady controller.

Steps start from Hairer's first step, tolerances from 1e-6; scores further apart than 0.1 are not the same, and every
50 iterations there is a review. (Quick runs on images start from 1/4, with a review every 10.) Beside each of the
paper's pairs stands the steady controller with the same methods.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from windermere.adaptation import SteadySteps
from windermere.adaptation.tolerance import START
from windermere.paper.arithmetic import IMAGES
from windermere.paper.figures.adaptation_columns import AdaptedRun, draw_adapted_runs
from windermere.paper.figures.adaptation_figure import Member
from windermere.paper.studies.adaptation_findings import step_findings, tolerance_findings
from windermere.paper.studies.adaptation_measures import (
    ADAPTED,
    CURVES,
    AdaptedRow,
    CurveRow,
    measure,
    measure_and_audit,
    untested_row,
)
from windermere.paper.studies.adaptation_runs import Adapted, adapted_runs, described
from windermere.paper.studies.audits import AUDITS
from windermere.paper.studies.critical import THRESHOLD, short_number
from windermere.paper.studies.rows import Floats, Tables
from windermere.paper.studies.study import QUICK_IMAGES, QUICK_SPHERES, SEEDS, Study, data_name
from windermere.paper.training import Adaptation, RunConfig, make_controller, paper_settings
from windermere.paper.training.config import FirstStep
from windermere.solvers import Adaptive, FixedStep, Solver

STEP_PAIRS = ("euler/midpoint", "euler/rk4", "midpoint/rk4")
"""Methods of training and check."""
TOLERANCE_PAIRS = ("fehlberg21/dopri54", "dopri54/dopri54")
TARGET = SteadySteps.target
"""The steady controller's default."""
EQUAL_COST = {"sphere2": 0.075, "mnist": 0.08, "cifar10": 0.08}
"""Targets at which steady Euler steps, checked by midpoint, cost about as much as Algorithm 2 in short trainings
(docs/adaptation.md; for CIFAR-10 MNIST's, with which they cost twice as much)."""
OTHER_LR = {"cifar10": 1e-4}
"""The paper prints 1e-3 for CIFAR-10, and its accuracies lie between those of the two."""
QUICK: Mapping[str, dict[str, Any]] = {
    "sphere2": {**QUICK_SPHERES},
    **{data: {**QUICK_IMAGES} for data in IMAGES},
}
QUICK_EVERY = 10
"""Iterations between quick reviews, on images and of tolerances: from 1e-6 it takes over a hundred of them to where
tolerances fluctuate."""
QUICK_IMAGE_STEP = 1 / 4
"""To begin with: from the hundred steps that Algorithm 2 begins with, it would take hours."""


def step_runs(data: str, quick: bool) -> dict[str, RunConfig]:
    """All pairs; of quick ones on images the first, Table 1's: the others take more steps, or longer to train."""
    fewer = quick and data in IMAGES
    return dict(_runs(data, STEP_PAIRS[:1] if fewer else STEP_PAIRS, quick))


def tolerance_runs(quick: bool) -> dict[str, RunConfig]:
    return dict(_runs("sphere2", TOLERANCE_PAIRS, quick))


def algorithm_2(data: str, quick: bool) -> dict[str, RunConfig]:
    """The runs of Table 1: Euler steps checked by midpoint, with every learning rate."""
    return dict(_of_the_paper(data, STEP_PAIRS[0], quick))


def _runs(data: str, pairs: tuple[str, ...], quick: bool) -> Iterator[tuple[str, RunConfig]]:
    for pair in pairs:
        yield from _of_the_paper(data, pair, quick)
        for target in _targets(data, pair, quick):
            yield f"{_named(data, pair)}-steady-{target:g}", _adapted(data, pair, quick, "steady", target)


def _targets(data: str, pair: str, quick: bool) -> list[float]:
    """The default's hundreds of Euler steps are not quick, and on images take hours. Quick CIFAR-10 has none:
    within 40 iterations a target of 0.08 asks for 32 steps, where Algorithm 2 takes 3 to 13."""
    if quick and data == "cifar10":
        return []
    equal = [EQUAL_COST[data]] if pair.startswith("euler") else []
    if quick or data in ("mnist", "cifar10"):
        return equal or [TARGET]
    return [TARGET, *(equal if pair == STEP_PAIRS[0] else [])]


def _of_the_paper(data: str, pair: str, quick: bool) -> Iterator[tuple[str, RunConfig]]:
    name, config = f"{_named(data, pair)}-paper-{THRESHOLD:g}", _adapted(data, pair, quick, "paper", THRESHOLD)
    yield name, config
    if data in OTHER_LR and pair == STEP_PAIRS[0] and not quick:
        yield f"{name}-lr{short_number(OTHER_LR[data])}", replace(config, lr=OTHER_LR[data])


def _named(data: str, pair: str) -> str:
    return f"{data}-{pair.replace('/', '-')}"


def _adapted(data: str, pair: str, quick: bool, adaptation: Adaptation, allowed: float) -> RunConfig:
    """A run whose scores or outputs may be so far apart: the paper's threshold, or a steady controller's target."""
    method, check = pair.split("/")
    solver, first_step = _start(method, pair in TOLERANCE_PAIRS, quick and data in IMAGES)
    often = quick and (pair in TOLERANCE_PAIRS or data in IMAGES)
    rule: dict[str, Any] = {"threshold" if adaptation == "paper" else "target": allowed}
    rule |= {"every": QUICK_EVERY} if often else {}
    scaled = {**QUICK[data], **({"log_every": QUICK_EVERY} if pair in TOLERANCE_PAIRS else {})} if quick else {}
    values = {"seeds": SEEDS, **paper_settings(data, solver), **scaled}
    return RunConfig(
        data=data,
        solver=solver,
        controller=make_controller(adaptation, solver, check=check, **rule),
        first_step=first_step,
        evaluate_every=50 * max(1, values["iterations"] // 1000),  # each at a review; of full runs, about 20 times
        **values,
    )


def _start(method: str, tolerance: bool, coarse: bool) -> tuple[Solver, FirstStep]:
    if tolerance:
        return Adaptive(method, tolerance=START), "given"
    return (FixedStep(method, step=QUICK_IMAGE_STEP), "given") if coarse else (FixedStep(method, step=1.0), "initial")


# ---------------------------------------------------------------------------------------------------------
# Figures


def draw(tables: Tables, folder: Path) -> list[Path]:
    """A figure for each pair of methods, its runs side by side."""
    drawn, runs = list[Path](), adapted_runs(tables)
    for method, check in dict.fromkeys((run.first.method, run.first.check) for run in runs):
        columns = [run for run in runs if (run.first.method, run.first.check) == (method, check)]
        title = f"{data_name(columns[0].first.data)}, trained with {method}, checked by {check}"
        drawn.append(folder / f"{method}-{check}.png")
        draw_adapted_runs([_column(run) for run in columns], drawn[-1], title=title)
    return drawn


def _column(run: Adapted) -> AdaptedRun:
    at_the_end = defaultdict[str, dict[int, float]](dict)
    for row in run.rows:
        if row.accuracy is not None:
            at_the_end[_solver_name(row)][row.seed] = row.accuracy
    return AdaptedRun(
        title=described(run.first),
        detail=f"learning rate {run.first.lr:g}, {fmean(run.costs):.1f} evaluations per iteration",
        members=[member_of(curve) for curve in run.by_seed],
        tolerances=run.first.final_tolerance is not None,
        at_the_end=at_the_end,
        check=run.first.check,
        threshold=THRESHOLD,
    )


def member_of(curve: Sequence[CurveRow]) -> Member:
    """One seed as it is drawn."""
    return Member(
        seed=curve[0].seed,
        batches=_columns((row.iteration, row.trained) for row in curve),
        tests=_columns((row.iteration, row.test_accuracy) for row in curve),
        evaluations=_columns((row.iteration, row.evaluations_forward) for row in curve),
        reviews=_columns((row.iteration, row.trained, row.checked, *row.before_and_after) for row in curve),
        signals=_columns((row.iteration, row.signal or None) for row in curve),
    )


def _columns(rows: Iterable[tuple[float | None, ...]]) -> Floats:
    """[columns, rows] of the rows that lack no number."""
    every = list(rows)
    return np.array([row for row in every if None not in row], dtype=np.float64).reshape(-1, len(every[0])).T


def _solver_name(row: AdaptedRow) -> str:
    """Relative to the training solver, since every seed has its own."""
    letter = "h" if row.test_tolerance is None else "tol"
    precision = letter if row.factor in (None, 1) else f"{letter}/{1 / row.factor:g}"
    return f"own {precision}" if row.own else f"{row.test_method} {precision}"


# ---------------------------------------------------------------------------------------------------------
# Studies


def _step_study(data: str, paper: str) -> Study:
    """On spheres every seed is audited; on images an audit's reference in float64 would take hours."""
    audited = data not in IMAGES
    return Study(
        name=f"step-adaptation-{data}",
        paper=paper,
        what=f"The step adapted while training on {data_name(data)}: Algorithm 2, and the steady controller",
        runs=partial(step_runs, data),
        tables=(ADAPTED, CURVES, AUDITS) if audited else (ADAPTED, CURVES),
        measure=measure_and_audit if audited else measure,
        untested=untested_row,
        draw=draw,
        findings=step_findings,
    )


STEP_STUDIES = (
    _step_study("sphere2", "Appendix C.1"),
    _step_study("mnist", "Appendix C.1"),
    _step_study("cifar10", "Figure 5 (a, b), Appendix C.1"),
)
TOLERANCE_STUDY = Study(
    name="tolerance-adaptation-sphere2",
    paper="Appendix C.2",
    what="The tolerance adapted while training on Sphere2: Algorithm 3, and the steady controller",
    runs=tolerance_runs,
    tables=(ADAPTED, CURVES, AUDITS),
    measure=measure_and_audit,
    untested=untested_row,
    draw=draw,
    findings=tolerance_findings,
)
