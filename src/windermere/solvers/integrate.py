"""From a state through times: by the field's own walk where it brings one, over a grid, or with adaptive steps."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from windermere.solvers.adaptive import walk_adaptively
from windermere.solvers.dense_output import Between
from windermere.solvers.field import Adapt, Walk
from windermere.solvers.fixed import explain_non_finite, is_finite, walk_grid
from windermere.solvers.grid import Grid, make_grid
from windermere.solvers.runge_kutta import Problem, Walked
from windermere.solvers.solver import Adaptive, Solver


def is_plain(solvers: Sequence[Solver], times: Sequence[float], record: bool) -> bool:
    """Whether a field's own walk can take a solve: over a fixed grid, to its end, of which nothing else is wanted."""
    return len(times) == 2 and not record and not isinstance(solvers[0], Adaptive)


def integrate(
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
    plain = is_plain(solvers, times, record) and grid.nodes.ndim < z.ndim  # else members of one sample each
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
