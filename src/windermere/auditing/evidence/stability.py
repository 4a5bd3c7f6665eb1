"""Linear stability: do modes that the field lets decay or grow do the same under the method's steps?

Shapes: K times, P points (independent of each other, for the field too), D = entries of one point's state.
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

ENTRIES_UP_TO = 64
"""Eigenvalues are computed for states of at most so many entries."""
TILTED = 1e-8
"""A real part counts only if it exceeds this share of the largest eigenvalue: rounding gives a pure rotation small real
parts of either sign."""
OFF_THE_BOUNDARY = 1e-10
"""By how much |R| must differ from 1: on the region's boundary rounding decides."""


@dataclass(frozen=True, kw_only=True)
class Stability:
    """Eigenvalues h lambda of the field's Jacobians against the region |R(z)| <= 1."""

    outside: float
    """Share of all eigenvalues that belong to decaying modes which the method makes grow. NaN where skipped."""
    damped: float
    """Share of all eigenvalues that belong to growing modes which the method lets decay. NaN where skipped."""
    fastest: float
    """The largest |h lambda|. NaN where skipped."""
    points: int
    """States looked at: each sampled point at each sampled time counts."""
    skipped: str | None
    """Why nothing was looked at, None where it was."""
    proves: ClassVar[str] = (
        "Where a decaying mode's h lambda lies outside the method's stability region, its step makes grow what the "
        "linearised flow lets decay; where a growing mode's lies inside, its step damps what the linearised flow lets "
        "grow, and finer solvers will show that growth."
    )
    limits: ClassVar[str] = (
        "It speaks of the field linearised at sampled states, not of whole trajectories, and a mode that decays or "
        "grows under both need not do so at the same rate."
    )


def stability_polynomial(tableau: Tableau) -> tuple[float, ...]:
    """The coefficients, lowest first, of R(z) = 1 + z b^T (I - z A)^-1 1 (Hairer and Wanner II, IV.2): a step takes
    z' = lambda z to R(h lambda) z. A is nilpotent, so the series ends with the number of stages."""
    a = np.zeros((tableau.stages, tableau.stages))
    for i, row in enumerate(tableau.a):
        a[i, :i] = row
    coefficients, power = [1.0], np.ones(tableau.stages)
    for _ in range(tableau.stages):
        coefficients.append(float(np.dot(tableau.b, power)))
        power = a @ power
    while coefficients[-1] == 0.0:  # stages that only the error estimate needs
        coefficients.pop()
    return tuple(coefficients)


def amplification(tableau: Tableau, z: Tensor) -> Tensor:
    """|R(z)| for complex z of any shape."""
    total = torch.zeros_like(z)
    for coefficient in reversed(stability_polynomial(tableau)):
        total = total * z + coefficient
    return total.abs()


@torch.inference_mode(False)
def stability(field: Rate, tableau: Tableau, states: Tensor, times: Sequence[float], h: float) -> Stability:
    """Eigenvalues at states[k], [P, ...], and times[k], for a step h: negative where time runs backwards."""
    check_states(states, times)
    size = states[0, 0].numel()
    if size > ENTRIES_UP_TO:
        reason = f"a state has {size} entries, more than the {ENTRIES_UP_TO} up to which eigenvalues are computed"
        return Stability(outside=nan, damped=nan, fastest=nan, points=0, skipped=reason)
    check_differentiable(field, times[0], states[0])
    scaled = h * _eigenvalues(field, states, times)
    rotation = TILTED * scaled.abs().amax(dim=1, keepdim=True)
    factor = amplification(tableau, scaled)
    made_to_grow = (scaled.real < -rotation) & (factor > 1 + OFF_THE_BOUNDARY)
    made_to_decay = (scaled.real > rotation) & (factor < 1 - OFF_THE_BOUNDARY)
    return Stability(
        outside=float(made_to_grow.double().mean()),
        damped=float(made_to_decay.double().mean()),
        fastest=float(scaled.abs().max()),
        points=len(scaled),
        skipped=None,
    )


def _eigenvalues(field: Rate, states: Tensor, times: Sequence[float]) -> Tensor:
    """The eigenvalues of the field's Jacobian at every state, [K * P, D]."""
    found = []
    for t, at_once in zip(times, states, strict=True):
        time = at_once.new_tensor(t)
        for z in torch.split(at_once, points_at_once(at_once[0].numel())):
            jacobian = jacobians(lambda z, time=time: field(time, z), z)  # type: ignore[misc]
            found.append(torch.linalg.eigvals(jacobian))
    return torch.cat(found)
