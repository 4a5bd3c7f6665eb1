"""`solve`: a field, a state, a solver and times in; a solution out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.errors import SolverError, UsageError, shown
from windermere.solvers.adaptive import walk_adaptively
from windermere.solvers.between import Between
from windermere.solvers.counting import Ledger, Tally
from windermere.solvers.field import Adapt, Field, FusedAdjoint, Layout, Prepared, Rate, State, Walk, lay_out, prepare
from windermere.solvers.fixed import explain_non_finite, is_finite, walk_grid
from windermere.solvers.gradients import (
    Adjoint,
    AdjointPlan,
    AdjointRate,
    Gradient,
    check_at_the_start,
    check_gradient,
    check_unchanged,
    checkpointed,
    solve_with_adjoint,
)
from windermere.solvers.grid import Grid, make_grid
from windermere.solvers.runge_kutta import Problem, Walked
from windermere.solvers.solver import Adaptive, OnGrid, Solver, Solvers, check_times
from windermere.solvers.surroundings import check_transforms, is_forward_mode, is_transformed

ByGroup: TypeAlias = int | NDArray[np.int64]
"""A number; one for each group where groups (members, samples) have steps of their own."""


@dataclass(frozen=True)
class Stats:
    """What a solve cost: `evaluations` of the field, and steps `accepted` and `rejected` (0 with fixed steps).

    Numbers; arrays where members of an ensemble or samples have steps of their own.
    """

    evaluations: ByGroup
    accepted: ByGroup
    rejected: ByGroup


@dataclass(frozen=True)
class Trajectory:
    """Every step that the solver took (`solve(..., record=True)`): the `times` and the `states` there.

    Both have the steps as their first axis, the start included.
    """

    times: NDArray[np.float64]
    """[steps + 1], or [steps + 1, *groups] where groups walk on their own (one that waits repeats its time)."""
    states: State
    """[steps + 1, ...] (each part of a tuple)."""


@dataclass(frozen=True)
class Solution:
    """The result of `solve`.

    `final` is the state at the last time, and `states` those at all `times` asked for, stacked along a first axis, the
    first one included. `stats` says what it cost. `trajectory` has every step, if `record=True` asked for it.
    """

    times: tuple[float, ...]
    states: State
    """[len(times), ...]: the states at the times asked for, the first one included."""
    final: State
    stats: Stats
    trajectory: Trajectory | None


def solve(
    field: Field,
    z0: State,
    solver: Solvers,
    times: Sequence[float] | None = None,
    *,
    gradient: Gradient = "backprop",
    interpolate: bool = False,
    record: bool = False,
) -> Solution:
    """Integrate dz/dt = field(t, z) from z0 at times[0] through all times, and return a `Solution`.

    field: a module or a function of a time and a state.
    z0: the first state, [samples, ...], or a tuple of such tensors.
    solver: a `FixedStep`, `OnGrid` or `Adaptive`. For an ensemble, whose state is [members, samples, ...], a sequence
        of solvers, one for each member.
    times: rising or falling; (0, 1) unless the solver has a grid of its own.
    gradient: "backprop" through the solver, "checkpoint" (the same gradient in less memory), "adjoint", or an `Adjoint`
        with settings of its own.
    interpolate: step as if only the last time were asked for, and interpolate the states between, at the method's
        order. Otherwise steps land on every time, as the adjoint's way back always does: dL/dz jumps at each.
    record: keep every step in `solution.trajectory`.

    >>> import torch
    >>> import windermere as wm
    >>> solution = wm.solve(lambda t, z: -z, torch.ones(3, 2), wm.FixedStep("rk4", step=1 / 8), times=(0, 0.5, 1))
    >>> solution.states.shape, solution.stats.evaluations
    (torch.Size([3, 3, 2]), 32)
    """
    walked, layout, times = _solved(field, z0, solver, times, gradient, record, interpolate)
    return Solution(
        times=times,
        states=layout.unpack(torch.stack(walked.states), extra=1),
        final=layout.unpack(walked.states[-1]),
        stats=Stats(*(_plain(n) for n in (walked.evaluations, walked.accepted, walked.rejected))),
        trajectory=_trajectory(walked, layout) if record else None,
    )


def final_state(
    field: Field, z0: State, solver: Solvers, times: Sequence[float] | None = None, *, gradient: Gradient = "backprop"
) -> State:
    """The last state of such a solution, for those who want nothing else of it."""
    walked, layout, _ = _solved(field, z0, solver, times, gradient, record=False)
    return layout.unpack(walked.states[-1])


def _solved(
    field: Field,
    z0: State,
    solver: Solvers,
    times: Sequence[float] | None,
    gradient: Gradient,
    record: bool,
    interpolate: bool = False,
) -> tuple[Walked, Layout, tuple[float, ...]]:
    if torch.compiler.is_dynamo_compiling():  # in pieces, it would take a minute to compile and be slower
        as_it_is: Callable[..., tuple[Walked, Layout, tuple[float, ...]]]
        as_it_is = torch.compiler.disable(_solved)  # type: ignore[no-untyped-call]
        return as_it_is(field, z0, solver, times, gradient, record, interpolate)
    solvers, members = members_of(solver)
    times = check_times(times if times is not None else default_times(solvers[0]))
    layout = lay_out(z0, members=members, samples=_by_sample(solvers))
    z = layout.pack(z0)
    prepared = prepare(field, z)
    if layout.parts is not None:  # a field's own ways know tensors, not tuples
        prepared = Prepared(prepared.rate, prepared.tensors)
    walked = _walk(prepared, z, solvers, times, layout, gradient, record, interpolate and len(times) > 2)
    return walked, layout, times


def _walk(
    prepared: Prepared,
    z0: Tensor,
    solvers: Sequence[Solver],
    times: tuple[float, ...],
    layout: Layout,
    gradient: Gradient,
    record: bool,
    interpolate: bool,
) -> Walked:
    """Solve with the gradient asked for, and count."""
    ledger = Ledger.current()
    check_gradient(gradient)
    if is_transformed():
        check_transforms(adaptive=isinstance(solvers[0], Adaptive), gradient=gradient)
    problem = Problem(solvers[0].tableau, layout.packed_rate(prepared.rate), layout, interpolate=interpolate)
    try:
        if gradient == "backprop" or not torch.is_grad_enabled():
            walked = _integrate(problem, solvers, times, z0, record, prepared.walk, prepared.adapt)
        elif gradient == "checkpoint":
            walked = _checkpointed(problem, prepared, solvers, times, z0, record, ledger)
        else:
            settings = gradient if isinstance(gradient, Adjoint) else Adjoint()
            walked = _adjoint(problem, prepared, solvers, times, z0, record, settings, ledger)
    except SolverError as error:
        if ledger.counts and error.evaluations is not None:
            ledger.add("forward", _tally(error.evaluations, solvers, layout))
        raise
    if ledger.counts:
        ledger.add("forward", _tally(walked.evaluations, solvers, layout))
        ledger.add("steps", _tally(walked.accepted, solvers, layout))
    return walked


def _checkpointed(
    problem: Problem,
    prepared: Prepared,
    solvers: Sequence[Solver],
    times: Sequence[float],
    z0: Tensor,
    record: bool,
    ledger: Ledger,
) -> Walked:
    """Piece by piece, or by the field's own lean walk, which evaluates all of it again when its gradient is due."""

    def recomputed(evaluations: NDArray[np.int64]) -> None:
        ledger.add("recomputed", _tally(evaluations, solvers, problem.layout))

    if prepared.lean is None or not _is_plain(solvers, times, record):
        # Made here, not in a piece of the solve that is run again.
        check = check_unchanged(prepared.tensors) if prepared.tensors is not None else None
        return _integrate(replace(problem, remember=checkpointed(recomputed, check)), solvers, times, z0, record)
    walked = _integrate(problem, solvers, times, z0, record, prepared.lean)
    if walked.states[-1].requires_grad:
        evaluations = walked.evaluations  # not the states: a hook that held its own tensor would keep all its memory
        walked.states[-1].register_hook(lambda _: recomputed(evaluations))  # type: ignore[no-untyped-call]
    return walked


