"""One model under many solvers: what is kept of each, and how far from the reference flow it ends.

Shapes: n samples. A result holds what its judge keeps of every sample; numbers are made of it when it is judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import nan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import Judge, Kept
from windermere.auditing.statistics import Numbers
from windermere.auditing.subject import Pass, Subject, finest
from windermere.errors import (
    DoublePrecisionError,
    SolverError,
    ToleranceError,
    WindermereError,
    describe_error,
    is_device_failure,
    is_out_of_memory,
)
from windermere.solvers import Solver

Place: TypeAlias = Callable[[Pass], Tensor]
"""Where a pass ends, [n, D]: in what errors are measured."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One solver's results, by sample."""

    solver: str
    method: str
    precision: float
    kept: Kept
    """What the judge keeps; nothing where the solver failed."""
    error: Numbers | None
    """Distance from where the reference ends; None where there is no reference."""
    evaluations: int
    failed: str | None = None
    straight: bool = False
    """Whether some states lie on straight lines between two steps, whose errors are not the method's."""

    @property
    def scores(self) -> Numbers:
        """What there is to compare, by sample, [n, ...]."""
        return self.kept.get("scores", np.zeros(0))

    @property
    def median_error(self) -> float | None:
        return None if self.error is None else float(np.median(self.error))


@dataclass(frozen=True)
class Batched:
    """One batch's targets and passes, as far as they are known when another solver is tried."""

    targets: Any
    own: Pass
    flow: Pass | None = None


def distance(place: Place, one: Pass, other: Pass) -> Numbers:
    """The global error, by sample."""
    numbers: Numbers = (place(one) - place(other)).norm(dim=1).numpy()
    return numbers


def result_of(judge: Judge, solver: Solver, done: Pass, batch: Batched) -> Result:
    """A pass that can be judged."""
    return Result(
        solver=str(solver),
        method=solver.method,
        precision=solver.precision,
        kept=judge.keep(done, batch.targets, batch.own, batch.flow),
        error=None if batch.flow is None else distance(judge.place, done, batch.flow),
        evaluations=done.evaluations,
        straight=done.straight,
    )


def failed_result(solver: Solver, reason: str) -> Result:
    return Result(
        solver=str(solver),
        method=solver.method,
        precision=solver.precision,
        kept={},
        error=None,
        evaluations=0,
        failed=reason,
    )


def try_out(
    subject: Subject, x: Any, candidate: Candidate, judge: Judge, batch: Batched, *, done: Pass | None = None
) -> Result:
    """One solver's result; where it fails (a step that blows up, an unresolvable tolerance, a field that refuses a
    state) the result says so. `done` is its pass where the search for the reference took it already."""
    solver = candidate(finest(subject.solvers))
    try:
        done = done or _forward(subject, x, candidate)
    except Exception as error:  # whatever the user's code raises  # noqa: BLE001
        return failed_result(solver, failure_of(error))
    flaw = judge.flaw(done, batch.targets)
    return failed_result(solver, flaw) if flaw is not None else result_of(judge, solver, done, batch)


def failure_of(error: Exception) -> str:
    """Why a pass failed under a solver that is not the model's own, whatever the user's code raises there. What says
    that the audit itself cannot go on is raised again, and so is what no solver is to blame for."""
    told = isinstance(error, WindermereError) and not isinstance(error, SolverError)
    if told or is_out_of_memory(error) or is_device_failure(error):
        raise error
    return str(error) if isinstance(error, SolverError) else describe_error(error)


def _forward(subject: Subject, x: Any, candidate: Candidate) -> Pass:
    """In the model's own precision; in float64 where that cannot resolve the tolerance."""
    try:
        return subject.forward(x, candidate)
    except ToleranceError as error:
        try:
            return subject.forward(x, candidate, double=True)
        except DoublePrecisionError:
            raise error from None


def without_repeats(results: Mapping[Candidate, Result]) -> dict[Candidate, Result]:
    """Each solve once: fixed steps that land on output times are no longer than those are apart, whatever is asked for.
    Of several such candidates the model's own step stays, or else the finest: a coarser one would seem to be safe."""
    kept: dict[Any, Candidate] = {}
    for candidate in sorted(results, key=lambda c: (c.factor != 1, c.factor)):
        kept.setdefault(_solve_of(candidate, results[candidate]), candidate)
    return {candidate: result for candidate, result in results.items() if candidate in set(kept.values())}


def _solve_of(candidate: Candidate, result: Result) -> Any:
    """The same for candidates that gave the same solve; where evaluations are not known, nothing is."""
    if not result.evaluations or result.error is None:
        return candidate
    kept = (values.tobytes() for values in result.kept.values())
    return candidate.method, result.evaluations, result.error.tobytes(), *kept


def join_results(results: Sequence[Result]) -> Result:
    """The same solver's results of several batches as one; it failed if it failed on any."""
    failed = next((result for result in results if result.failed is not None), None)
    if failed is not None or len(results) == 1:
        return failed or results[0]
    errors = [result.error for result in results if result.error is not None]
    return replace(
        results[0],
        kept=_join([result.kept for result in results]),
        error=np.concatenate(errors) if len(errors) == len(results) else None,
        evaluations=round(float(np.mean([result.evaluations for result in results]))),
    )


def _join(parts: Sequence[Kept]) -> Kept:
    """What all batches have, one after the other."""
    names = reduce(lambda some, part: [name for name in some if name in part], parts, list(parts[0]))
    return {name: _laid_out([part[name] for part in parts]) for name in names}


def _laid_out(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One after the other; series of several lengths have nothing, which is no number, where others go on."""
    if len({part.shape[1:] for part in parts}) > 1:
        longest = np.max([part.shape[1:] for part in parts], axis=0)
        gaps = [[(0, 0), *((0, most - its) for most, its in zip(longest, p.shape[1:], strict=True))] for p in parts]
        parts = [np.pad(p.astype(np.float64), gap, constant_values=nan) for p, gap in zip(parts, gaps, strict=True)]
    return np.concatenate(parts)
