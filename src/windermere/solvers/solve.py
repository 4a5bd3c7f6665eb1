"""`solve`: a field, a state, a solver and times in; a solution out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import TypeVar

from windermere._torch_private import is_dynamo_compiling, is_forward_mode, uncompiled
from windermere.errors import SolverError, UsageError
from windermere.solvers.adjoint import solve_with_adjoint
from windermere.solvers.counting import Ledger, note_span
from windermere.solvers.field import Field, packed_rate
from windermere.solvers.gradients import Adjoint, Gradient, check_gradient, solve_with_checkpoints
from windermere.solvers.integrate import integrate
from windermere.solvers.landing import has_to_land
from windermere.solvers.layout import AnyState, Layout, State, lay_out
from windermere.solvers.members import by_sample, members_of
from windermere.solvers.paths import prepare
from windermere.solvers.problem import Problem, Walked
from windermere.solvers.sample_times import TimesGiven, are_by_sample, check_sample_times, check_steps_by_sample
from windermere.solvers.solver import Adaptive, Solver, Solvers, default_times, stopping_at
from windermere.solvers.times import Times, check_times
from windermere.solvers.torch_modes import check_transforms, is_transformed

Kind = TypeVar("Kind", bound=State, covariant=True, default=State)
"""A state's kind: a tensor, or a tuple of tensors. A solution is of the kind that was given."""
ByGroup: TypeAlias = int | NDArray[np.int64]
"""A number; one for each group where groups (members, samples) have steps of their own."""


@dataclass(frozen=True)
class Stats:
    """What a solve cost: `evaluations` of the field, and steps `accepted` and `rejected` (0 with fixed steps).

    Numbers; arrays where members of an ensemble or samples have steps of their own.

    >>> import torch
    >>> import windermere as wm
    >>> wm.solve(lambda t, z: -z, torch.ones(2), wm.FixedStep("rk4", step=1 / 8)).stats
    Stats(evaluations=32, accepted=8, rejected=0)
    """

    evaluations: ByGroup
    accepted: ByGroup
    rejected: ByGroup


@dataclass(frozen=True)
class Trajectory(Generic[Kind]):
    """Every step that the solver took (`solve(..., record=True)`): the `times` and the `states` there.

    Both have the steps as their first axis, the start included.

    >>> import torch
    >>> import windermere as wm
    >>> walk = wm.solve(lambda t, z: -z, torch.ones(1), wm.FixedStep("euler", step=1 / 2), record=True).trajectory
    >>> walk.times.tolist(), walk.states.flatten().tolist()
    ([0.0, 0.5, 1.0], [1.0, 0.5, 0.25])
    """

    times: NDArray[np.float64]
    """[steps + 1], or [steps + 1, *groups] where groups walk on their own (one that waits repeats its time)."""
    states: Kind
    """[steps + 1, ...] (each part of a tuple)."""


@dataclass(frozen=True)
class Solution(Generic[Kind]):
    """The result of `solve`.

    `final` is the state at the last time, and `states` those at all `times` asked for, stacked along a first axis, the
    first one included. `stats` says what it cost. `trajectory` has every step, if `record=True` asked for it.

    >>> import torch
    >>> import windermere as wm
    >>> solution = wm.solve(lambda t, z: -z, torch.ones(1), wm.FixedStep("euler", step=1 / 2), times=(0, 0.5, 1))
    >>> solution.states.flatten().tolist(), solution.final.item(), solution.stats.evaluations
    ([1.0, 0.5, 0.25], 0.25, 2)
    """

    times: tuple[float, ...] | NDArray[np.float64]
    """Those asked for; an array [samples, n] where each sample has its own."""
    states: Kind
    """[len(times), ...]: the states at the times asked for, the first one included."""
    final: Kind
    stats: Stats
    trajectory: Trajectory[Kind] | None


def solve(
    field: Field,
    z0: AnyState,
    solver: Solvers,
    times: TimesGiven | None = None,
    *,
    gradient: Gradient = "backprop",
    interpolate: bool | None = None,
    record: bool = False,
    compile: bool = False,
    captured: bool | None = None,
) -> Solution[AnyState]:
    """Integrate dz/dt = field(t, z) from z0 at times[0] through all times, and return a `Solution`.

    field: a module or a function of a time and a state.
    z0: the first state, [samples, ...], or a tuple of such tensors.
    solver: a `FixedStep`, `OnGrid` or `Adaptive`. For an ensemble, whose state is [members, samples, ...], a sequence
        of solvers, one for each member.
    times: rising or falling; (0, 1) unless the solver has a grid of its own. A tensor, array or sequence of rows
        [samples, n] gives each sample its own start, times and end: it needs steps of its own for that,
        `Adaptive(..., control="sample")` or a `FixedStep`. A row with fewer times repeats its last one.
    gradient: "backprop" through the solver, "checkpoint" (the same gradient in less memory), "adjoint", or an `Adjoint`
        with settings of its own.
    interpolate: True steps as if only the last time were asked for, and interpolates the states between, at the
        method's order. False lands on every time. None interpolates with adaptive steps, and lands with fixed ones:
        where a time lies off its grid, a `FixedStep` cuts the step before it short and goes on from there with whole
        ones; an `OnGrid` refuses it. The adjoint's way back always lands: dL/dz jumps at each time.
    record: keep every step taken in `solution.trajectory`; among them are the times asked for only where steps land.
    compile: let torch.compile compile the field, which takes seconds at its first evaluation.
    captured: on a GPU, steps are captured once and replayed, from the second solve of a kind on and where that is safe.
        True does so at once, or says why not. False never does.

    >>> import torch
    >>> import windermere as wm
    >>> solution = wm.solve(lambda t, z: -z, torch.ones(3, 2), wm.FixedStep("rk4", step=1 / 8), times=(0, 0.5, 1))
    >>> solution.states.shape, solution.stats.evaluations
    (torch.Size([3, 3, 2]), 32)
    """
    asked: Any = {"gradient": gradient, "record": record, "compile": compile, "captured": captured}
    return _solution(*_solved(field, z0, solver, times, interpolate, **asked))