def _is_plain(solvers: Sequence[Solver], times: Sequence[float], record: bool) -> bool:
    """Whether a field's own walk can take a solve: over a fixed grid, to its end, of which nothing else is wanted."""
    return len(times) == 2 and not record and not isinstance(solvers[0], Adaptive)


def _integrate(
    problem: Problem,
    solvers: Sequence[Solver],
    times: Sequence[float],
    z: Tensor,
    record: bool,
    walk: Walk | None = None,
    adapt: Adapt | None = None,
) -> Walked:
    """Walk through the times, or let the field walk where it brings a walk and can."""
    if problem.interpolate:
        return _interpolated(problem, solvers, times, z, record)
    if isinstance(solvers[0], Adaptive):
        adaptive = [s for s in solvers if isinstance(s, Adaptive)]  # all are of one kind
        if adapt is not None and not record and len(times) == 2:
            adapted = adapt(problem.tableau, adaptive, times, problem.layout.groups, z)
            if adapted is not None:
                evaluations, accepted, rejected = (n.reshape(problem.layout.groups) for n in adapted[1:])
                return Walked([z, adapted.end], evaluations, accepted, rejected, [])
        return walk_adaptively(problem, adaptive, times, z, record=record)
    grid = make_grid([s for s in solvers if not isinstance(s, Adaptive)], times)
    plain = _is_plain(solvers, times, record) and grid.nodes.ndim < z.ndim  # else members of one sample each
    end = walk(problem.tableau, grid, z) if walk is not None and plain else None
    if end is not None:
        walked = Walked.over_grid(problem.tableau.propagating, grid.taken, [z, end])
    else:
        walked = walk_grid(_grouped_as(grid, problem), grid, z, record=record)
    return _checked(walked, problem, grid, z)


