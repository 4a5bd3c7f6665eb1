"""Walking a grid that is known beforehand: one for all, or in an ensemble one for each member.

Shapes: N steps, S members, c stages. Members with fewer steps than the longest stay at the end (steps of size 0).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from windermere.errors import NonFiniteError
from windermere.solvers.grid import Grid
from windermere.solvers.runge_kutta import Problem, Walked, combine, propagating_stages, stages


def stage_times(problem: Problem, grid: Grid, like: Tensor) -> list[tuple[Tensor, ...]]:
    """The times of every step's stages, as tensors made in one go."""
    c = np.asarray(problem.tableau.c[: propagating_stages(problem.tableau)])
    times = grid.nodes[..., :-1, None] + grid.steps[..., None] * c
    tensor = problem.layout.columns(np.moveaxis(times, (-2, -1), (0, 1)), like)
    return [row.unbind(0) for row in tensor.unbind(0)]


def step_sizes(problem: Problem, grid: Grid, like: Tensor) -> Sequence[float | Tensor]:
    if grid.nodes.ndim == 1:
        return [float(h) for h in grid.steps]
    return problem.layout.columns(grid.steps.T, like).unbind(0)


def walk_grid(problem: Problem, grid: Grid, z: Tensor, *, record: bool = False) -> Walked:
    """Step through the grid. Where members differ, those that are through keep their state exactly."""
    tableau, cost = problem.tableau, propagating_stages(problem.tableau)
    visited, recorded = [z], [(grid.nodes[..., 0], z)] if record else []
    moving = grid.steps.T != 0
    masks = None if moving.all() else problem.layout.columns(moving, z, torch.bool).unbind(0)
    plan = zip(stage_times(problem, grid, z), step_sizes(problem, grid, z), strict=True)
    for i, (times, h) in enumerate(plan):

        def step(z: Tensor, times: tuple[Tensor, ...] = times, h: float | Tensor = h) -> Tensor:
            return combine(z, h, tableau.b, stages(tableau, problem.rate, times, z, h))

        stepped = problem.remember(step, np.asarray(cost * moving[i]))(z)
        if problem.settle is not None:
            problem.settle(h, None)
        z = stepped if masks is None else torch.where(masks[i], stepped, z)
        if record:
            recorded.append((grid.nodes[..., i + 1], z))
        if i + 1 in grid.stops:
            visited.append(z)
    return Walked.over_grid(tableau, grid.taken, visited, recorded)


def explain_non_finite(problem: Problem, grid: Grid, z: Tensor) -> NonFiniteError:
    """Walk again without gradients, and say where the first value that is not finite appeared."""
    with torch.no_grad():
        plan = zip(stage_times(problem, grid, z), step_sizes(problem, grid, z), grid.nodes.T[1:], strict=True)
        for times, h, node in plan:
            rates = stages(problem.tableau, problem.rate, times, z, h)
            for t, k in zip(times, rates, strict=True):
                if not k.isfinite().all():
                    return non_finite("the field", float(t.flatten()[0]), k, problem)
            z = combine(z, h, problem.tableau.b, rates)
            if not z.isfinite().all():
                return non_finite("the state", float(node.flat[0]), z, problem)
    return NonFiniteError("the end state is not finite, but on a second walk it is: the field is not deterministic")


def non_finite(what: str, t: float, value: Tensor, problem: Problem) -> NonFiniteError:
    """How many samples are concerned: entries along the leading axes (member and sample)."""
    bad = problem.layout.samples(~value.isfinite())
    return NonFiniteError(
        f"{what} is not finite at t = {t:.6g} for {int(bad.sum())} of {bad.numel()} samples: "
        "take a smaller step or learning rate, or look for a division or logarithm in the field"
    )
