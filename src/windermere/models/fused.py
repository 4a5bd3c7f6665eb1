"""A whole fixed-step solve of the dense field on the GPU: one kernel there, one back.

Nothing here waits for the device, so a solve can be captured in a CUDA graph; sizes and counts may be changed in place
between two replays. The same inputs give the same bits: shares of the gradients are added in a fixed order.

Shapes: S members, N steps (the longest member's, or more), B samples, d points, H = hidden width, P parameters of a
member; layers are W [S, in, out], b [S, 1, out].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.solvers import Tableau
from windermere.solvers.grid import Grid
from windermere.solvers.runge_kutta import propagating_stages

POINTS_UP_TO, HIDDEN_UP_TO = 4, 64
"""What a program can keep on chip."""
Precision: TypeAlias = Literal["tf32x3", "ieee", "tf32"]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the kernels run. The paper's fields are small: a tile of samples is the work of a few warps."""

    precision: Precision = "tf32x3"
    """Of the products with W2: float32 as three products of the tensor cores, float32 without them, or one product
    with ten bits. All else is float32."""
    tile: int = 16
    warps: int = 4
    warps_back: int = 4


DEFAULT = Launch()


def can_walk(z: Tensor, hidden: int) -> bool:
    """Whether the kernels take this state: on a GPU, in float32, and small enough."""
    small = z.shape[-1] <= POINTS_UP_TO and hidden <= HIDDEN_UP_TO
    return z.is_cuda and z.dtype == torch.float32 and small and z.numel() > 0 and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def walk_on_device(tableau: Tableau, grid: Grid, z: Tensor, layers: tuple[Tensor, ...]) -> Tensor:
    """z at the end of a grid, for an ensemble or for a model alone, without the member axis."""
    if z.ndim == 2:
        return walk_on_device(tableau, grid, z.unsqueeze(0), tuple(x.unsqueeze(0) for x in layers)).squeeze(0)
    return fused_walk(tableau, *steps_on_device(grid, z), z, layers)


def steps_on_device(grid: Grid, z: Tensor) -> tuple[Tensor, Tensor]:
    """Every member's step sizes [S, N] and number of steps [S]."""
    sizes = np.broadcast_to(grid.steps, (len(z), grid.steps.shape[-1]))
    counts = np.broadcast_to(grid.taken, len(z))
    return torch.tensor(sizes, dtype=z.dtype, device=z.device), torch.tensor(counts, dtype=torch.int32, device=z.device)


def fused_walk(
    tableau: Tableau, sizes: Tensor, counts: Tensor, z: Tensor, layers: tuple[Tensor, ...], launch: Launch = DEFAULT
) -> Tensor:
    """z [S, B, d] after counts [S] (int32) steps of sizes [S, N]; sizes beyond a member's count are not read."""
    keep = torch.is_grad_enabled()
    return cast(Tensor, _FusedWalk.apply(tableau, launch, keep, sizes, counts, z, *layers))  # type: ignore[no-untyped-call]


class _FusedWalk(torch.autograd.Function):
    """Keeps the state before each step; the way back computes the stages again."""

    @staticmethod
    def forward(
        ctx: Any,
        tableau: Tableau,
        launch: Launch,
        keep: bool,
        sizes: Tensor,
        counts: Tensor,
        z: Tensor,
        *layers: Tensor,
    ) -> Tensor:
        z, layers = z.contiguous(), tuple(x.contiguous() for x in layers)
        members, samples, points = z.shape
        ends = torch.empty_like(z)
        states = z.new_empty(members, sizes.shape[1], samples, points) if keep else ends
        _run("walk_forward", launch, tableau, (z, ends, states), sizes, counts, layers, KEEP=keep)
        if keep:
            ctx.tableau, ctx.launch = tableau, launch
            ctx.save_for_backward(states, sizes, counts, *layers)
        return ends

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        states, sizes, counts, *layers = ctx.saved_tensors
        on_ends, launch = grads[0].contiguous(), ctx.launch
        widths = [x[0].numel() for x in layers]
        on_starts = torch.empty_like(on_ends)
        shares = on_ends.new_empty(*_programs(on_ends, launch), sum(widths))
        _run("walk_backward", launch, ctx.tableau, (on_ends, on_starts, shares, states), sizes, counts, layers)
        gradients = shares.sum(dim=1).split_with_sizes(widths, dim=1)
        return *(None,) * 5, on_starts, *(g.view(x.shape) for g, x in zip(gradients, layers, strict=True))


def _programs(z: Tensor, launch: Launch) -> tuple[int, int]:
    """One for each member and tile of samples."""
    return z.shape[0], -(-z.shape[1] // launch.tile)


def _run(
    name: str,
    launch: Launch,
    tableau: Tableau,
    tensors: Sequence[Tensor],
    sizes: Tensor,
    counts: Tensor,
    layers: Sequence[Tensor],
    **more: Any,
) -> None:
    """Run a kernel over all members and samples; the first of the tensors is a state. Triton is imported only here."""
    from windermere.models import kernels

    z, stages, (points, hidden) = tensors[0], propagating_stages(tableau), layers[0].shape[1:]
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        getattr(kernels, name)[_programs(z, launch)](
            *(*tensors, sizes, counts, *layers),
            *(z.shape[1], sizes.shape[1]),
            ROWS=(*tableau.a[:stages], tableau.b[:stages]),
            STAGES=stages,
            POINTS=points,
            HIDDEN=hidden,
            WIDTH=max(16, 1 << (hidden - 1).bit_length()),
            TILE=launch.tile,
            PRECISION=launch.precision,
            num_warps=launch.warps if name == "walk_forward" else launch.warps_back,
            **more,
        )