def _interpolated(
    problem: Problem, solvers: Sequence[Solver], times: Sequence[float], z: Tensor, record: bool
) -> Walked:
    """Walk from end to end, and interpolate in between."""
    ends = (times[0], times[-1])
    if isinstance(solvers[0], Adaptive):
        between = Between(problem, times)
        adaptive = [s for s in solvers if isinstance(s, Adaptive)]
        return between.with_ends(walk_adaptively(problem, adaptive, ends, z, record=record, between=between))
    grid = make_grid([s for s in solvers if not isinstance(s, Adaptive)], ends)
    problem = _grouped_as(grid, problem)
    between = Between(problem, times)
    walked = _checked(walk_grid(problem, grid, z, record=record, between=between), problem, grid, z, between)
    return between.with_ends(walked)


def _checked(walked: Walked, problem: Problem, grid: Grid, z: Tensor, between: Between | None = None) -> Walked:
    if not all(map(is_finite, (walked.states[-1], *(between.values if between else ())))):
        raise explain_non_finite(_grouped_as(grid, problem), grid, z.detach()).after(walked.evaluations)
    return walked


def _grouped_as(grid: Grid, problem: Problem) -> Problem:
    """Members that share a grid are one group."""
    return problem if grid.nodes.ndim > 1 else replace(problem, layout=replace(problem.layout, groups=()))


def _adjoint(
    problem: Problem,
    prepared: Prepared,
    solvers: Sequence[Solver],
    times: Sequence[float],
    z0: Tensor,
    record: bool,
    settings: Adjoint,
    ledger: Ledger,
) -> Walked:
    if is_forward_mode():
        raise UsageError(
            "the adjoint has no derivatives in forward mode (torch.autograd.forward_ad): take gradient='backprop' there"
        )
    back = _adjoint_solvers(settings, solvers, problem.layout)
    if problem.interpolate:  # on their way back, all land on the times asked for
        back = [s.stopping_at(times) if isinstance(s, OnGrid) else s for s in back]
    layout = problem.layout.regrouped(samples=_by_sample(back))
    axis = len(layout.groups)
    fused, rate, known = _taken_back(prepared, settings, back, layout, z0)
    parameters = tuple(p for p in known or () if p.requires_grad)
    if known is None or not (parameters or z0.requires_grad):  # else the way back looks at its first evaluation
        t = layout.columns(np.full(layout.groups, times[0]), z0)
        check_at_the_start(rate, t, z0, plain=known is None)
    shape = torch.Size((*layout.shape[:axis], 2, *layout.shape[axis:]))
    stacked = Layout(shape, layout.groups, lead=layout.lead, pair=axis)

    def backward(rate: AdjointRate, start: float, end: float, state: Tensor) -> Tensor:
        if fused is not None:
            adaptive = [s for s in back if isinstance(s, Adaptive)]
            done = fused.adjoin(rate.tableau, adaptive, (start, end), layout.groups, *state.unbind(axis))
            if done is not None:
                rate.add(part for p, part in zip(fused.tensors, done.gradient, strict=True) if p.requires_grad)
                ledger.add("backward", _tally(done.evaluations.reshape(layout.groups), back, layout))
                return torch.stack([done.z, done.a], dim=axis)
        reverse = Problem(rate.tableau, rate, stacked, reuse=False, settle=rate.settle)
        try:
            with torch.no_grad():
                walked = _integrate(reverse, back, (start, end), state, False)
        except SolverError as error:
            error.args = (f"on the adjoint's way back, {error}",)
            raise
        ledger.add("backward", _tally(walked.evaluations, back, layout))
        return walked.states[-1]

    plan = AdjointPlan(
        forward=lambda z: _integrate(problem, solvers, times, z, record, prepared.walk, prepared.adapt),
        backward=backward,
        times=times,
        make_rate=lambda: AdjointRate(rate, axis, back[0].tableau, parameters),
        walked=[],
    )
    return solve_with_adjoint(plan, z0, parameters)


