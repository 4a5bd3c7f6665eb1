"""The sphere networks' field as three dense layers.

A Conv1d over d points is a banded matrix: built once per solve, it turns an evaluation into three products.

Shapes: S members, B samples, d points, H = hidden width. Layers are W [S, in, out], b [S, 1, out]; for a single model
the member axis is left out everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.solvers import Tableau
from windermere.solvers.field import Rate
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.runge_kutta import step_through

Layers: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""W1, b1, W2, b2, W3, b3."""
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
    """A rate, and the layers that it comes from."""

    layers: Layers
    rate: Rate


def dense_layers(weights: Sequence[Tensor], points: int) -> DenseField:
    """W3 relu(W2 relu(W1 z + b1) + b2) + b3 from the convolutions' weights. One member goes without the member axis."""
    pairs = zip(weights[::2], weights[1::2], strict=True)
    layers = cast(Layers, tuple(x for w, b in pairs for x in (banded(w, points), repeated(b, points))))
    single = layers[0].ndim == 3 and layers[0].shape[0] == 1
    used = cast(Layers, tuple(x.squeeze(0) for x in layers)) if single else layers

    def rate(t: Tensor, z: Tensor) -> Tensor:
        out = evaluate(used, z.squeeze(0) if single else z)
        return out.unsqueeze(0) if single else out

    return DenseField(layers, rate)


def eager_walk(rate: Rate, tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor:
    """z at the end of a grid, on autograd's tape, with a rate that is the same at all times."""
    return step_through(tableau, rate, _step_sizes(grid, z), z)


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
