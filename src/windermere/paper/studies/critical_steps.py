"""Algorithm 2's own check, asked of models that were trained with constant steps and tolerances.

Table 1 finds its critical numbers of steps "using the same method as in the step adaptation algorithm". That looks at
training batches, while the grids of Appendix B are tested on the test set. Here both are asked of the same models. On
Sphere2 the models are also asked what the paper says of Lipschitz constants, of the classifier's threshold d and of
embedded error estimates. On images there are no rows before a GPU has made them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from windermere.adaptation.step_size import check_solver
from windermere.adaptation.tolerance import CHECK_RATIOS
from windermere.paper.arithmetic import IMAGES
from windermere.paper.studies.audits import AUDITS, audit_rows
from windermere.paper.studies.critical import THRESHOLD, short_number
from windermere.paper.studies.critical_findings import findings
from windermere.paper.studies.critical_rows import CHECKS, CheckRow
from windermere.paper.studies.critical_text import text
from windermere.paper.studies.field_measures import ESTIMATES, FIELDS, estimate_rows, field_rows
from windermere.paper.studies.measuring import MemberScore, scores, steps_of, tolerance_of
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import QUICK_SPHERES, Finished, Study, paper_config
from windermere.paper.training import Labelled, RunConfig
from windermere.solvers import Adaptive, FixedStep, Solver

SPHERE_STEPS = {"euler": (16, 32, 64, 128, 256), "rk4": (1, 2, 4, 8)}
"""Around the printed critical number of Euler's steps, and around ours of rk4's."""
SPHERE_TOLERANCES = {"fehlberg21": (1e-1, 1e-2, 1e-3, 1e-4), "dopri54": (1e-1, 1e-2, 1e-3)}
IMAGE_STEPS, IMAGE_RATES = (4, 8, 16, 32, 64), (1e-3, 1e-4)
QUICK_STEPS, QUICK_TOLERANCES = {"euler": (2, 32), "rk4": (1,)}, {"fehlberg21": (1e-1,)}
MOST_BATCHES = 40
"""How many batches of an epoch are looked at, in the order of the data."""


def runs(quick: bool) -> dict[str, RunConfig]:
    return dict(_runs(quick))


def _runs(quick: bool) -> Iterator[tuple[str, RunConfig]]:
    settings: Mapping[str, Any] = QUICK_SPHERES if quick else {}
    for method, counts in (QUICK_STEPS if quick else SPHERE_STEPS).items():
        for steps in counts:
            solver = FixedStep.of(method, steps=steps)
            yield f"sphere2-{method}-{steps}", paper_config("sphere2", solver, **settings)
    for method, tolerances in (QUICK_TOLERANCES if quick else SPHERE_TOLERANCES).items():
        for tolerance in tolerances:
            name = f"sphere2-{method}-{short_number(tolerance)}"
            yield name, paper_config("sphere2", Adaptive(method, tolerance=tolerance), **settings)
    for lr in () if quick else IMAGE_RATES:
        for steps in IMAGE_STEPS:
            name = f"cifar10-euler-{steps}-lr{short_number(lr)}"
            yield name, paper_config("cifar10", FixedStep.of("euler", steps=steps), lr=lr)


# ---------------------------------------------------------------------------------------------------------
# Measuring


def check_of(solver: Solver) -> Solver:
    """What Algorithm 2 or 3 compares with this solver. They have nothing for rk4, which is checked by half its step."""
    if isinstance(solver, Adaptive):
        ratio = CHECK_RATIOS[solver.method, "dopri54"]
        return Adaptive("dopri54", tolerance=float(f"{solver.precision * ratio:.12g}"))
    if solver.method == "euler":
        return check_solver("euler", "midpoint", solver.precision, 1.0)
    return FixedStep(solver.method, step=solver.precision / 2)


def measure(run: Finished) -> Tables:
    config = run.trained.config
    tables = Tables({CHECKS: check_rows(run)})
    if config.data in IMAGES:
        return tables
    tables[AUDITS] = audit_rows(run)
    if isinstance(config.solver, Adaptive):
        tables[ESTIMATES] = estimate_rows(run)
    else:
        tables[FIELDS] = field_rows(run)
    return tables


def check_rows(run: Finished) -> list[CheckRow]:
    assert run.training_set is not None
    config, check = run.trained.config, check_of(run.trained.config.solver)
    own, checked = (_scores(run, solver, run.test_set) for solver in (config.solver, check))
    batches = _batches(config, run.training_set)
    by_batch = [[_scores(run, solver, batch) for solver in (config.solver, check)] for batch in batches]
    rows = list[CheckRow]()
    for s, seed in enumerate(config.seeds):
        pairs = [(one[s].accuracy or 0.0, other[s].accuracy or 0.0) for one, other in by_batch]
        gaps = [abs(one - other) for one, other in pairs]
        row = replace(
            untested_row(run.name, config, seed),
            check=check.method,
            check_steps=steps_of(check),
            check_tolerance=tolerance_of(check),
            own=own[s].accuracy,
            checked=checked[s].accuracy,
            batches=len(batches),
            batch_own=round(fmean(one for one, _ in pairs), 5),
            batch_gap=round(fmean(gaps), 5),
            batch_fails=round(fmean(gap > THRESHOLD for gap in gaps), 5),
        )
        rows.append(row)
    return rows


def _scores(run: Finished, solver: Solver, labelled: Labelled) -> list[MemberScore]:
    return scores(run.trained.ensemble, [solver] * run.trained.ensemble.size, labelled)


def _batches(config: RunConfig, training_set: Labelled) -> list[Labelled]:
    """Whole ones of the size that the model was trained with."""
    inputs, labels = (torch.split(part, config.batch_size) for part in training_set)
    whole = [(x, y) for x, y in zip(inputs, labels, strict=True) if len(y) == config.batch_size]
    return whole[:MOST_BATCHES]


def untested_row(run: str, config: RunConfig, seed: int) -> CheckRow:
    """What a row says of its training."""
    return CheckRow(
        run=run,
        seed=seed,
        data=config.data,
        method=config.solver.method,
        steps=steps_of(config.solver),
        tolerance=tolerance_of(config.solver),
        lr=config.lr,
        iterations=config.iterations,
    )


CRITICAL_STEPS = Study(
    name="critical-steps",
    paper="Table 1; Sections 2 to 4",
    what="Algorithm 2's own check of models trained with constant steps and tolerances, and what the paper asserts of "
    "their fields",
    tables=(CHECKS, FIELDS, ESTIMATES, AUDITS),
    runs=runs,
    measure=measure,
    untested=untested_row,
    draw=lambda tables, folder: [],
    findings=findings,
    text=text,
    beside=("table1",),
)