def _taken_back(
    prepared: Prepared, settings: Adjoint, back: Sequence[Solver], layout: Layout, z0: Tensor
) -> tuple[FusedAdjoint | None, Rate, Iterable[Tensor] | None]:
    """The field's own way back, where it has one that can; the rate to go back by; and what that depends on, None where
    nobody says."""
    fused, known = prepared.adjoint, settings.parameters
    if known is None and fused is not None and fused.can(back[0].tableau, back, layout.groups, z0):
        return fused, layout.packed_rate(fused.rate), fused.tensors
    if known is None and prepared.tensors is not None:
        known = prepared.tensors()
    return None, layout.packed_rate(prepared.rate), known


def _adjoint_solvers(settings: Adjoint, forward: Sequence[Solver], layout: Layout) -> Sequence[Solver]:
    """The forward pass's own; or the one asked for, in an ensemble for every member, or one for each."""
    if settings.solver is None:
        return forward
    solvers, members = members_of(settings.solver)
    if members is None:
        return tuple(solvers) * len(forward)
    if not layout.ensemble or members != len(forward):
        raise UsageError(
            f"the adjoint was given {members} solvers: it takes one, or in an ensemble one for each member"
        )
    return solvers


def _by_sample(solvers: Sequence[Solver]) -> bool:
    return isinstance(solvers[0], Adaptive) and solvers[0].control == "sample"


def members_of(solver: Solvers) -> tuple[Sequence[Solver], int | None]:
    """The solvers one by one, and how many members they are for: None for a single solver, which is no ensemble's."""
    if isinstance(solver, Solver):
        return (solver,), None
    several = isinstance(solver, Sequence) and not isinstance(solver, str)
    if not several or not all(isinstance(s, Solver) for s in solver):
        raise UsageError(
            f"a solver is a FixedStep, an OnGrid or an Adaptive, which say how precise it is, not {shown(solver)}"
        )
    if not solver or any(s.method != solver[0].method or type(s) is not type(solver[0]) for s in solver):
        raise UsageError("an ensemble needs one solver for each member, all of one method and kind")
    if isinstance(solver[0], Adaptive) and any(
        (s.control, s.max_steps) != (solver[0].control, solver[0].max_steps) for s in solver if isinstance(s, Adaptive)
    ):
        raise UsageError("the solvers of an ensemble may differ in their tolerances, not in control or max_steps")
    return tuple(solver), len(solver)


def default_times(solver: Solver) -> tuple[float, ...]:
    return (solver.times[0], solver.times[-1]) if isinstance(solver, OnGrid) else (0.0, 1.0)


def _plain(numbers: NDArray[np.int64]) -> ByGroup:
    return int(numbers) if numbers.ndim == 0 else numbers


def _tally(evaluations: NDArray[np.int64], solvers: Sequence[Solver], layout: Layout) -> Tally:
    """Evaluations by member; samples that step on their own share evaluations, so the slowest one tells."""
    members = len(solvers)
    if evaluations.ndim > layout.ensemble:
        evaluations = evaluations.max(axis=-1, initial=0)
    if members == 1:
        return int(evaluations.item())
    return np.full(members, evaluations)


def _trajectory(walked: Walked, layout: Layout) -> Trajectory:
    times = np.stack([t for t, _ in walked.recorded])
    return Trajectory(times, layout.unpack(torch.stack([z for _, z in walked.recorded]), extra=1))
