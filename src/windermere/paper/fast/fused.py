"""A whole fixed-step solve of the sphere networks' field on the GPU: one kernel there, one back.

Nothing in `fused_walk` waits for the device: it can be captured in a CUDA graph, and sizes and counts may be changed in
place between two replays. The same inputs give the same bits: shares of the gradients are added in a fixed order.

Shapes: S members, N steps (the longest member's, or more), B samples, d points, C channels, P parameters of a member.
*Weights* are those of Conv1d(1, C, 1), Conv1d(C, C, 3, padding=1) and Conv1d(C, 1, 1), each with its bias, and with a
leading member axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from windermere.paper.arithmetic import FUSION
from windermere.solvers import Tableau
from windermere.solvers.gradients import differentiable_once
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.torch_modes import is_looked_through

Weights: TypeAlias = Sequence[Tensor]
POINTS_UP_TO, CHANNELS_UP_TO, STAGES_UP_TO = 4, 32, 4
"""The largest field and method that a program can keep on chip and that compile in a matter of seconds."""
Precision: TypeAlias = Literal["tf32x3", "ieee", "tf32"]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the kernels run. The paper's fields are small: a tile of samples is the work of a few warps."""

    precision: Precision = "tf32x3"
    """How the mixing convolution is computed: float32 as three products of the tensor cores ("tf32x3"), float32 without
    tensor cores ("ieee"), or one product of the tensor cores, with ten bits ("tf32"). All else is float32."""
    tile: int = 16
    warps: int = 4
    warps_back: int = 4


DEFAULT = Launch()


def can_walk(tableau: Tableau, z: Tensor, weights: Weights) -> bool:
    """Whether the kernels take this solve: on a GPU, in float32, and small enough."""
    return fits(z, weights) and tableau.propagating <= STAGES_UP_TO


def fits(z: Tensor, weights: Weights) -> bool:
    """Whether a program has room for this state and these weights, and they go together: in float32 on one GPU, and
    with the same members, as kernels read whatever lies where weights should. PyTorch cannot look into one."""
    if not z.is_cuda or not has_triton() or is_looked_through():
        return False
    first, like = weights[0], (torch.float32, z.device)
    together = z.ndim == first.ndim - 1 and z.shape[:-2] == first.shape[:-3] and z.numel() > 0
    plain = all((x.dtype, x.device) == like for x in (z, *weights))
    return together and plain and z.shape[-1] <= POINTS_UP_TO and first.shape[-3] <= CHANNELS_UP_TO


@cache
def has_triton() -> bool:
    """Whether there is a Triton that the kernels were tried with: 3.6, which came with PyTorch 2.11, or newer."""
    if find_spec("triton") is None:
        return False
    major, minor = import_module("triton").__version__.split(".")[:2]
    return (int(major), int(minor)) >= (3, 6)


def walk_on_device(tableau: Tableau, grid: Grid | Steps, z: Tensor, weights: Weights) -> Tensor:
    """z at the end of a grid, for an ensemble or for a model alone, without the member axis."""
    if z.ndim == 2:
        return walk_on_device(tableau, grid, z.unsqueeze(0), [w.unsqueeze(0) for w in weights]).squeeze(0)
    return fused_walk(tableau, *steps_on_device(grid, z), z, weights)


def steps_on_device(grid: Grid | Steps, z: Tensor) -> Steps:
    """Every member's step sizes and number of steps."""
    if isinstance(grid, Steps):
        return grid
    sizes = np.broadcast_to(grid.steps, (len(z), grid.steps.shape[-1]))
    counts = np.broadcast_to(grid.taken, len(z))
    return Steps(
        torch.tensor(sizes, dtype=z.dtype, device=z.device), torch.tensor(counts, dtype=torch.int32, device=z.device)
    )


def fused_walk(
    tableau: Tableau, sizes: Tensor, counts: Tensor, z: Tensor, weights: Weights, launch: Launch = DEFAULT
) -> Tensor:
    """z [S, B, d] after counts [S] (int32) steps of sizes [S, N]; sizes beyond a member's count are not read."""
    keep = torch.is_grad_enabled()
    return cast(Tensor, _FusedWalk.apply(tableau, launch, keep, sizes, counts, z, *weights))  # type: ignore[no-untyped-call]


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
        *weights: Tensor,
    ) -> Tensor:
        z, weights = z.contiguous(), tuple(w.contiguous() for w in weights)
        members, samples, points = z.shape
        ends = torch.empty_like(z)
        states = z.new_empty(members, sizes.shape[1], samples, points) if keep else ends
        _run("walk_forward", launch, tableau, (z, ends, states), sizes, counts, weights, KEEP=keep)
        if keep:
            ctx.tableau, ctx.launch = tableau, launch
            ctx.save_for_backward(states, sizes, counts, *weights)
        return ends

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        states, sizes, counts, *weights = ctx.saved_tensors
        on_ends, launch = grads[0].contiguous(), ctx.launch
        on_starts = torch.empty_like(on_ends)
        entries = [w.numel() for w in weights]
        shares = on_ends.new_empty(_programs(on_ends, launch)[1], sum(entries))
        _run("walk_backward", launch, ctx.tableau, (on_ends, on_starts, shares, states), sizes, counts, weights)
        gradients = shares.sum(dim=0).split_with_sizes(entries)
        return *(None,) * 5, on_starts, *(g.view(w.shape) for g, w in zip(gradients, weights, strict=True))


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
    weights: Weights,
    **more: Any,
) -> None:
    """Run a kernel over all members and samples; the first of the tensors is a state. Triton is imported only here."""
    from windermere.paper.fast import kernels

    z, stages, channels = tensors[0], tableau.propagating, weights[0].shape[1]
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        getattr(kernels, name)[_programs(z, launch)](
            *(*tensors, sizes, counts, *weights),
            *(z.shape[1], sizes.shape[1]),
            ROWS=(*tableau.a[:stages], tableau.b[:stages]),
            STAGES=stages,
            POINTS=z.shape[2],
            CHANNELS=channels,
            WIDTH=max(32, 1 << (channels - 1).bit_length()),
            TILE=launch.tile,
            PRECISION=launch.precision,
            num_warps=launch.warps if name == "walk_forward" else launch.warps_back,
            num_stages=1,  # nothing to load ahead: all is on chip
            **FUSION,
            **more,
        )
