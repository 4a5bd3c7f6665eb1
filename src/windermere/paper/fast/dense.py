"""The sphere networks' field as three dense layers, and a whole fixed-step solve of it as one differentiable function.

A Conv1d over d points is a banded matrix: built once per solve, it turns an evaluation into three products. The walk
goes back with a hand-derived gradient, so autograd sees one node instead of thousands.

Shapes: S members, B samples, d points, H = hidden width, M = steps x stages. Layers are W [S, in, out], b [S, 1, out];
for a single model the member axis is left out everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.solvers import Tableau
from windermere.solvers.field import Rate, Walk
from windermere.solvers.gradients import differentiable_once
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.runge_kutta import step_through

Layers: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""W1, b1, W2, b2, W3, b3."""
BLOCK = 131_072
"""Hidden values of a block: half a megabyte in float32 for each of the four layers' worth that it touches."""
Sizes: TypeAlias = Sequence[float | Tensor]


def banded(weight: Tensor, points: int) -> Tensor:
    """A Conv1d's weight [..., out, in, width] with padding width // 2, as a matrix [..., points * in, points * out].

    Entry (q, i), (p, o) is the tap q - p from the middle; entries are ordered by point, then channel. Taps are put in
    place by a product: several times faster than indexing, forwards and backwards.
    """
    *lead, out, into, width = weight.shape
    places = _places_on_device(width, points, weight) if weight.is_cuda else torch.from_numpy(_places(width, points))
    taps = (weight @ places.to(weight)).reshape(*lead, out, into, points, points)  # [..., o, i, q, p]
    axes = len(lead)
    order = (*range(axes), axes + 2, axes + 1, axes + 3, axes)
    return taps.permute(order).reshape(*lead, points * into, points * out)


@cache
def _places(width: int, points: int) -> NDArray[np.float64]:
    """[width, points * points]: one where point p's output takes point q through this tap."""
    place = np.arange(points)
    tap = place[:, None] - place[None, :] + width // 2
    return np.asarray(np.arange(width)[:, None] == tap.reshape(1, -1), np.float64)


def _places_on_device(width: int, points: int, like: Tensor) -> Tensor:
    """The same, made where it is used: a copy from the host waits for the device, and no CUDA graph can hold it."""
    place = torch.arange(points, device=like.device)
    tap = place[:, None] - place[None, :] + width // 2
    return torch.arange(width, device=like.device)[:, None] == tap.reshape(1, -1)


def repeated(bias: Tensor, points: int) -> Tensor:
    """A Conv1d's bias [..., out] for every point: [..., 1, points * out]."""
    return bias.unsqueeze(-2).repeat(*(1,) * (bias.ndim - 1), 1, points)


@dataclass(frozen=True)
class DenseField:
    """A rate and a whole walk, and the layers that both come from."""

    layers: Layers
    rate: Rate
    walk: Walk


