"""The reference flow: the same field solved ever finer in float64, until the answer stops changing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from windermere.audit.subject import Change, Pass, Subject
from windermere.audit.sweep import Numbers, decisions, distance
from windermere.errors import DoublePrecisionError, SolverError
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

SHARE_OF_OWN = 0.1
"""The reference's error may be this share of the training solver's (medians over samples)."""
FLIPS = 0.002
"""The share of decisions that may still change in the last refinement."""
LEAST_BUDGET, TIMES_OWN = 8192, 62


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the flow does with a batch, as far as it could be found out."""

    done: Pass
    error: Numbers
    """[n]: estimate of the reference's own error, from successive differences."""
    order: float | None
    """Observed: log2 of the ratio of successive differences when steps are halved; None for tolerances."""
    solver: str
    dtype: str
    evaluations: int
    """Spent on all refinements."""
    converged: bool
    reason: str | None
    """Why it did not converge."""


def reference_flow(
    subject: Subject, x: Any, own: Pass, *, classes: bool = True, budget: int | None = None
) -> Reference:
    """Refine until the estimated error is small against the training solver's and decisions stand still.

    Steps are halved (rk4), or for models trained with adaptive steps tolerances tightened (dopri54). Never judged by a
    method's nominal order: ReLU fields converge with order about 2 whatever the method.
    """
    limit = budget or max(LEAST_BUDGET, TIMES_OWN * own.evaluations)
    spent, cost, failure = 0, max(1, own.evaluations), None
    passes: list[Pass] = []
    best = _unknown(own)
    for change in refinements(subject.solvers[-1]):
        try:
            done, dtype = _finest_pass(subject, x, change)
        except SolverError as error:  # too coarse a step may blow up where a finer one does not
            failure, passes, spent, cost = str(error), [], spent + cost, 2 * cost
        else:
            failure, passes, spent, cost = None, [*passes[-2:], done], spent + done.evaluations, 2 * done.evaluations
        if len(passes) == 3:
            best = _judge(passes, own, change(subject.solvers[-1]), dtype, classes)
        if best.converged or spent + cost > limit:
            break
    return replace(best, evaluations=spent, reason=None if best.converged else failure or _why(best))


def _unknown(own: Pass) -> Reference:
    """Where not even three refinements fit into the budget."""
    error = np.full(len(own.outputs), np.inf)
    return Reference(
        done=own, error=error, order=None, solver="-", dtype="-", evaluations=0, converged=False, reason=None
    )


def refinements(own: Solver) -> Iterator[Change]:
    """Ever finer solvers, as changes of a solve's own one."""
    finer = _finer_tolerance if isinstance(own, Adaptive) else _finer_grid
    for k in count():
        yield partial(finer, k)


def _finer_tolerance(k: int, own: Solver) -> Solver:
    tolerance = max(min(own.precision, 1e-3) * 10.0 ** (-1 - k), 1e-13)
    return Adaptive("dopri54", tolerance=tolerance, max_steps=100_000)


def _finer_grid(k: int, own: Solver) -> Solver:
    step = min(own.precision, 1 / 16) * 2.0**-k
    return OnGrid("rk4", own.with_precision(step).times) if isinstance(own, OnGrid) else FixedStep("rk4", step=step)


def _finest_pass(subject: Subject, x: Any, change: Change) -> tuple[Pass, str]:
    """In float64 if the model can."""
    try:
        return subject.forward(x, change, double=True), "float64"
    except DoublePrecisionError:
        return subject.forward(x, change), "float32"


def _judge(passes: list[Pass], own: Pass, solver: Solver, dtype: str, classes: bool) -> Reference:
    """Successive differences d1, d2 of three refinements: the error left is about d2 r / (1 - r), r = d2 / d1."""
    coarse, middle, fine = passes
    before, last = distance(coarse, middle), distance(middle, fine)
    scale = float((fine.states if fine.states is not None else fine.outputs).abs().median())
    rounding = (1e-12 if dtype == "float64" else 1e-5) * max(scale, 1e-12)
    ratio = float(np.median((last + rounding) / (before + rounding)))
    shrink = min(max(ratio, 1 / 32), 0.99)
    error = last * shrink / (1 - shrink)
    flips = float((decisions(middle.outputs) != decisions(fine.outputs)).double().mean()) if classes else 0.0
    needed = max(SHARE_OF_OWN * float(np.median(distance(own, fine))), 10 * rounding)
    converged = float(np.median(error)) <= needed and flips <= FLIPS
    seen = np.median(last) > 10 * rounding and not isinstance(solver, Adaptive)
    order = -float(np.log2(ratio)) if seen else None
    return Reference(
        done=fine,
        error=error,
        order=order,
        solver=str(solver),
        dtype=dtype,
        evaluations=0,
        converged=converged,
        reason=None,
    )


def _why(reference: Reference) -> str:
    if reference.solver == "-":
        return "its budget did not allow three refinements"
    if reference.order is None:
        return "rounding, or a tolerance that cannot be met, hides the differences between refinements"
    if reference.order < 0.3:
        return "halving the step does not bring solutions closer: the field is chaotic or stiff"
    return f"solutions approach each other only with order {reference.order:.1f}, too slowly for the budget"
