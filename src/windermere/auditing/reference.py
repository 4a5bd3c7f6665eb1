"""The reference flow: the same field solved ever finer in float64, until the answer stops changing."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from windermere.auditing.diagnosis import Signs, why
from windermere.auditing.judge import end_of
from windermere.auditing.refinement import (
    SHARE_OF_OWN,
    SHARE_OF_STATE,
    Refinement,
    left_over,
    observed_order,
    refinements,
)
from windermere.auditing.scoring import Place, distance, failure_of
from windermere.auditing.statistics import Numbers
from windermere.auditing.subject import Pass, Subject, finest
from windermere.errors import DoublePrecisionError
from windermere.solvers import Adaptive, Solver
from windermere.solvers.landing import landing

LEAST_BUDGET, TIMES_OWN = 8192, 62
ROUNDING = {"float64": 1e-12, "float16": 2e-4, "bfloat16": 1.6e-3}
"""How far refinements may differ by rounding alone, relative to the state; 1e-5 in float32."""
MOST = 0.95
"""The share of all samples that have to hold still."""
Still: TypeAlias = Callable[[Pass, Pass], bool]
"""Whether two refinements decide alike."""
Flaw: TypeAlias = Callable[[Pass], str | None]
"""What makes a refinement useless, such as scores that are not finite; None where nothing does."""
Solvers: TypeAlias = tuple[Solver, ...]
"""The solvers of all solves of a pass."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the flow does with a batch, as far as it could be found out."""

    done: Pass | None
    """The finest pass, None where there were not even three to judge it by."""
    error: Numbers | None
    """[n]: estimate of the reference's own error, from successive differences."""
    order: float | None
    """Observed in successive differences; None for tolerances."""
    solver: str | None
    dtype: str | None
    evaluations: int
    """Spent on all refinements."""
    converged: bool
    reason: str | None
    """Why it did not converge."""
    solved: Mapping[Solvers, Pass] = field(default_factory=dict)
    """Refinements that were asked to be kept."""


def no_flaw(done: Pass) -> str | None:
    return None


UNKNOWN = Reference(
    done=None, error=None, order=None, solver=None, dtype=None, evaluations=0, converged=False, reason=None
)
"""Where nothing was solved, or not even three refinements fit into the budget."""


def reference_flow(
    subject: Subject,
    x: Any,
    own: Pass,
    *,
    still: Still,
    flaw: Flaw = no_flaw,
    place: Place = end_of,
    budget: int | None = None,
    keep: Collection[Solvers] = (),
) -> Reference:
    """Refine until the estimated error is small against the training solver's and decisions stand still.

    Never judged by a method's nominal order: ReLU fields converge with order about 2 whatever the method. Solves land
    on every time that the model asks for, so that no interpolation errs in the reference. Errors are distances between
    the places of passes. Refinements whose solvers are
    in `keep` are kept, unless they had to land.
    """
    solver = subject.solvers[-1]
    limit = budget or _limit(own.evaluations or _assumed_evaluations(solver))
    spent = 0.0
    solves: list[_Solve] = []
    kept: dict[Solvers, Pass] = {}
    best, signs = UNKNOWN, None
    for refinement in refinements(subject, own):
        if solves and solves[-1].is_passed_by(refinement, solver):
            continue
        solve = _solve(subject, x, refinement, flaw)
        # Too coarse a step may blow up where a finer one does not.
        solves = [] if solve.done is None else [*_coarser(solves, solve, solver)[-2:], solve]
        solvers = tuple(refinement.change(each) for each in subject.solvers)
        if solve.done is not None and solvers in keep and not solve.landings:
            kept[solvers] = solve.done
        spent += solve.evaluations
        limit = budget or max(limit, _limit(solver.tableau.propagating * solve.landings))
        if len(solves) == 3 and refinement.judged:
            best, signs = _judge(solves, own, refinement.change(finest(subject.solvers)), still, place)
        if best.converged or spent + 2 * solve.evaluations > limit:
            break
    last = solve.refinement.change(solver)
    reason = None if best.converged else why(subject, x, last, best.done or own, signs, solve.failure, best.dtype)
    return replace(best, evaluations=round(spent), reason=reason, solved=kept)


@dataclass(frozen=True, kw_only=True)
class _Solve:
    """What became of a refinement."""

    refinement: Refinement
    done: Pass | None
    """None where it failed."""
    failure: str | None
    dtype: str
    evaluations: float
    landings: int
    """Output times that it had to land on."""

    def is_passed_by(self, finer: Refinement, solver: Solver) -> bool:
        """Whether it landed so often that it took as many steps already, and the finer one would be the same."""
        return bool(self.landings) and not isinstance(solver, Adaptive) and finer.evaluations <= self.evaluations


