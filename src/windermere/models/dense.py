"""The sphere networks' field as three dense layers, and a whole fixed-step solve of it as one differentiable function.

A Conv1d over d points is a banded matrix: built once per solve, it turns an evaluation into three products. The walk
keeps what the stages saw, goes back with a hand-derived gradient, and leaves the weights' gradients to one product
over all stages at the end, so autograd sees one node instead of thousands.

Shapes: S members, B samples, d points, H = hidden width, M = steps x stages. Layers are W [S, in, out], b [S, 1, out];
for a single model the member axis is left out everywhere.
"""

from collections.abc import Sequence
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
        joined = [torch.cat(used[i : i + 2], dim=-2) for i in (0, 2, 4)]
        end = cast(Tensor, _DenseWalk.apply(tableau, sizes, keep, start, *joined))  # type: ignore[no-untyped-call]
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

    Biases ride along as a last row of each matrix, against a column of ones kept beside the activations.
    """

    @staticmethod
    def forward(ctx: Any, tableau: Tableau, sizes: Sizes, keep: bool, z0: Tensor, *layers: Tensor) -> Tensor:
        product = torch.mm if z0.ndim == 2 else torch.bmm
        count, d = propagating_stages(tableau), z0.shape[-1]
        seen = [_with_ones(len(sizes) * count if keep else 1, z0, layer.shape[-2]) for layer in layers]
        rows = list(zip(*(x.unbind(0) for x in seen), strict=True))
        z, rates = z0.clone(), z0.new_empty(count, *z0.shape).unbind(0)
        for n, h in enumerate(sizes):
            for i in range(count):
                inputs, first, second = rows[n * count + i if keep else 0]
                x = inputs[..., :d].copy_(z)
                for j, a in enumerate(tableau.a[i]):
                    if a != 0.0:
                        _add_scaled(x, rates[j], h, a)
                product(inputs, layers[0], out=first[..., :-1]).relu_()
                product(first, layers[1], out=second[..., :-1]).relu_()
                product(second, layers[2], out=rates[i])
            for i in range(count):
                if tableau.b[i] != 0.0:
                    _add_scaled(z, rates[i], h, tableau.b[i])
        if keep:
            ctx.tableau, ctx.sizes = tableau, sizes
            ctx.save_for_backward(*seen, *layers)
        return z

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> Any:
        seen, layers = ctx.saved_tensors[:3], ctx.saved_tensors[3:]
        tableau, sizes, z = ctx.tableau, ctx.sizes, grads[0].clone()
        product = torch.mm if z.ndim == 2 else torch.bmm
        count, scratch = propagating_stages(tableau), torch.empty_like(z)
        back = [layer[..., :-1, :].transpose(-2, -1).contiguous() for layer in layers]
        # Cotangents of what each layer puts out, for all stages; those of the rates are summed up in place.
        onto = [x.new_empty(*x.shape[:-1], layer.shape[-1]) for x, layer in zip(seen, layers, strict=True)]
        on_first, on_second, on_rate = (x.unbind(0) for x in onto)
        first, second = (x[..., :-1].unbind(0) for x in seen[1:])
        for n in range(len(sizes) - 1, -1, -1):
            h, base = sizes[n], n * count
            for i in range(count):
                torch.mul(z, h * tableau.b[i], out=on_rate[base + i])
            for i in range(count - 1, -1, -1):
                row = base + i
                _through_relu(product(on_rate[row], back[2], out=on_second[row]), second[row])
                _through_relu(product(on_second[row], back[1], out=on_first[row]), first[row])
                product(on_first[row], back[0], out=scratch)
                z.add_(scratch)
                for j, a in enumerate(tableau.a[i]):
                    if a != 0.0:
                        _add_scaled(on_rate[base + j], scratch, h, a)
        return None, None, None, z, *(_layer_gradient(*pair) for pair in zip(seen, onto, strict=True))


def _with_ones(rows: int, z: Tensor, width: int) -> Tensor:
    """Room for `rows` inputs of a layer, the last column being ones for its bias."""
    room = z.new_empty(rows, *z.shape[:-1], width)
    room[..., -1] = 1.0
    return room


def _layer_gradient(seen: Tensor, cotangent: Tensor) -> Tensor:
    """The gradient of a matrix and its bias from all stages at once: a sum over M and B."""
    if seen.ndim == 3:
        return seen.flatten(0, 1).T @ cotangent.flatten(0, 1)
    seen, cotangent = (x.transpose(0, 1).flatten(1, 2) for x in (seen, cotangent))
    return seen.transpose(1, 2) @ cotangent
