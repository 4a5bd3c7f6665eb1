"""A whole fixed-step solve of the image networks' field on the GPU, by kernels that keep its hidden layers on chip.

An evaluation is a few launches, and the loop over steps is Python's. Nothing here waits for the device or looks at
numbers that lie there: it can be captured in a CUDA graph, and the sizes of `Steps` may be changed in place between two
replays. The same inputs give the same bits: shares of the gradients are added in a fixed order.

Shapes: B images of H x L pixels, c channels, w hidden ones, N steps of s stages. A *state* is [B, c, H, L]. *Weights*
are those of Conv2d(c, w, 1), Conv2d(w, w, 3, padding=1) and Conv2d(w, c, 1), each with its bias.
"""

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from windermere.errors import UsageError
from windermere.paper.fast.fused import Weights, has_triton
from windermere.paper.fast.image_evaluation import PATCH, Evaluation, Hidden, Launch, Second, Shares, Tile
from windermere.solvers import Tableau
from windermere.solvers.gradients import differentiable_once
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.torch_modes import is_looked_through

__all__ = ["Launch", "Tile", "can_walk_images", "image_walk", "step_sizes", "tuned"]

CHANNELS_UP_TO, WIDTH_UP_TO = 4, 128
"""A patch has room for so many channels, and an accumulator in registers for so many hidden channels."""
HOPPER = (9, 0)
DEFAULT = Launch()
TUNED = {96: Launch(back=Tile(columns=64, stages=3))}
"""Launches that were faster on an H200 than the default, which is tuned for 128 hidden channels, by the number of
hidden channels; measured by benchmarks/gpu_image_kernel.py."""


def tuned(weights: Weights, hidden: Hidden) -> Launch:
    """How to walk a field with these weights."""
    return replace(TUNED.get(weights[0].shape[-4], DEFAULT), hidden=hidden)


def can_walk_images(z: Tensor, weights: Weights) -> bool:
    """Whether the kernels take solves from here: on a GPU of Hopper's kind or later, in float32, of the paper's field,
    and small enough. Any explicit method will do."""
    if z.ndim not in (4, 5) or z.numel() == 0 or not has_triton() or is_looked_through():
        return False
    exact = all(x.is_cuda and x.dtype == torch.float32 for x in (z, *weights))
    if not exact or torch.cuda.get_device_capability(z.device) < HOPPER:
        return False
    return _is_papers(z, weights) and _is_small(z, weights)


def _is_papers(z: Tensor, weights: Weights) -> bool:
    """Three layers, of 1x1, 3x3 and 1x1, from a state to its rate, with the state's members."""
    if len(weights) != 6 or weights[0].ndim != z.ndim or weights[0].shape[:-4] != z.shape[:-4]:
        return False
    channels, hidden = z.shape[-3], weights[0].shape[-4]
    shapes = [(hidden, channels, 1, 1), (hidden, hidden, 3, 3), (channels, hidden, 1, 1)]
    return all(tuple(w.shape[-4:]) == shape for w, shape in zip(weights[::2], shapes, strict=True))


def _is_small(z: Tensor, weights: Weights) -> bool:
    """Whether the field fits into registers, and its levels and patches into offsets of 32 bits."""
    images, channels, height, length = z.shape[-4:]
    largest = images * max(height * length * WIDTH_UP_TO, (height + 2) * (length + 2) * PATCH)
    return channels <= CHANNELS_UP_TO and weights[0].shape[-4] <= WIDTH_UP_TO and largest < 2**30


def image_walk(tableau: Tableau, grid: Grid | Steps, z: Tensor, weights: Weights, launch: Launch = DEFAULT) -> Tensor:
    """z at the end of a grid. An ensemble, z [S, B, c, H, L] and weights with a member axis, goes member by member."""
    if z.ndim == 4:
        return _walk_alone(tableau, step_sizes(grid, 0, z), z, weights, launch)
    own = [[w[s] for w in weights] for s in range(len(z))]
    return torch.stack([_walk_alone(tableau, step_sizes(grid, s, z), z[s], own[s], launch) for s in range(len(z))])


def step_sizes(grid: Grid | Steps, member: int, like: Tensor) -> Tensor:
    """A member's [N], on the device. Runs of equal steps are filled in there: copying them would make the host wait."""
    if isinstance(grid, Steps):
        sizes = grid.sizes.reshape(-1, grid.sizes.shape[-1])
        return sizes[member if len(sizes) > 1 else 0]
    steps = grid.steps.astype(np.float32)
    own = steps if steps.ndim == 1 else steps[member if len(steps) > 1 else 0]
    runs = [like.new_full((len(list(run)),), float(h), dtype=torch.float32) for h, run in groupby(own)]
    return torch.cat(runs) if runs else like.new_empty(0, dtype=torch.float32)


def _walk_alone(tableau: Tableau, sizes: Tensor, z: Tensor, weights: Weights, launch: Launch) -> Tensor:
    check_size(z, weights)
    if len(sizes) == 0:
        return z.clone()
    keep = torch.is_grad_enabled()
    return cast(Tensor, _ImageWalk.apply(tableau, launch, keep, sizes, z, *weights))  # type: ignore[no-untyped-call]


def check_size(z: Tensor, weights: Weights) -> None:
    if z.shape[1] > CHANNELS_UP_TO or weights[0].shape[0] > WIDTH_UP_TO:
        raise UsageError(f"the image kernels take up to {CHANNELS_UP_TO} channels and a width of {WIDTH_UP_TO}")