def _solution(problem: Problem, walked: Walked) -> Solution[Any]:
    layout = problem.layout
    return Solution(
        times=np.stack(problem.times, axis=-1) if problem.by_sample else problem.times,
        states=layout.unpack(walked.stacked, extra=1),
        final=layout.unpack(walked.final),
        stats=Stats(*(_plain(n) for n in (walked.evaluations, walked.accepted, walked.rejected))),
        trajectory=_trajectory(walked, layout) if problem.record else None,
    )


def final_state(
    field: Field,
    z0: State,
    solver: Solvers,
    times: TimesGiven | None = None,
    *,
    gradient: Gradient = "backprop",
    compile: bool = False,
    captured: bool | None = None,
) -> State:
    """The last state of such a solution, for those who want nothing else of it."""
    problem, walked = _solved(field, z0, solver, times, gradient=gradient, compile=compile, captured=captured)
    return problem.layout.unpack(walked.final)


def _solved(
    field: Field, z0: State, solver: Solvers, times: TimesGiven | None, interpolate: bool | None = None, **asked: Any
) -> tuple[Problem, Walked]:
    if is_dynamo_compiling():  # in pieces, it would take a minute to compile and be slower
        return uncompiled(_solved)(field, z0, solver, times, interpolate, **asked)
    problem = _pose(field, z0, solver, times, interpolate, **asked)
    return problem, _walk(problem)


def _pose(
    field: Field,
    z0: State,
    solver: Solvers,
    times: TimesGiven | None,
    interpolate: bool | None,
    *,
    gradient: Gradient,
    compile: bool,
    captured: bool | None,
    record: bool = False,
) -> Problem:
    """All that a solve needs, checked and made ready once."""
    solvers, members = members_of(solver)
    adaptive = isinstance(solvers[0], Adaptive)
    moments, layout = _moments(times, z0, solvers, members)
    z = layout.pack(z0)
    # Dynamo itself remembers what it compiled, and forgets it with the field.
    prepared, paths = prepare(torch.compile(field) if compile else field, z, captured=bool(captured))
    between = len(moments) > 2 and (adaptive if interpolate is None else interpolate)
    if has_to_land(len(moments) - 2):
        between, solvers = False, tuple(stopping_at(moments, solvers))
    check_gradient(gradient)
    if is_transformed():
        check_transforms(adaptive=adaptive, gradient=gradient)
    if not torch.is_grad_enabled() or (gradient == "checkpoint" and is_forward_mode()):
        gradient = "backprop"
    if isinstance(moments[0], np.ndarray):
        if captured:
            raise UsageError("captured=True, but this solve cannot be captured: each sample has times of its own")
        paths = tuple(path for path in paths if path.own_times)
    rate, known = packed_rate(layout, prepared.rate), prepared.tensors
    asked: Any = {"record": record, "compile": compile, "interpolate": between, "captured": captured, "paths": paths}
    return Problem(field, rate, known, z, layout, solvers, moments, gradient, **asked, ledger=Ledger.current())


def _moments(times: Any, z0: State, solvers: Sequence[Solver], members: int | None) -> tuple[Times, Layout]:
    """The times, for all or by sample, and the groups that have steps of their own."""
    if are_by_sample(times):
        check_steps_by_sample(solvers, ensemble=members is not None)
        layout = lay_out(z0, members=None, samples=True)
        return check_sample_times(times, *layout.groups), layout
    shared = check_times(times if times is not None else default_times(solvers[0]))
    return shared, lay_out(z0, members=members, samples=by_sample(solvers))


def _walk(problem: Problem) -> Walked:
    """Solve with the gradient asked for, and count."""
    try:
        walked = _with_gradient(problem)
    except SolverError as error:
        if error.evaluations is not None:
            problem.count("forward", error.evaluations)
        raise
    problem.count("forward", walked.evaluations)
    problem.count("steps", walked.accepted)
    note_span(problem.solvers[0], problem.span)
    return walked


def _with_gradient(problem: Problem) -> Walked:
    if problem.gradient == "backprop":
        return integrate(problem)
    if problem.gradient == "checkpoint":
        return solve_with_checkpoints(problem)
    return solve_with_adjoint(problem, problem.gradient if isinstance(problem.gradient, Adjoint) else Adjoint())


def _plain(numbers: NDArray[np.int64]) -> ByGroup:
    return int(numbers) if numbers.ndim == 0 else numbers


def _trajectory(walked: Walked, layout: Layout) -> Trajectory:
    times = np.stack([t for t, _ in walked.recorded])
    return Trajectory(times, layout.unpack(torch.stack([z for _, z in walked.recorded]), extra=1))
