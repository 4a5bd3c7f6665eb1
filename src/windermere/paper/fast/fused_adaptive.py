"""A whole adaptive solve of the sphere networks' field on the GPU: one kernel there, one back.

The host waits once, for what the solve cost: only then is it known that it succeeded. The same inputs give the same
bits.

Shapes: S members, N accepted steps (room for them), K stages that propagate, B samples, d points, C channels. *Weights*
as in fused.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.cpu.native import DONE, FULL
from windermere.fast.cpu.native_call import is_graded
from windermere.fast.cpu.native_plan import table
from windermere.paper.arithmetic import FUSION
from windermere.paper.fast.fused import Precision, Weights, fits
from windermere.solvers import Adaptive, Problem, Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.gradients import differentiable_once

SAMPLES_UP_TO, STAGES_UP_TO = 256, 7
"""What one program can keep on chip."""
STEPS_AT_FIRST = 64
"""Accepted steps that a solve has room for; one that takes more is begun again with four times the room."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the kernels run: there with a member's whole batch in one program, back by tiles of samples."""

    precision: Precision = "tf32x3"
    rows_of_a_warp: int = 16
    """On the way there, between 4 warps and 8."""
    tile_back: int = 16
    warps_back: int = 4


DEFAULT = Launch()


class Adapted(NamedTuple):
    """An adaptive solve, done; each of the costs by member."""

    end: Tensor
    costs: Sequence[NDArray[np.int64]]
    """Evaluations, steps accepted and rejected."""


def can_adapt(problem: Problem, weights: Weights) -> bool:
    """Whether the kernels take this solve: on a GPU, in float32, small enough, and with members as groups."""
    z, tableau = problem.z0, problem.tableau
    if not fits(z, weights):
        return False
    by_member = problem.layout.groups == z.shape[:-2] and problem.adaptive[0].control == "batch"
    small = z.shape[-2] <= SAMPLES_UP_TO and tableau.stages <= STAGES_UP_TO
    return by_member and small and tableau.stages - tableau.propagating == tableau.fsal


def adapt_on_device(problem: Problem, weights: Weights, launch: Launch = DEFAULT) -> Adapted | None:
    """A solve with steps of each member's own; None where something is out of the ordinary."""
    z = problem.z0
    if z.ndim == 2:  # a model alone, without the member axis
        alone = _adapt(problem, z.unsqueeze(0), [w.unsqueeze(0) for w in weights], launch)
        return alone and alone._replace(end=alone.end.squeeze(0))
    return _adapt(problem, z, weights, launch)


def _adapt(problem: Problem, z: Tensor, weights: Weights, launch: Launch) -> Adapted | None:
    keep, room = is_graded(z, weights), STEPS_AT_FIRST
    given = z.detach().contiguous(), [w.detach().contiguous() for w in weights]
    while True:
        solve = _Solve.of(problem.tableau, z, launch, room if keep else 0)
        end = solve.there(problem.adaptive, problem.ends, *given)
        accepted, rejected, evaluations, status = solve.found.cpu().numpy().astype(np.int64)
        if not (status == FULL).any():
            break
        room *= 4
    if (status != DONE).any():
        return None
    if keep:
        end = cast(Tensor, _OnTape.apply(solve, [end], z, *weights))  # type: ignore[no-untyped-call]
    return Adapted(end, (evaluations, accepted, rejected))


class _OnTape(torch.autograd.Function):
    """A solve that has been done; the backward pass is the exact gradient of its accepted steps."""

    @staticmethod
    def forward(ctx: Any, solve: "_Solve", end: Sequence[Tensor], z: Tensor, *weights: Tensor) -> Tensor:
        ctx.solve = solve  # which must not hold the end, as the end holds it
        ctx.save_for_backward(*weights)  # so that weights changed in between are an error
        return end[0]

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *ctx.solve.back(grads[0].contiguous(), [w.contiguous() for w in ctx.saved_tensors])