class _ImageWalk(torch.autograd.Function):
    """Keeps every stage's input, and of its second hidden layer what `Launch.hidden` says."""

    @staticmethod
    def forward(
        ctx: Any, tableau: Tableau, launch: Launch, keep: bool, sizes: Tensor, z: Tensor, *weights: Tensor
    ) -> Tensor:
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            walk = Evaluation(launch, z, weights)
            kept = _OnGrid.room_for(walk, len(sizes), tableau.propagating, keep)
            end = _there(tableau, sizes, z, walk, kept)
        if keep:
            ctx.tableau, ctx.launch = tableau, launch
            ctx.save_for_backward(sizes, kept.inputs, *kept.hidden, *weights)
        return end

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        sizes, inputs, bits, levels, scales, *weights = ctx.saved_tensors
        kept = _OnGrid(inputs, (bits, levels, scales), ctx.tableau.propagating)
        return *(None,) * 4, *pulled_back(ctx.tableau, ctx.launch, sizes, grads[0], weights, kept)


class Kept(Protocol):
    """What was kept of each evaluation for the way back; an evaluation is stage i of step n."""

    @property
    def stages(self) -> int: ...

    def input(self, n: int, i: int) -> Tensor: ...

    def second(self, n: int, i: int) -> Second | None:
        """What was kept of the second hidden layer at stage i of step n."""


def pulled_back(
    tableau: Tableau, launch: Launch, sizes: Tensor, on_end: Tensor, weights: Weights, kept: Kept
) -> tuple[Tensor, ...]:
    """The cotangents of the start and of the weights."""
    with torch.cuda.device_of(on_end):  # type: ignore[no-untyped-call]
        walk = Evaluation(launch, on_end, weights)
        sums = Shares(walk)
        on_start = _back(tableau, sizes, on_end, walk, kept, sums)
        gradients = sums.gradients()
    return on_start, *(g.view(w.shape) for g, w in zip(gradients, weights, strict=True))


@dataclass(frozen=True)
class _OnGrid:
    """What is kept of each evaluation on a fixed grid, in a few large tensors."""

    inputs: Tensor
    """[N s + 1, a state], or with room for two alone: a step's start and one of its stages."""
    hidden: Second
    """The second hidden layers, each tensor with a leading axis for evaluations, which may be empty."""
    stages: int
    whole: bool = True
    """Whether all inputs are kept."""

    @classmethod
    def room_for(cls, walk: Evaluation, steps: int, stages: int, keep: bool) -> "_OnGrid":
        evaluations = steps * stages
        hidden = walk.new_hidden(evaluations if keep and walk.source != "recomputed" else 0)
        # The last step's end is the start of one more.
        return cls(walk.new_states(evaluations + 1 if keep else 2), hidden, stages, keep)

    def input(self, n: int, i: int) -> Tensor:
        """The input of stage i of step n; the first stage's input is the step's start."""
        return self.inputs[n * self.stages + i if self.whole else min(i, 1)]

    def second(self, n: int, i: int) -> Second | None:
        bits, levels, scales = self.hidden
        e = n * self.stages + i
        return (bits[e], levels[e], scales[e]) if len(bits) else None


def _there(tableau: Tableau, sizes: Tensor, z: Tensor, walk: Evaluation, kept: _OnGrid) -> Tensor:
    """Every stage's input is combined from the rates before it, and the next step's first from all."""
    stages, patches = kept.stages, walk.new_patches()
    rates = walk.new_states(stages)
    kept.input(0, 0).copy_(z)
    walk.combine(kept.input(0, 0), rates, sizes, 0, (), kept.input(0, 0), patches)
    for n in range(len(sizes)):
        for i in range(stages):
            walk.forward(patches, rates[i], kept.second(n, i))
            last = i + 1 == stages
            row, out = (tableau.b[:stages], kept.input(n + 1, 0)) if last else (tableau.a[i + 1], kept.input(n, i + 1))
            walk.combine(kept.input(n, 0), rates, sizes, n, row, out, patches)
    return kept.input(len(sizes), 0).clone()


def _back(tableau: Tableau, sizes: Tensor, on_end: Tensor, walk: Evaluation, kept: Kept, sums: Shares) -> Tensor:
    """The cotangents of a step's stage inputs, from the last on; that of the first is added to those of the others and
    of the step's end, and all together are that of the state before it."""
    stages, patches, on_patches = kept.stages, walk.new_patches(), walk.new_patches()
    terms = walk.new_states(stages + 1)  # of the stages' inputs (the first's is not used), and of the step's end
    terms[stages].copy_(on_end)
    on_rate, (bits, levels, scales) = torch.empty_like(terms[0]), walk.new_hidden(1)
    for n in reversed(range(len(sizes))):
        for i in reversed(range(stages)):
            hidden, x = kept.second(n, i) or (bits[0], levels[0], scales[0]), kept.input(n, i)
            row = (*(0.0,) * (i + 1), *(tableau.a[j][i] for j in range(i + 1, stages)), tableau.b[i])
            walk.combine(None, terms, sizes, n, row, on_rate, on_patches, (x, patches))
            walk.lower_gradient(on_rate, patches, hidden, sums)
            if i == 0 and stages > 1:
                terms[stages].add_(terms[1:stages].sum(dim=0))
            walk.backward(on_patches, hidden[0], patches, terms[i or stages], sums, add=i == 0)
            walk.mix_gradient(patches, on_patches, hidden[0], sums)
    return terms[stages].clone()
