"""The reference flow: the same field solved ever finer in float64, until the answer stops changing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from windermere.auditing.diagnosis import Signs, why
from windermere.auditing.scoring import Numbers, distance
from windermere.auditing.subject import Change, Pass, Subject
from windermere.errors import DoublePrecisionError, SolverError
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver
from windermere.solvers.landing import landing

SHARE_OF_OWN = 0.1
"""The reference's error may be this share of the training solver's (medians over samples)."""
SHARE_OF_STATE = 0.01
"""And this share of the state: where the training solver blows up, its error is no measure."""
LEAST_BUDGET, TIMES_OWN = 8192, 62
LEAST_STEPS = 16
BESIDE_ADAPTIVE = 0.25
"""The share of a fixed step to begin with where the last solve is adaptive, and steps can't be counted apart."""
FINEST_TOLERANCE = 1e-13
Still: TypeAlias = Callable[[Pass, Pass], bool]
"""Whether two refinements decide alike."""
Flaw: TypeAlias = Callable[[Pass], str | None]
"""What makes a refinement useless, such as scores that are not finite; None where nothing does."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the flow does with a batch, as far as it could be found out."""

    done: Pass | None
    """The finest pass, None where there were not even three to judge it by."""
    error: Numbers | None
    """[n]: estimate of the reference's own error, from successive differences."""
    order: float | None
    """Observed: log2 of the ratio of successive differences when steps are halved; None for tolerances."""
    solver: str | None
    dtype: str | None
    evaluations: int
    """Spent on all refinements."""
    converged: bool
    reason: str | None
    """Why it did not converge."""


def no_flaw(done: Pass) -> str | None:
    return None


UNKNOWN = Reference(
    done=None, error=None, order=None, solver=None, dtype=None, evaluations=0, converged=False, reason=None
)
"""Where nothing was solved, or not even three refinements fit into the budget."""


def reference_flow(
    subject: Subject, x: Any, own: Pass, *, still: Still, flaw: Flaw = no_flaw, budget: int | None = None
) -> Reference:
    """Refine until the estimated error is small against the training solver's and decisions stand still.

    Steps are halved (rk4), or for models trained with adaptive steps tolerances tightened (dopri54). Never judged by a
    method's nominal order: ReLU fields converge with order about 2 whatever the method. Solves land on every time
    that the model asks for, so that no interpolation errs in the reference.
    """
    solver = subject.solvers[-1]
    known = own.evaluations or _assumed_evaluations(solver)
    limit = budget or _limit(known)
    spent, cost = 0, max(1, known)
    passes: list[Pass] = []
    best, signs = UNKNOWN, None
    for change in refinements(subject, own):
        used = cost
        try:
            with landing() as landings:
                done, dtype = _finest_pass(subject, x, change)
            # Where a callable's evaluations can't be seen they are taken to double, so that the budget ends some time.
            used = done.evaluations or cost
            failure = _name_solver(_not_finite(done) or flaw(done), change(solver))
        except SolverError as error:
            failure = str(error)
        # Too coarse a step may blow up where a finer one does not.
        passes = [] if failure else [*_coarser(passes, done, solver)[-2:], done]
        spent, cost = spent + used, 2 * used
        limit = budget or max(limit, _limit(solver.tableau.propagating * landings.times))
        if len(passes) == 3:
            best, signs = _judge(passes, own, change(solver), dtype, still)
        if best.converged or spent + cost > limit:
            break
    reason = None if best.converged else why(subject, x, change(solver), best.done or own, signs, failure)
    return replace(best, evaluations=spent, reason=reason)


def _limit(own: int) -> int:
    """What all refinements may cost where a pass with the model's own solver costs so much, landing on all times."""
    return max(LEAST_BUDGET, TIMES_OWN * own)


def _assumed_evaluations(own: Solver) -> int:
    """The evaluations of a pass over a time span of 1, where they can't be counted."""
    return 0 if isinstance(own, Adaptive) else round(own.tableau.propagating / own.precision)


def _coarser(passes: list[Pass], done: Pass, solver: Solver) -> list[Pass]:
    """Without a last one of as many fixed steps: steps longer than the time span are all the same single step, and
    their agreement would pass for convergence."""
    same = passes and 0 < done.evaluations == passes[-1].evaluations
    return passes[:-1] if same and not isinstance(solver, Adaptive) else passes