def dense_field(layers: Layers) -> DenseField:
    """W3 relu(W2 relu(W1 z + b1) + b2) + b3, with its fused walk. One member goes without the member axis."""
    single = layers[0].ndim == 3 and layers[0].shape[0] == 1
    used = cast(Layers, tuple(x.squeeze(0) for x in layers)) if single else layers

    def rate(t: Tensor, z: Tensor) -> Tensor:
        out = evaluate(used, z.squeeze(0) if single else z)
        return out.unsqueeze(0) if single else out

    def walk(tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor:
        start = z.squeeze(0) if single else z
        sizes = _step_sizes(grid, start)
        keep = torch.is_grad_enabled()
        end = cast(Tensor, _DenseWalk.apply(tableau, sizes, keep, start, *used))  # type: ignore[no-untyped-call]
        return end.unsqueeze(0) if single else end

    return DenseField(layers, rate, walk)


def eager_walk(rate: Rate) -> Walk:
    """A walk on autograd's tape, for a rate that is the same at all times."""

    def walk(tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor:
        return step_through(tableau, rate, _step_sizes(grid, z), z)

    return walk


def evaluate(layers: Layers, z: Tensor) -> Tensor:
    w1, b1, w2, b2, w3, b3 = layers
    product = _affine(z)
    return product(b3, product(b2, product(b1, z, w1).relu_(), w2).relu_(), w3)


def _affine(z: Tensor) -> Callable[..., Tensor]:
    """b + x W, for one model or for all members at once."""
    return torch.addmm if z.ndim == 2 else torch.baddbmm


def _step_sizes(grid: Grid | Steps, like: Tensor) -> Sizes:
    """Floats; [S, 1, 1] where members differ, or [1, 1] for one without the member axis."""
    if isinstance(grid, Steps):
        return grid.sizes.T.reshape(-1, *grid.counts.shape[: like.ndim - 2], 1, 1).unbind(0)
    if grid.nodes.ndim == 1:
        return [float(h) for h in grid.steps]
    return torch.as_tensor(grid.steps.T.copy(), dtype=like.dtype, device=like.device)[..., None, None].unbind(0)


def _add_scaled(total: Tensor, value: Tensor, h: float | Tensor, weight: float) -> None:
    """total += h weight value, in place."""
    if isinstance(h, float):
        total.add_(value, alpha=h * weight)
    else:
        total.addcmul_(value, h, value=weight)


def _through_relu(cotangent: Tensor, activation: Tensor) -> None:
    """Zero where the unit was off, in place and in one operation (a boolean mask would be copied to floats)."""
    torch.ops.aten.threshold_backward.grad_input(cotangent, activation, 0, grad_input=cotangent)


class _DenseWalk(torch.autograd.Function):
    """z(T) by any explicit method; the backward pass is the exact gradient of these operations.

    Only the stages' inputs are kept. The way back goes block by block of steps: it recomputes a block's hidden layers,
    sweeps through it, and adds its share of the weights' gradients, so that all it touches stays in the cache. States
    are held as [S, d, B]: products with few rows are several times faster than those with few columns.
    """

    @staticmethod
    def forward(ctx: Any, tableau: Tableau, sizes: Sizes, keep: bool, z0: Tensor, *layers: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = layers
        affine, count = _affine(z0), tableau.propagating
        first, second = (z0.new_empty(*z0.shape[:-1], w.shape[-1]) for w in (w1, w2))
        w3, b3 = w3.mT.contiguous(), b3.mT.contiguous()
        z = z0.mT.clone(memory_format=torch.contiguous_format)  # always a copy: it is walked in place
        inputs = z.new_empty(len(sizes) * count if keep else 1, *z.shape)
        rows, rates = inputs.unbind(0), z.new_empty(count, *z.shape).unbind(0)
        for n, h in enumerate(sizes):
            for i in range(count):
                x = rows[n * count + i if keep else 0].copy_(z)
                for j, a in enumerate(tableau.a[i]):
                    if a != 0.0:
                        _add_scaled(x, rates[j], h, a)
                affine(b1, x.mT, w1, out=first).relu_()
                affine(b2, first, w2, out=second).relu_()
                affine(b3, w3, second.mT, out=rates[i])
            for i in range(count):
                if tableau.b[i] != 0.0:
                    _add_scaled(z, rates[i], h, tableau.b[i])
        if keep:
            ctx.tableau, ctx.sizes = tableau, sizes
            ctx.save_for_backward(inputs, *layers)
        return z.mT.contiguous()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs, *layers = ctx.saved_tensors
        sweep = _Sweep(ctx.tableau, cast(Layers, tuple(layers)), inputs)
        z = grads[0].mT.clone(memory_format=torch.contiguous_format)
        for last in range(len(ctx.sizes), 0, -sweep.steps):
            start = max(0, last - sweep.steps)
            sweep.through(inputs[start * sweep.count : last * sweep.count], ctx.sizes[start:last], z)
        return None, None, None, z.mT, *sweep.gradients


class _Sweep:
    """The way back: turns the cotangent of z at a block's end into that at its start, and gathers the gradients.

    A *row* is one stage: its input and the cotangent of its rate are [S, d, B], its hidden layers [S, B, H].
    """

    def __init__(self, tableau: Tableau, layers: Layers, inputs: Tensor) -> None:
        self.tableau, self.count = tableau, tableau.propagating
        self.single = inputs.ndim == 3
        w1, _, w2, _, w3, _ = layers
        lead, samples = inputs.shape[1:-2], inputs.shape[-1]
        self.steps = max(1, BLOCK // (inputs[0].numel() // inputs.shape[-2] * w1.shape[-1] * self.count))
        rows = min(self.steps * self.count, inputs.shape[0])
        # An ensemble's block is one batched product over rows and members, so its matrices are repeated for each row.
        self.layers = layers if self.single else tuple(x.repeat(rows, 1, 1) for x in layers)
        self.w1, self.w2_back, self.w3_back = w1, w2.mT.contiguous(), w3.mT.contiguous()
        self.first, self.second, self.on_first, self.on_second = (
            inputs.new_empty(rows, *lead, samples, w.shape[-1]) for w in (w1, w2, w1, w2)
        )
        self.on_rate, self.scratch = torch.empty_like(inputs[:rows]), torch.empty_like(inputs[0])
        self.gradients = [torch.zeros_like(x) for x in layers]

    def through(self, inputs: Tensor, sizes: Sizes, z: Tensor) -> None:
        """One block, from its last step to its first; z is changed in place."""
        self._recompute(inputs)
        room = (self.on_rate, self.on_second, self.on_first, self.second, self.first)
        rows = list(zip(*(x.unbind(0) for x in room), strict=True))
        product = torch.mm if self.single else torch.bmm
        for n in range(len(sizes) - 1, -1, -1):
            h, base = sizes[n], n * self.count
            for i in range(self.count):
                torch.mul(z, h * self.tableau.b[i], out=rows[base + i][0])
            for i in range(self.count - 1, -1, -1):
                on_rate, on_second, on_first, second, first = rows[base + i]
                _through_relu(product(on_rate.mT, self.w3_back, out=on_second), second)
                _through_relu(product(on_second, self.w2_back, out=on_first), first)
                z.add_(product(self.w1, on_first.mT, out=self.scratch))
                for j, a in enumerate(self.tableau.a[i]):
                    if a != 0.0:
                        _add_scaled(rows[base + j][0], self.scratch, h, a)
        self._gather(inputs)

    def _recompute(self, inputs: Tensor) -> None:
        """Both hidden layers of all rows of a block."""
        x = inputs.mT.flatten(0, 1)
        w1, b1, w2, b2 = self.layers[:4] if self.single else (m[: len(x)] for m in self.layers[:4])
        first, second = (h[: len(inputs)].flatten(0, 1) for h in (self.first, self.second))
        _affine(x)(b1, x, w1, out=first).relu_()
        _affine(x)(b2, first, w2, out=second).relu_()

    def _gather(self, inputs: Tensor) -> None:
        """Add the gradients of matrices, and of biases (whose input is always one), from all rows of a block."""
        rows = len(inputs)
        x, on_rate = (v[:rows].mT.flatten(0, 1) for v in (inputs, self.on_rate))
        first, second, on_first, on_second = (
            v[:rows].flatten(0, 1) for v in (self.first, self.second, self.on_first, self.on_second)
        )
        ones = torch.ones_like(x[..., :1])
        lefts, rights = (
            (x, ones, first, ones, on_rate, ones),
            (on_first, on_first, on_second, on_second, second, on_rate),
        )
        for k, (left, right) in enumerate(zip(lefts, rights, strict=True)):
            share = left.mT @ right
            if not self.single:
                share = share.reshape(rows, -1, *share.shape[1:]).sum(dim=0)
            self.gradients[k] += share.mT if left is on_rate else share
