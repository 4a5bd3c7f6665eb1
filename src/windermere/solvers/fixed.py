"""Walking a grid that is known beforehand: one for all, or one for each member or sample.

Shapes: N steps, S members (or samples), c stages. Those with fewer steps than the longest stay at the end (steps of
size 0).
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.errors import NonFiniteError
from windermere.solvers.dense_output import Between
from windermere.solvers.grid import Grid
from windermere.solvers.problem import Problem, Walked
from windermere.solvers.runge_kutta import combine, stage_nodes, stages
from windermere.solvers.torch_modes import is_batched


def stage_times(problem: Problem) -> list[tuple[Tensor, ...]]:
    """The times of every step's stages, as tensors made in one go."""
    nodes = problem.grid.nodes
    times = stage_nodes(problem.tableau, nodes[..., :-1], nodes[..., 1:])
    used = times[: stages_of(problem)]
    tensor = problem.layout.columns(np.moveaxis(used, -1, 0), problem.z0)
    return [row.unbind(0) for row in tensor.unbind(0)]


def step_sizes(problem: Problem) -> Sequence[float | Tensor]:
    grid = problem.grid
    if grid.nodes.ndim == 1:
        return [float(h) for h in grid.steps]
    return problem.layout.columns(grid.steps.T, problem.z0).unbind(0)


def moving_members(problem: Problem) -> Sequence[Tensor | None]:
    """For each step which members it moves; None where it moves all of them."""
    moving = problem.grid.steps.T != 0
    if moving.all():
        return [None] * len(moving)
    return problem.layout.columns(moving, problem.z0, torch.bool).unbind(0)


def stages_of(problem: Problem) -> int:
    """What a fixed step costs; some methods need one stage more to be interpolated."""
    return problem.tableau.interpolating if problem.interpolate else problem.tableau.propagating


def walk_grid(problem: Problem, between: Between | None = None) -> Walked:
    """Step through the grid. Where members differ, those that are through keep their state exactly."""
    tableau, grid, z, cost = problem.tableau, problem.grid, problem.z0, stages_of(problem)
    visited, recorded = _arrived(0, z, grid, []), [(grid.nodes[..., 0], z)] if problem.record else []
    moves = grid.steps.T != 0
    spent = cost * moves
    plan = zip(stage_times(problem), step_sizes(problem), moving_members(problem), strict=True)
    for i, (times, h, moving) in enumerate(plan):

        def step(z: Tensor, times: tuple[Tensor, ...] = times, h: float | Tensor = h) -> tuple[Tensor, list[Tensor]]:
            rates = stages(tableau, problem.rate, times, z, h)
            return combine(z, h, tableau.b, rates), rates if between else []

        stepped, rates = problem.remember(step, np.asarray(spent[i]))(z)
        if between is not None:
            between.passed(grid.nodes[..., i], grid.nodes[..., i + 1], moves[i], z, rates)
        if problem.settle is not None:
            problem.settle(h, None)
        z = stepped if moving is None else torch.where(moving, stepped, z)
        if problem.record:
            recorded.append((grid.nodes[..., i + 1], z))
        visited = _arrived(i + 1, z, grid, visited)
    return Walked.over_grid(cost, grid.taken, visited, recorded)


def _arrived(node: int, z: Tensor, grid: Grid, visited: list[Tensor]) -> list[Tensor]:
    """The states visited and this one, as often as its node was asked for: where all samples repeat their last time,
    more than once."""
    while len(visited) < len(grid.stops) and grid.stops[len(visited)] == node:
        visited.append(z)
    return visited


def is_finite(value: Tensor) -> bool:
    """Whether all entries are; if their sum is, which is quickly found, they are. Inside of vmap nobody can tell."""
    if is_batched():
        return True
    value = value.detach()
    return isfinite(float(value.sum())) or bool(value.isfinite().all())


def explain_non_finite(problem: Problem) -> NonFiniteError:
    """Walk again without gradients, and say where the first value that is not finite appeared."""
    grid, z = problem.grid, problem.z0.detach()
    if not z.isfinite().all():
        return non_finite("the initial state", grid.nodes[..., 0], ~z.isfinite(), problem)
    with torch.no_grad():
        plan = zip(
            stage_times(problem),
            step_sizes(problem),
            moving_members(problem),
            problem.layout.columns(grid.nodes.T[1:], z).unbind(0),
            strict=True,
        )
        for times, h, moving, node in plan:
            rates = stages(problem.tableau, problem.rate, times, z, h)
            stepped = combine(z, h, problem.tableau.b, rates)
            found = [*(("the field", t, k) for t, k in zip(times, rates, strict=True)), ("the state", node, stepped)]
            for what, t, value in found:
                bad = ~value.isfinite() if moving is None else ~value.isfinite() & moving
                if bad.any():
                    return non_finite(what, float(t.expand_as(bad)[bad][0]), bad, problem)
            z = stepped if moving is None else torch.where(moving, stepped, z)
    return NonFiniteError("the end state is not finite, but on a second walk it is: the field is not deterministic")


ON_THE_WAY_BACK = {
    "the initial state": "the gradient",
    "the field": "the rate of the state or of its gradient",
    "the state": "the state or its gradient",
}
"""What an adjoint's solve starts from, goes by and comes to."""


def non_finite(what: str, t: Any, bad: Tensor, problem: Problem) -> NonFiniteError:
    """How many samples are concerned: entries along the leading axes (member and sample). `t` may be by group."""
    if np.ndim(t):
        t = t[bad.reshape(*problem.layout.groups, -1).any(dim=-1).cpu().numpy()][0]
    samples = problem.layout.samples(bad)
    advice = "take a smaller step or learning rate, or look for a division or logarithm in the field"
    named = what if problem.layout.pair is None else ON_THE_WAY_BACK[what]
    return NonFiniteError(
        f"{named} is not finite at t = {t:.6g} for {int(samples.sum())} of {samples.numel()} samples: "
        f"{'look at what produced it' if what == 'the initial state' else advice}"
    )