@dataclass(frozen=True)
class _Solve:
    """A solve's shape and what it leaves behind, there and back."""

    tableau: Tableau
    launch: Launch
    inputs: Tensor
    """[S, N, K, B, d]: of the accepted steps' stages."""
    sizes: Tensor
    """[S, N]."""
    found: Tensor
    """[4, S]: accepted and rejected steps, evaluations, status."""

    @classmethod
    def of(cls, tableau: Tableau, z: Tensor, launch: Launch, room: int) -> "_Solve":
        members = len(z)
        inputs = z.new_empty(members, room, tableau.propagating, *z.shape[1:])
        sizes, found = z.new_empty(members, room), z.new_empty(4, members, dtype=torch.int32)
        return cls(tableau, launch, inputs, sizes, found)

    def there(self, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, weights: Weights) -> Tensor:
        from windermere.paper.fast.adaptive_kernels import adapt_forward

        end, samples = torch.empty_like(z), z.shape[1]
        tile = max(16, 1 << (samples - 1).bit_length())
        tolerances = tuple((s.rtol, s.atol) for s in solvers)
        limits = _limits(tolerances, (times[0], times[-1], smallest_step(times, z.dtype)), z.device)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            adapt_forward[(len(z),)](
                *(z, end, self.inputs, self.sizes, self.found, _table(self.tableau, z.device), limits),
                *weights,
                *(samples, self.sizes.shape[1], min(solvers[0].max_steps, 2**31 - 1)),
                FSAL=self.tableau.fsal,
                ORDER=self.tableau.embedded_order + 1,
                SAFETY=SAFETY,
                MOST_GROWTH=MOST_GROWTH,
                MOST_SHRINKING=MOST_SHRINKING,
                ROUNDING=torch.finfo(z.dtype).eps,
                TILE=tile,
                KEEP=self.sizes.shape[1] > 0,
                num_warps=min(8, max(4, tile // self.launch.rows_of_a_warp)),
                **self._constants(weights),
            )
        return end

    def back(self, on_end: Tensor, weights: Weights) -> tuple[Tensor, ...]:
        """The cotangents of the start and of the weights."""
        from windermere.paper.fast.adaptive_kernels import adapt_backward

        (members, samples, _), tile = on_end.shape, self.launch.tile_back
        tiles, entries = -(-samples // tile), [w.numel() for w in weights]
        on_start, shares = torch.empty_like(on_end), on_end.new_empty(tiles, sum(entries))
        with torch.cuda.device_of(on_end):  # type: ignore[no-untyped-call]
            adapt_backward[(members, tiles)](
                *(on_end, on_start, shares, self.inputs, self.sizes, self.found, _table(self.tableau, on_end.device)),
                *weights,
                *(samples, self.sizes.shape[1]),
                TILE=tile,
                num_warps=self.launch.warps_back,
                **self._constants(weights),
            )
        gradients = shares.sum(dim=0).split_with_sizes(entries)
        return on_start, *(g.view(w.shape) for g, w in zip(gradients, weights, strict=True))

    def _constants(self, weights: Weights) -> dict[str, Any]:
        channels = weights[0].shape[1]
        return {
            "STAGES": self.tableau.stages,
            "KEPT": self.tableau.propagating,
            "POINTS": self.inputs.shape[-1],
            "CHANNELS": channels,
            "WIDTH": max(32, 1 << (channels - 1).bit_length()),
            "PRECISION": self.launch.precision,
            "num_stages": 1,  # nothing to load ahead: all is on chip
            **FUSION,
        }


@lru_cache(maxsize=16)
def _table(tableau: Tableau, device: torch.device) -> Tensor:
    """[stages + 2, stages]: a, b, and the weights of the error. Kept, as a copy to the device waits for it."""
    return torch.tensor(table(tableau), device=device)


@lru_cache(maxsize=64)
def _limits(
    tolerances: tuple[tuple[float, float], ...], times: tuple[float, float, float], device: torch.device
) -> Tensor:
    """[S, 5]: begin, end, smallest step, rtol, atol. Kept likewise."""
    return torch.tensor([(*times, *own) for own in tolerances], dtype=torch.float64, device=device)
