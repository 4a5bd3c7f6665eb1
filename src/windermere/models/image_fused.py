"""A whole fixed-step solve of the image networks' field on the GPU, by kernels that keep its hidden layers on chip.

An evaluation is a few launches, and the loop over steps is Python's. Nothing here waits for the device or looks at
numbers that lie there: it can be captured in a CUDA graph, and the sizes of `Steps` may be changed in place between two
replays. The same inputs give the same bits: shares of the gradients are added in a fixed order.

Shapes: B images of H x L pixels, R = B H L rows, c channels, w hidden ones (W with padding), N steps of s stages. A
*state* is [B, c, H, L]. *Weights* are those of Conv2d(c, w, 1), Conv2d(w, w, 3, padding=1) and Conv2d(w, c, 1), each with
its bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.errors import UsageError
from windermere.models.fused import Weights, _has_triton
from windermere.solvers import Tableau
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.runge_kutta import propagating_stages

CHANNELS_UP_TO, WIDTH_UP_TO, PATCH = 4, 128, 16
"""A patch holds 3 c + 2 numbers; an accumulator of more columns would not stay in registers."""
Precision: TypeAlias = Literal["bf16", "ieee"]
Hidden: TypeAlias = Literal["levels", "recomputed"]
Second: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Of the second hidden layer: bits [W / 32, R], where it is positive, and levels [R, W], its values as multiples of 1/255
of scales [R]."""
Source: TypeAlias = Literal["recomputed", "levels", "bits"]


