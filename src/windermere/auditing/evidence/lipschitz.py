"""The field's Lipschitz constant along trajectories: each Jacobian's largest singular value, by power iteration.

Shapes: K times, P points (independent of each other, for the field too). A vector here is one for each point, [P, ...].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from windermere.auditing.evidence.jacobians import (
    check_differentiable,
    check_states,
    on_own_graph,
    points_at_once,
    pull_back,
)
from windermere.errors import UsageError
from windermere.solvers.field import Rate

Linear: TypeAlias = Callable[[Tensor], Tensor]
CONVERGED = 1e-3
"""Relative change of an estimate between two iterations at which it is taken as settled."""


@dataclass(frozen=True, kw_only=True)
class Lipschitz:
    """Local Lipschitz constants L; times the step h they are what Euler's condition is about."""

    largest: float
    median: float
    points: int
    """States looked at: each sampled point at each sampled time counts."""
    iterations: int
    """The most that any of them took."""
    proves: ClassVar[str] = (
        "h L > 1 says that Euler's sufficient condition for steps that keep trajectories apart is not met."
    )
    limits: ClassVar[str] = (
        "It does not say that trajectories meet; and L, sampled along trajectories, is a lower bound of the true "
        "constant, so h L < 1 here does not show that the condition is met everywhere."
    )


@torch.inference_mode(False)
def lipschitz(field: Rate, states: Tensor, times: Sequence[float], *, iterations: int = 20, seed: int = 0) -> Lipschitz:
    """The norm of the field's Jacobian at states[k], [P, ...], and times[k]: one evaluation for each k."""
    check_states(states, times)
    check_differentiable(field, times[0], states[0])
    generator = torch.Generator().manual_seed(seed)
    norms, used = [], 0
    for t, at_once in zip(times, states, strict=True):
        for z in torch.split(at_once, points_at_once(at_once[0].numel(), evaluations=2)):
            start = torch.randn(z.shape, generator=generator, dtype=z.dtype).to(z.device)
            found, needed = _spectral_norms(field, z.new_tensor(t), z, start, iterations)
            norms.append(found)
            used = max(used, needed)
    every = torch.cat(norms)
    return Lipschitz(largest=float(every.max()), median=float(every.median()), points=len(every), iterations=used)


def _spectral_norms(field: Rate, t: Tensor, z: Tensor, v: Tensor, iterations: int) -> tuple[Tensor, int]:
    """The largest singular value of each point's Jacobian, from below, [P]; and the iterations it took."""
    with torch.enable_grad():
        push, pull = _derivative(lambda z: field(t, z), z)
        norm, used, settled = z.new_zeros(len(z)), 0, False
        while used < iterations and not settled:
            before = norm
            u, _ = _normalise(push(_normalise(v)[0]))
            v, norm = _normalise(pull(u))
            used, settled = used + 1, bool(((norm - before).abs() <= CONVERGED * norm).all())
    if not norm.isfinite().all():
        raise UsageError(f"the field's derivative is not finite at t = {float(t):.6g}, though the states are")
    return norm, used


def _derivative(function: Linear, z: Tensor) -> tuple[Linear, Linear]:
    """v -> J v and u -> J^T u from one evaluation: J^T u is linear in u, so differentiating it by u gives J."""
    leaf, rate = on_own_graph(function, z)
    if not rate.requires_grad:
        return torch.zeros_like, torch.zeros_like
    u = torch.zeros_like(rate, requires_grad=True)
    pulled = pull_back(rate, leaf, u, create_graph=True)
    return _product(pulled, u), _product(rate, leaf)


def _product(out: Tensor, into: Tensor) -> Linear:
    def product(vector: Tensor) -> Tensor:
        if not out.requires_grad:
            return torch.zeros_like(vector)
        return pull_back(out, into, vector)

    return product


def _normalise(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Each point's vector at length one, and the lengths, [P]; a zero vector stays one."""
    lengths = vectors.reshape(len(vectors), -1).norm(dim=1)
    divisors = torch.where(lengths > 0, lengths, torch.ones_like(lengths))
    return vectors / divisors.reshape(-1, *(1,) * (vectors.ndim - 1)), lengths
