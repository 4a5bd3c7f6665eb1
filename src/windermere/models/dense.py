"""The sphere networks' field as three dense layers, and a whole fixed-step solve of it as one differentiable function.

A Conv1d over d points is a banded matrix: built once per solve, it turns an evaluation into three products. The walk
keeps what the stages saw, goes back with a hand-derived gradient, and leaves the weights' gradients to one product
over all stages at the end, so autograd sees one node instead of thousands.

Shapes: S members, B samples, d points, H = hidden width, M = steps x stages. Layers are W [S, in, out], b [S, 1, out];
for a single model the member axis is left out everywhere.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.solvers import Prepared, Tableau
from windermere.solvers.grid import Grid
from windermere.solvers.runge_kutta import propagating_stages

Layers: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""W1, b1, W2, b2, W3, b3."""
Sizes: TypeAlias = Sequence[float | Tensor]


def banded(weight: Tensor, points: int) -> Tensor:
    """A Conv1d's weight [..., out, in, width] with padding width // 2, as a matrix [..., points * in, points * out].

    Entry (q, i), (p, o) is the tap q - p from the middle; entries are ordered by point, then channel.
    """
    *lead, out, into, width = weight.shape
    place = torch.arange(points, device=weight.device)
    tap = place[:, None] - place[None, :] + width // 2
    inside = (tap >= 0) & (tap < width)
    taps = weight[..., tap.clamp(0, width - 1)] * inside  # [..., o, i, q, p]
    axes = len(lead)
    order = (*range(axes), axes + 2, axes + 1, axes + 3, axes)
    return taps.permute(order).reshape(*lead, points * into, points * out)


def repeated(bias: Tensor, points: int) -> Tensor:
    """A Conv1d's bias [..., out] for every point: [..., 1, points * out]."""
    return bias.unsqueeze(-2).repeat(*(1,) * (bias.ndim - 1), 1, points)


def dense_field(layers: Layers) -> Prepared:
    """W3 relu(W2 relu(W1 z + b1) + b2) + b3, with its fused walk. One member goes without the member axis."""
    single = layers[0].ndim == 3 and layers[0].shape[0] == 1
    used = cast(Layers, tuple(x.squeeze(0) for x in layers)) if single else layers

    def rate(t: Tensor, z: Tensor) -> Tensor:
        out = evaluate(used, z.squeeze(0) if single else z)
        return out.unsqueeze(0) if single else out

    def walk(tableau: Tableau, grid: Grid, z: Tensor) -> Tensor:
        sizes = _step_sizes(grid, z)
        start = z.squeeze(0) if single else z
        keep = torch.is_grad_enabled()
        end = cast(Tensor, _DenseWalk.apply(tableau, sizes, keep, start.contiguous(), *used))  # type: ignore[no-untyped-call]
        return end.unsqueeze(0) if single else end

    return Prepared(rate, layers, walk)


def evaluate(layers: Layers, z: Tensor) -> Tensor:
    w1, b1, w2, b2, w3, b3 = layers
    product = torch.addmm if w1.ndim == 2 else torch.baddbmm
    return product(b3, product(b2, product(b1, z, w1).relu_(), w2).relu_(), w3)


def _step_sizes(grid: Grid, like: Tensor) -> Sizes:
    """Floats, or [S, 1, 1] where members differ."""
    if grid.nodes.ndim == 1:
        return [float(h) for h in grid.steps]
    return torch.as_tensor(grid.steps.T.copy(), dtype=like.dtype, device=like.device)[..., None, None].unbind(0)


def _scaled(h: float | Tensor, weight: float) -> float | Tensor:
    return h * weight


def _add_scaled(total: Tensor, value: Tensor, h: float | Tensor, weight: float) -> None:
    """total += h weight value, in place."""
    if isinstance(h, float):
        total.add_(value, alpha=h * weight)
    else:
        total.addcmul_(value, h, value=weight)


class _DenseWalk(torch.autograd.Function):
    """z(T) by any explicit method; the backward pass is the exact gradient of these operations."""

    @staticmethod
    def forward(ctx: Any, tableau: Tableau, sizes: Sizes, keep: bool, z0: Tensor, *layers: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = layers
        product: Callable[..., Tensor] = torch.addmm if w1.ndim == 2 else torch.baddbmm
        count = propagating_stages(tableau)
        rows = len(sizes) * count if keep else 1
        inputs, first, second = (z0.new_empty(rows, *z0.shape[:-1], n) for n in (z0.shape[-1], w1.shape[-1], w2.shape[-1]))
        rates = z0.new_empty(count, *z0.shape)
        z, row = z0.clone(), 0
        for h in sizes:
            for i in range(count):
                x = inputs[row].copy_(z)
                for j, a in enumerate(tableau.a[i]):
                    if a != 0.0:
                        _add_scaled(x, rates[j], h, a)
                product(b1, x, w1, out=first[row]).relu_()
                product(b2, first[row], w2, out=second[row]).relu_()
                product(b3, second[row], w3, out=rates[i])
                row = row + 1 if keep else 0
            for i in range(count):
                if tableau.b[i] != 0.0:
                    _add_scaled(z, rates[i], h, tableau.b[i])
        if keep:
            ctx.tableau, ctx.sizes = tableau, sizes
            ctx.save_for_backward(inputs, first, second, w1, w2, w3)
        return z

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs, first, second, w1, w2, w3 = ctx.saved_tensors
        tableau, sizes = ctx.tableau, ctx.sizes
        count = propagating_stages(tableau)
        # Cotangents of the rates and of both hidden layers, for all stages; those of the rates are summed up in place.
        on_rate, on_second, on_first = (torch.empty_like(x) for x in (inputs, second, first))
        back = [w.transpose(-2, -1).contiguous() for w in (w1, w2, w3)]
        product = torch.mm if w1.ndim == 2 else torch.bmm
        z = grads[0].clone()
        scratch = torch.empty_like(z)
        for n in range(len(sizes) - 1, -1, -1):
            h, base = sizes[n], n * count
            for i in range(count):
                torch.mul(z, _scaled(h, tableau.b[i]), out=on_rate[base + i])
            for i in range(count - 1, -1, -1):
                row = base + i
                product(on_rate[row], back[2], out=on_second[row]).mul_(second[row] > 0)
                product(on_second[row], back[1], out=on_first[row]).mul_(first[row] > 0)
                product(on_first[row], back[0], out=scratch)
                z.add_(scratch)
                for j, a in enumerate(tableau.a[i]):
                    if a != 0.0:
                        _add_scaled(on_rate[base + j], scratch, h, a)
        pairs = ((inputs, on_first), (first, on_second), (second, on_rate))
        return None, None, None, z, *(g for pair in pairs for g in _layer_gradients(*pair))


def _layer_gradients(seen: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of W and b from all stages at once: sums over M and B."""
    if seen.ndim == 3:
        return seen.flatten(0, 1).T @ cotangent.flatten(0, 1), cotangent.sum((0, 1)).unsqueeze(0)
    by_member = [x.transpose(0, 1).flatten(1, 2) for x in (seen, cotangent)]
    return by_member[0].transpose(1, 2) @ by_member[1], by_member[1].sum(1, keepdim=True)