def _solve(subject: Subject, x: Any, refinement: Refinement, flaw: Flaw) -> _Solve:
    """In float64 if the model can."""
    done, dtype = None, "float64"
    with landing() as landings:
        try:
            try:
                done = subject.forward(x, refinement.change, double=True)
            except DoublePrecisionError:
                done = subject.forward(x, refinement.change)
                dtype = done.dtype
            failure = _name_solver(_not_finite(done) or flaw(done), refinement.change(finest(subject.solvers)))
        except Exception as error:  # whatever the user's code raises  # noqa: BLE001
            failure = failure_of(error)
    return _Solve(
        refinement=refinement,
        done=None if failure else done,
        failure=failure,
        dtype=dtype,
        evaluations=(done and done.evaluations) or refinement.evaluations,
        landings=landings.times,
    )


def _limit(own: int) -> int:
    """What all refinements may cost where a pass with the model's own solver costs so much, landing on all times."""
    return max(LEAST_BUDGET, TIMES_OWN * own)


def _assumed_evaluations(own: Solver) -> int:
    """The evaluations of a pass over a time span of 1, where they can't be counted."""
    return 0 if isinstance(own, Adaptive) else round(own.tableau.propagating / own.precision)


def _coarser(solves: list[_Solve], finer: _Solve, solver: Solver) -> list[_Solve]:
    """Without a last one of as many fixed steps: steps longer than the time span are all the same single step, and
    their agreement would pass for convergence."""
    same = solves and finer.evaluations == solves[-1].evaluations
    return solves[:-1] if same and not isinstance(solver, Adaptive) else solves


def _not_finite(done: Pass) -> str | None:
    """Other libraries return it in silence."""
    lost = ~done.outputs.reshape(len(done.outputs), -1).isfinite().all(dim=1)
    if done.states is not None:
        lost |= ~done.states.isfinite().all(dim=1)
    return f"its solutions are not finite for {int(lost.sum())} of {len(lost)} samples" if lost.any() else None


def _name_solver(flaw: str | None, solver: Solver) -> str | None:
    return None if flaw is None else f"{flaw}, under {solver}"


def _judge(solves: list[_Solve], own: Pass, solver: Solver, still: Still, place: Place) -> tuple[Reference, Signs]:
    """Successive differences of three refinements tell the order, and that the share of the last one that is left."""
    coarse, middle, fine = (each.done for each in solves if each.done is not None)
    dtype = solves[-1].dtype
    a, b, c = (each.refinement.size for each in solves)
    before, last = distance(place, coarse, middle), distance(place, middle, fine)
    scale = float(np.median(_sizes(place(fine))))
    rounding = ROUNDING.get(dtype, 1e-5) * max(scale, 1e-12)
    with np.errstate(invalid="ignore"):  # inf / inf, seen to below
        ratio = float(np.median((last + rounding) / (before + rounding)))
    order = observed_order(ratio, (a, b, c)) if np.isfinite(ratio) else float("nan")
    error = last * left_over(order, (b, c))
    if dtype != "float64":  # what all refinements round alike shows in no difference of theirs
        error = np.maximum(error, 0.1 * rounding)
    if isinstance(solver, Adaptive):  # two tolerances may happen to take the same steps, and are not exact for that
        error = np.maximum(error, solver.precision * _sizes(place(fine)))
    middling = float(np.median(error))
    allowed = min(SHARE_OF_OWN * float(np.median(distance(place, own, fine))), SHARE_OF_STATE * scale)
    needed = max(solves[-1].refinement.share * allowed, 10 * rounding)
    # Squares of huge differences overflow: what is not finite is never close.
    converged = bool(np.isfinite([middling, needed]).all()) and middling <= needed and still(middle, fine)
    converged = converged and (solves[-1].refinement.share == 1 or _holds_for_most(last, distance(place, own, fine)))
    rounded = bool(np.isfinite(rounding) and np.median(last) <= 10 * rounding)
    landed = any(each.landings for each in solves)  # which cuts steps short: they have no one size
    seen = np.isfinite(order) and not rounded and not landed and not isinstance(solver, Adaptive)
    reference = Reference(
        done=fine, error=error, order=order if seen else None, solver=str(solver), dtype=dtype, evaluations=0,
        converged=converged, reason=None,
    )  # fmt: skip
    return reference, Signs(ratio=ratio, order=order, rounded=rounded)


def _holds_for_most(last: Numbers, own: Numbers) -> bool:
    """Whether the last refinement changed little for most samples, not for the middling one alone: in few steps some
    solutions may be far from converged, and the own solver's error would be measured against them."""
    return bool(np.mean(last <= SHARE_OF_OWN * np.maximum(own, float(np.median(own)))) >= MOST)


def _sizes(values: Tensor) -> Numbers:
    """The norm of each sample's row, [n]."""
    sizes: Numbers = values.norm(dim=1).numpy()
    return sizes