def _not_finite(done: Pass) -> str | None:
    """Other libraries return it in silence."""
    lost = ~done.outputs.reshape(len(done.outputs), -1).isfinite().all(dim=1)
    if done.states is not None:
        lost |= ~done.states.isfinite().all(dim=1)
    return f"its solutions are not finite for {int(lost.sum())} of {len(lost)} samples" if lost.any() else None


def _name_solver(flaw: str | None, solver: Solver) -> str | None:
    return None if flaw is None else f"{flaw}, under {solver}"


def refinements(subject: Subject, own: Pass) -> Iterator[Change]:
    """Ever finer solvers, as changes of a solve's own one; tolerances end where float64 does."""
    solver = subject.solvers[-1]
    if isinstance(solver, Adaptive):
        last = round(np.log10(_loosest(solver) / FINEST_TOLERANCE))
        yield from (partial(_finer, k, BESIDE_ADAPTIVE) for k in range(last + 1))
        return
    steps = own.evaluations / solver.tableau.propagating / len(subject.solvers) or 1 / solver.precision
    yield from (partial(_finer, k, min(1.0, steps / LEAST_STEPS)) for k in count())


def _loosest(own: Adaptive) -> float:
    """The tolerance to begin with, so that there is room for three."""
    return max(min(own.precision, 1e-3) / 10, 100 * FINEST_TOLERANCE)


def _finer(k: int, share: float, own: Solver) -> Solver:
    """Each solve in its own kind, since fixed and adaptive steps may stand side by side: a tenth of the tolerance, or
    half the step, which begins with a share of its own."""
    if isinstance(own, Adaptive):
        tolerance = max(_loosest(own) * 10.0**-k, FINEST_TOLERANCE)
        return Adaptive("dopri54", tolerance=tolerance, max_steps=100_000)
    step = own.precision * share * 2.0**-k
    return OnGrid("rk4", own.with_precision(step).times) if isinstance(own, OnGrid) else FixedStep("rk4", step=step)


def _finest_pass(subject: Subject, x: Any, change: Change) -> tuple[Pass, str]:
    """In float64 if the model can."""
    try:
        return subject.forward(x, change, double=True), "float64"
    except DoublePrecisionError:
        return subject.forward(x, change), "its own precision" if subject.library == "predict" else "float32"


def _judge(passes: list[Pass], own: Pass, solver: Solver, dtype: str, still: Still) -> tuple[Reference, Signs]:
    """Successive differences d1, d2 of three refinements: the error left is about d2 r / (1 - r), r = d2 / d1."""
    coarse, middle, fine = passes
    before, last = distance(coarse, middle), distance(middle, fine)
    scale = float(np.median(_sizes(fine)))
    rounding = (1e-12 if dtype == "float64" else 1e-5) * max(scale, 1e-12)
    with np.errstate(invalid="ignore"):  # inf / inf, seen to below
        ratio = float(np.median((last + rounding) / (before + rounding)))
    shrink = min(max(ratio, 1 / 32), 0.99)
    error = last * shrink / (1 - shrink)
    if isinstance(solver, Adaptive):  # two tolerances may happen to take the same steps, and are not exact for that
        error = np.maximum(error, solver.precision * _sizes(fine))
    middling = float(np.median(error))
    needed = max(min(SHARE_OF_OWN * float(np.median(distance(own, fine))), SHARE_OF_STATE * scale), 10 * rounding)
    # Squares of huge differences overflow: what is not finite is never close.
    converged = bool(np.isfinite([middling, needed]).all()) and middling <= needed and still(middle, fine)
    rounded = bool(np.isfinite(rounding) and np.median(last) <= 10 * rounding)
    seen = np.isfinite(ratio) and not rounded and not isinstance(solver, Adaptive)
    order = -float(np.log2(ratio)) if seen else None
    reference = Reference(
        done=fine, error=error, order=order, solver=str(solver), dtype=dtype, evaluations=0, converged=converged,
        reason=None,
    )  # fmt: skip
    return reference, Signs(ratio=ratio, rounded=rounded)


def _sizes(done: Pass) -> Numbers:
    """The norm of each sample's end state, or of its output where states are hidden, [n]."""
    values = done.outputs if done.states is None else done.states
    sizes: Numbers = values.reshape(len(values), -1).norm(dim=1).numpy()
    return sizes
