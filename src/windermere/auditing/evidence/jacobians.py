"""Jacobians of maps, each point's by itself, as far as memory allows: what orientation, h L and stability look at.

Shapes: P points (independent of each other, for the field too), D = entries of one point's state.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from windermere.errors import UsageError
from windermere.solvers.field import Rate, check_rate

Map: TypeAlias = Callable[[Tensor], Tensor]
"""From states [P, ...] to states [P, ...], each point by itself."""
ROOM = 2**25
"""Numbers that may be held at once: 256 MB of doubles."""
ACTIVATIONS = 256
"""Numbers that an evaluation is reckoned to keep for each entry of the state, as the paper's image fields do."""
COPIES = 32
"""Evaluations that one backward pass sweeps through at most, where points are few and dimensions many."""


def jacobians(function: Map, z: Tensor, *, evaluations: int = 1) -> Tensor:
    """The Jacobian of a map at each point, [P, D, D]; `evaluations` of the field is what the map takes.

    One graph, then backward passes that each give a row for every point. Few points are copied, so that a pass gives
    several rows of each.
    """
    points, size = len(z), z[0].numel()
    fit = ROOM // (ACTIVATIONS * size * evaluations * points)
    copies = max(1, min(size, COPIES // points, fit))
    rows = z.new_zeros(size, points, size)
    with torch.enable_grad():
        leaf, out = on_own_graph(function, z.repeat(copies, *(1,) * (z.ndim - 1)))
        for start in range(0, size, copies) if out.requires_grad else ():
            cotangent = rows.new_zeros(copies, points, size)
            cotangent.diagonal(start, 0, 2).fill_(1.0)
            row = pull_back(out, leaf, cotangent.reshape(out.shape))
            rows[start : start + copies] = row.reshape(copies, points, size)[: size - start]
    if not rows.isfinite().all():
        raise UsageError("the field's derivative is not finite at a finite state: look for a division, root or norm")
    return rows.transpose(0, 1)


def pull_back(out: Tensor, leaf: Tensor, cotangent: Tensor | None = None, *, create_graph: bool = False) -> Tensor:
    """The cotangent of the leaf, the graph kept; zeros where the graph does not lead there."""
    (found,) = torch.autograd.grad(
        out, leaf, cotangent, retain_graph=True, create_graph=create_graph, allow_unused=True
    )
    return torch.zeros_like(leaf) if found is None else found


def on_own_graph(function: Map, z: Tensor) -> tuple[Tensor, Tensor]:
    """The states as a leaf of a graph of their own, and what the map makes of them. Nobody else's graph is entered."""
    leaf = z.detach().clone().requires_grad_()
    out = function(leaf)
    check_rate(leaf, out)
    return leaf, out


def points_at_once(size: int, evaluations: int = 1) -> int:
    """Points whose Jacobians, with their factors and the activations they take, fit into memory."""
    return max(1, ROOM // (3 * size**2 + ACTIVATIONS * size * evaluations))


def check_states(states: Tensor, times: Sequence[float]) -> None:
    if states.ndim < 2 or not states.numel() or len(states) != len(times):
        raise UsageError(f"states must be [times, points, ...] for {len(times)} times, not {list(states.shape)}")
    if not states.isfinite().all():
        bad = ~states.isfinite().reshape(*states.shape[:2], -1).all(dim=-1)
        first = times[int(bad.any(dim=1).nonzero()[0])]
        raise UsageError(
            f"{int(bad.any(dim=0).sum())} of {states.shape[1]} trajectories are not finite, from t = {first:.6g} on: "
            "leave them out, or take a smaller step"
        )


def check_differentiable(field: Rate, t: float, z: Tensor) -> None:
    """A field that hides its derivative (NumPy inside, a detach) would pass for a constant one."""
    time = z.new_tensor(t)
    with torch.enable_grad():
        leaf, rate = on_own_graph(lambda z: field(time, z), z)
        if rate.requires_grad and torch.autograd.grad(rate.sum(), leaf, allow_unused=True)[0] is not None:
            return
    with torch.no_grad():
        nudge = torch.linspace(1e-3, 2e-3, z.numel(), dtype=z.dtype, device=z.device).reshape(z.shape)
        if not torch.equal(field(time, z + nudge * (1 + z.abs())), rate):
            raise UsageError(
                "the field depends on the state, but PyTorch cannot differentiate it by that: it detaches what it "
                "returns, or computes outside of PyTorch"
            )