@dataclass(frozen=True, kw_only=True)
class Tile:
    """How one kernel shares out its work."""

    pixels: int = 128
    """Of a program; in the mixing weights' gradient, of one round of its loop."""
    depth: int = 32
    """Hidden channels that are made at a time."""
    columns: int = 128
    """Of an accumulator at most; a width that is no power of two takes several."""
    warps: int = 4
    stages: int = 3
    """Of the weights' way on chip."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the kernels run. A product of the 3x3 convolution is what costs: an evaluation takes one there, one back and one
    for the weights, besides those that are computed again."""

    precision: Precision = "bf16"
    """Of the products with hidden layers, summed in float32; or float32 throughout, without tensor cores."""
    hidden: Hidden = "levels"
    """What the way back knows of the second hidden layer. It needs its signs, and with more than one channel its values, for
    the last layer's gradient alone: either a bit and a byte of each are kept, or nothing, and the product is repeated."""
    padding: int = 32
    """The hidden channels are padded to a multiple of it."""
    forward: Tile = field(default_factory=Tile)
    back: Tile = field(default_factory=lambda: Tile(columns=64))
    """Its accumulators are halved: after the product, their pixels' first hidden layer is needed beside them."""
    gradient: Tile = field(default_factory=lambda: Tile(pixels=64))
    """Of the mixing weights."""
    sums: Tile = field(default_factory=lambda: Tile(pixels=128, columns=32))
    """Of the last layer's gradient, where nothing is computed again."""
    chunks: int = 29
    """Into which the pixels are divided for the mixing weights' gradient: nine times that, two for each of 132
    multiprocessors."""
    taps: Literal[1, 3, 9] = 1
    """Of the mixing weights' gradient for one program."""
    pointwise: int = 64
    """Pixels of a program that only combines states."""

    def width(self, channels: int) -> int:
        return -(-channels // self.padding) * self.padding


DEFAULT = Launch()


def can_walk_images(tableau: Tableau, grid: Grid | Steps, z: Tensor, weights: Weights) -> bool:
    """Whether the kernels take this solve: on a GPU, in float32, with few channels, and rows that 32 bits can count."""
    if z.ndim < 4 or not z.is_cuda or z.dtype != torch.float32 or z.numel() == 0 or not _has_triton():
        return False
    channels, hidden = z.shape[-3], weights[0].shape[-4]
    rows = z[0].numel() // channels if z.ndim == 5 else z.numel() // channels
    fits = channels <= CHANNELS_UP_TO and hidden <= WIDTH_UP_TO and (rows + 4096) * WIDTH_UP_TO < 2**31
    return fits and all(w.is_cuda and w.dtype == torch.float32 for w in weights)


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
    if z.shape[1] > CHANNELS_UP_TO or weights[0].shape[0] > WIDTH_UP_TO:
        raise UsageError(f"the image kernels take up to {CHANNELS_UP_TO} channels and a width of {WIDTH_UP_TO}")
    keep = torch.is_grad_enabled()
    return cast(Tensor, _ImageWalk.apply(tableau, launch, keep, sizes, z, *weights))  # type: ignore[no-untyped-call]


class _ImageWalk(torch.autograd.Function):
    """Keeps every stage's input, and of its second hidden layer what `Launch.hidden` says."""

    @staticmethod
    def forward(
        ctx: Any, tableau: Tableau, launch: Launch, keep: bool, sizes: Tensor, z: Tensor, *weights: Tensor
    ) -> Tensor:
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            walk = Evaluation(launch, z, weights)
            kept = _Kept.room_for(walk, len(sizes) * propagating_stages(tableau), keep)
            end = _there(tableau, sizes, z, walk, kept)
        if keep:
            ctx.tableau, ctx.launch = tableau, launch
            ctx.save_for_backward(sizes, kept.inputs, *kept.hidden, *weights)
        return end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        sizes, inputs, bits, levels, scales, *weights = ctx.saved_tensors
        with torch.cuda.device_of(inputs):  # type: ignore[no-untyped-call]
            walk = Evaluation(ctx.launch, grads[0], weights)
            sums = Shares(walk)
            on_start = _back(ctx.tableau, sizes, grads[0], walk, _Kept(inputs, (bits, levels, scales)), sums)
            gradients = sums.gradients()
        return *(None,) * 4, on_start, *(g.view(w.shape) for g, w in zip(gradients, weights, strict=True))


@dataclass(frozen=True)
class _Kept:
    """What the way back finds of each evaluation."""

    inputs: Tensor
    """[evaluations, a state]; without gradients there is room for two: the step's start and a stage."""
    hidden: Second
    """Each with a leading axis for evaluations."""

    @classmethod
    def room_for(cls, walk: "Evaluation", evaluations: int, keep: bool) -> "_Kept":
        hidden = walk.new_hidden(evaluations if keep and walk.source != "recomputed" else 0)
        # The last step's end is the start of one more.
        return cls(walk.new_states(evaluations + 1 if keep else 2), hidden)

    def of(self, evaluation: int) -> Second | None:
        """What is known of an evaluation's second hidden layer."""
        bits, levels, scales = self.hidden
        return (bits[evaluation], levels[evaluation], scales[evaluation]) if len(bits) else None


def _there(tableau: Tableau, sizes: Tensor, z: Tensor, walk: "Evaluation", kept: _Kept) -> Tensor:
    """Every stage's input is combined from those before it, and the next step's first from all."""
    stages, patches = propagating_stages(tableau), walk.new_patches()
    rates = walk.new_states(stages)
    keeps = len(kept.inputs) > 2 or len(sizes) * stages < 2
    rows = (*tableau.a[1:stages], tableau.b[:stages])
    kept.inputs[0].copy_(z)
    walk.combine(kept.inputs[0], rates, sizes, 0, (), kept.inputs[0], patches)
    for n in range(len(sizes)):
        start = n * stages if keeps else 0
        for i, row in enumerate(rows):
            walk.forward(patches, rates[i], kept.of(n * stages + i))
            last = i + 1 == stages
            slot = start + i + 1 if keeps else (0 if last else 1)
            walk.combine(kept.inputs[start], rates, sizes, n, row, kept.inputs[slot], patches)
    return kept.inputs[len(sizes) * stages if keeps else 0].clone()


def _back(tableau: Tableau, sizes: Tensor, on_end: Tensor, walk: "Evaluation", kept: _Kept, sums: "Shares") -> Tensor:
    """The cotangents of a step's stage inputs, one after the other, and at last of the state before it."""
    stages, patches, on_patches = propagating_stages(tableau), walk.new_patches(), walk.new_patches()
    terms = walk.new_states(stages + 1)  # of the stages' inputs, and of the step's end
    terms[stages].copy_(on_end)
    on_rate, scratch = torch.empty_like(terms[0]), _Kept(terms, walk.new_hidden(1))
    for n in reversed(range(len(sizes))):
        for i in reversed(range(stages)):
            e = n * stages + i
            hidden = cast(Second, kept.of(e) or scratch.of(0))
            row = (*(0.0,) * (i + 1), *(tableau.a[j][i] for j in range(i + 1, stages)), tableau.b[i])
            walk.combine(None, terms, sizes, n, row, on_rate, on_patches)
            walk.combine(kept.inputs[e], terms, sizes, n, (), kept.inputs[e], patches)
            walk.lower_gradient(on_rate, patches, hidden, sums)
            walk.backward(on_patches, hidden[0], kept.inputs[e], patches, terms[i], sums)
            walk.mix_gradient(patches, on_patches, hidden[0], sums)
        for i in range(stages):
            terms[stages].add_(terms[i])
    return terms[stages].clone()


@dataclass(frozen=True)
class Matrices:
    """The weights as the kernels want them: hidden channels padded with zeros, products' factors in their own dtype."""

    lift: Tensor
    """[16, W]: for patches."""
    lift_back: Tensor
    """[c, W]."""
    mix: Tensor
    """[9, W in, W out]."""
    mix_back: Tensor
    """[9, W out, W in]: transposed, the last tap first."""
    mix_bias: Tensor
    """[W]."""
    lower: Tensor
    """[c, W]."""
    lower_back: Tensor
    """[16, W]: for patches."""
    lower_bias: Tensor
    """[c]."""

    @classmethod
    def of(cls, weights: Weights, width: int, dtype: torch.dtype) -> "Matrices":
        w1, b1, w2, b2, w3, b3 = (w.detach() for w in weights)
        more = width - len(b1)
        pad = torch.nn.functional.pad
        first, last = (pad(w, (0, more)) for w in (w1.flatten(1).T, w3.flatten(1)))
        taps = pad(w2.flatten(2).permute(2, 1, 0), (0, more, 0, more)).to(dtype)
        return cls(
            lift=_for_patches(first, pad(b1, (0, more)), dtype),
            lift_back=first.contiguous(),
            mix=taps.contiguous(),
            mix_back=taps.flip(0).mT.contiguous(),
            mix_bias=pad(b2, (0, more)),
            lower=last.contiguous(),
            lower_back=_for_patches(last, torch.zeros_like(last[0]), dtype),
            lower_bias=b3.contiguous(),
        )


def _for_patches(matrix: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """[c, W] and [W] as the 16 lines that a patch is multiplied with: see the kernels."""
    high, bias_high = matrix.to(dtype), bias.to(dtype)
    low, bias_low = (matrix - high).to(dtype), (bias - bias_high).to(dtype)
    lines = torch.cat([high, high, low, bias_high[None], bias_low[None]])
    return torch.nn.functional.pad(lines, (0, 0, 0, PATCH - len(lines)))


class Evaluation:
    """The kernels, for states of one shape and a field's weights. Triton is imported only here."""

    def __init__(self, launch: Launch, like: Tensor, weights: Weights) -> None:
        from windermere.models import image_kernels

        self.kernels, self.launch, self.like = image_kernels, launch, like
        self.images, self.channels, self.height, self.length = like.shape
        self.rows = self.images * self.height * self.length
        self.hidden = weights[0].shape[0]
        self.width = launch.width(self.hidden)
        self.dtype = torch.bfloat16 if launch.precision == "bf16" else torch.float32
        self.matrices = Matrices.of(weights, self.width, self.dtype)
        self.sides = {"HEIGHT": self.height, "LENGTH": self.length}

    @property
    def source(self) -> Source:
        """Where the last layer's gradient has the second hidden layer from. One channel's comes with the mixing weights'."""
        kept: Source = "levels" if self.channels > 1 else "bits"
        return kept if self.launch.hidden == "levels" else "recomputed"

    @property
    def sums_tile(self) -> Tile:
        return self.launch.forward if self.source == "recomputed" else self.launch.sums

    def new_states(self, count: int) -> Tensor:
        return self.like.new_empty(count, *self.like.shape)

    def new_patches(self) -> Tensor:
        """Their border stays zero."""
        return self.like.new_zeros(self.images, self.height + 2, self.length + 2, PATCH, dtype=self.dtype)

    def new_hidden(self, count: int) -> Second:
        """Of some evaluations."""
        bits = self.like.new_empty(count, self.width // 32, self.rows, dtype=torch.int32)
        rows = self.rows if self.source == "levels" else 0
        levels = self.like.new_empty(count, rows, self.width, dtype=torch.uint8)
        return bits, levels, self.like.new_empty(count, rows)

    def tiles(self, tile: Tile) -> int:
        return -(-self.rows // tile.pixels)

    def columns(self, tile: Tile) -> tuple[tuple[int, int], ...]:
        """Powers of two that make up the width, the largest first."""
        found, start = [], 0
        while start < self.width:
            size = min(tile.columns, 1 << ((self.width - start).bit_length() - 1))
            found.append((start, size))
            start += size
        return tuple(found)

    def shared_out(self, tile: Tile) -> dict[str, Any]:
        columns = self.columns(tile)
        depth = min(tile.depth, self.width & -self.width)
        return {
            **{"WIDTH": self.width, "TILE": tile.pixels, "DEPTH": depth, "COLUMNS": columns, "BLOCKS": len(columns)},
            **{"num_warps": tile.warps, "num_stages": tile.stages},
        }

    def combine(
        self,
        base: Tensor | None,
        terms: Tensor,
        sizes: Tensor,
        step: int,
        row: Sequence[float],
        out: Tensor,
        patches: Tensor,
    ) -> None:
        """base + h sum_i row_i terms_i, into a state and into patches."""
        tile = self.launch.pointwise
        self.kernels.combine[(-(-self.rows // tile),)](
            *(out if base is None else base, terms, sizes, step, out, patches, self.rows),
            WEIGHTS=tuple(float(weight) for weight in row) or (0.0,),
            TERMS=len(row),
            FROM_BASE=base is not None,
            CHANNELS=self.channels,
            TILE=tile,
            **self.sides,
        )

    def forward(self, patches: Tensor, rate: Tensor, hidden: Second | None) -> None:
        """The rate, and of the second hidden layer what is wanted."""
        m, tile = self.matrices, self.launch.forward
        written = hidden or (rate, rate, rate)  # where nothing is wanted, any tensor will do
        self.kernels.field_forward[(self.tiles(tile),)](
            *(patches, m.lift, m.mix, m.mix_bias, m.lower, m.lower_bias, rate, *written, self.rows),
            KEEP_BITS=hidden is not None,
            KEEP_LEVELS=hidden is not None and self.source == "levels",
            CHANNELS=self.channels,
            **self.sides,
            **self.shared_out(tile),
        )

    def backward(
        self, on_patches: Tensor, bits: Tensor, x: Tensor, patches: Tensor, on_x: Tensor, sums: "Shares"
    ) -> None:
        m, tile = self.matrices, self.launch.back
        self.kernels.field_backward[(self.tiles(tile),)](
            *(on_patches, bits, m.lower_back, m.mix_back, x, patches, m.lift, m.lift_back, on_x, sums.lift, self.rows),
            CHANNELS=self.channels,
            **self.sides,
            **self.shared_out(tile),
        )

    def mix_gradient(self, patches: Tensor, on_patches: Tensor, bits: Tensor, sums: "Shares") -> None:
        launch = self.launch
        shared = {key: value for key, value in self.shared_out(launch.gradient).items() if key != "DEPTH"}
        self.kernels.mix_gradient[(9 // launch.taps, launch.chunks)](
            *(patches, on_patches, bits, self.matrices.lift, sums.spread, sums.mix, self.rows),
            LINES=1 << (self.width - 1).bit_length(),
            TAPS=launch.taps,
            **self.sides,
            **shared,
        )

    def lower_gradient(self, on_rate: Tensor, patches: Tensor, hidden: Second, sums: "Shares") -> None:
        m, tile = self.matrices, self.sums_tile
        self.kernels.lower_gradient[(self.tiles(tile),)](
            *(on_rate, patches, m.lift, m.mix, m.mix_bias, *hidden, sums.lower, sums.lower_bias, self.rows),
            SOURCE=self.source,
            CHANNELS=self.channels,
            **self.sides,
            **self.shared_out(tile),
        )


class Shares:
    """What programs add up for the gradients, each in places of its own, over all evaluations."""

    def __init__(self, walk: Evaluation) -> None:
        self.walk, zeros, c, width = walk, walk.like.new_zeros, walk.channels, walk.width
        self.lift = zeros(walk.tiles(walk.launch.back), c + 1, width)
        self.mix = zeros(walk.launch.chunks, 9, width, width)
        self.lower = zeros(walk.tiles(walk.sums_tile), 2, c, width)
        self.lower_bias = zeros(walk.tiles(walk.sums_tile), c)
        self.factored = walk.source == "bits"
        self.spread = walk.matrices.lower_back
        if self.factored:
            ones = torch.ones_like(walk.matrices.lower)
            self.spread = _for_patches(ones, torch.zeros_like(ones[0]), walk.dtype)

    def gradients(self) -> list[Tensor]:
        """Of the six weights, in their order, hidden channels in full and without the padding."""
        m, lift, mix, lower = self.walk.matrices, self.lift.sum(dim=0), self.mix.sum(dim=0), self.lower.sum(dim=0)
        on_lower, on_bias = lower[0], (m.lower * lower[1]).sum(dim=0)
        if self.factored:
            # With one channel the last layer's weight is a factor: without it, `mix` is the gradient of on_rate . hidden.
            on_lower = ((m.mix * mix).sum(dim=(0, 1)) + m.mix_bias * lower[1][0])[None]
            mix = mix * m.lower[0]
        width = self.walk.hidden
        taps = mix[:, :width, :width].permute(2, 1, 0)
        lines = [lift[:-1, :width].T, lift[-1, :width], taps, on_bias[:width], on_lower[:, :width]]
        return [*(x.contiguous() for x in lines), self.lower_bias.sum(dim=0)]
