"""Orientation: a flow keeps it in any dimension, so a step map whose determinant is negative is no flow's.

Shapes: N steps, P points (independent of each other, for the field too), D = entries of one point's state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.jacobians import check_differentiable, check_states, jacobians, points_at_once
from windermere.solvers import Tableau
from windermere.solvers.field import Rate
from windermere.solvers.runge_kutta import combine, stage_nodes, stages

EXTREME = 700.0
"""Logarithms of determinants are clipped to this size: exp(+-700) is still a double."""


@dataclass(frozen=True, kw_only=True)
class Orientation:
    """The determinants of a method's steps."""

    negative: int
    """Steps that turn orientation around."""
    uncertain: int
    """Steps whose determinant is zero, or negative but so near zero that rounding may have made it so."""
    points: int
    """Steps looked at: each sampled point at each sampled step of its walk counts."""
    smallest: float
    """The smallest determinant, sign included; its size is clipped to what a double holds. NaN where skipped."""
    dimension: int
    skipped: str | None
    """Why nothing was looked at, None where it was."""
    proves: ClassVar[str] = (
        "A flow keeps orientation, so a step with a negative determinant is a step that no flow can take."
    )
    limits: ClassVar[str] = (
        "Positive determinants prove nothing, and only sampled points along the walked trajectories were looked at."
    )


@torch.inference_mode(False)
def step_orientation(
    field: Rate,
    tableau: Tableau,
    states: Tensor,
    times: Sequence[float],
    *,
    limit: int = 4096,
    steps: Sequence[int] | None = None,
) -> Orientation:
    """Determinants of the steps from states[n], [P, ...], at times[n] to times[n + 1]: of all N, or of those named."""
    check_states(states, times)
    size = states[0, 0].numel()
    if size > limit:
        reason = f"a state has {size} entries, more than the {limit} up to which determinants are computed"
        return Orientation(negative=0, uncertain=0, points=0, smallest=nan, dimension=size, skipped=reason)
    taken = range(len(times) - 1) if steps is None else steps
    check_differentiable(field, times[taken[0]], states[taken[0]])
    parts = [
        step_determinants(field, tableau, z, times[n], times[n + 1])
        for n in taken
        for z in torch.split(states[n], points_at_once(size, tableau.propagating))
    ]
    sign, size_log, certain = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return Orientation(
        negative=int(((sign < 0) & certain).sum()),
        uncertain=int(((sign <= 0) & ~certain).sum()),
        points=len(sign),
        smallest=_smallest(sign, size_log),
        dimension=size,
        skipped=None,
    )


def step_determinants(
    field: Rate, tableau: Tableau, z: Tensor, start: float, end: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The determinant of one step's Jacobian at each point: its sign, the logarithm of its size, and whether a sign
    that is not positive is certain. All [P]."""
    count = tableau.propagating
    nodes = stage_nodes(tableau, np.asarray(float(start)), np.asarray(float(end)))[:count]
    times, h = torch.as_tensor(nodes, dtype=z.dtype, device=z.device).unbind(0), float(end) - float(start)

    def step(z: Tensor) -> Tensor:
        return combine(z, h, tableau.b, stages(tableau, field, times, z, h))

    jacobian = jacobians(step, z, evaluations=count)
    sign, size_log = torch.linalg.slogdet(jacobian)
    certain = torch.ones_like(sign, dtype=torch.bool)
    if (doubtful := sign <= 0).any():
        certain[doubtful] = _invertible(jacobian[doubtful])
    return sign, size_log, certain


def _invertible(matrices: Tensor) -> Tensor:
    """Whether no rounding could make them singular: the nearest singular matrix is 1 / |J^-1| away, and elimination
    errs by about D eps |J| (Higham, Accuracy and Stability, theorem 9.3)."""
    eps, size = torch.finfo(matrices.dtype).eps, matrices.shape[-1]
    inverse, info = torch.linalg.inv_ex(matrices)
    rounding = size * eps * torch.linalg.matrix_norm(matrices) * torch.linalg.matrix_norm(inverse)
    return torch.logical_and(info == 0, rounding < 1)


def _smallest(sign: Tensor, size_log: Tensor) -> float:
    """sign * exp(size_log) of the smallest determinant; clipped, so that no sign is lost where a double underflows."""
    return float((sign.double() * size_log.double().clamp(-EXTREME, EXTREME).exp()).min())
