"""One evaluation of the image networks' field on the GPU, there and back: how the kernels are run, and on what.

Shapes: B images of H x L pixels, R = B H L rows, c channels, w hidden ones (W with padding). A *state* is [B, c, H, L].
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from windermere.errors import UsageError
from windermere.paper.arithmetic import FUSION
from windermere.paper.fast.fused import Weights

PATCH, WIDTH_TRIED = 16, 128
"""How many numbers a pixel's patch holds, 3 c + 2 of them used (see the kernels); and a width to try PTX with."""
Precision: TypeAlias = Literal["bf16", "ieee"]
Hidden: TypeAlias = Literal["levels", "recomputed"]
Source: TypeAlias = Literal["recomputed", "levels", "bits"]
Second: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""What is kept of the second hidden layer: (bits, levels, scales). Bits [R, 4] are words that say where it is positive
(see the kernels), scales [R] are each pixel's largest value, and levels [R, W] are its values as multiples of scales /
254.5, rounded up."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """How one kernel shares out its work."""

    pixels: int = 128
    """Pixels that one program works on; in the mixing weights' gradient, those of one round of its loop."""
    depth: int = 64
    """Hidden channels that are made at a time; fewer, if this number does not divide the width."""
    columns: int = 128
    """The most columns of one accumulator; a width that is no power of two takes several accumulators."""
    warps: int = 4
    stages: int = 2
    """How many taps' weights are on their way to the chip at once (Triton's num_stages). A multiprocessor should still
    have room for two programs."""
    registers: int | None = None
    """The most registers of a thread. With fewer, more programs share a multiprocessor; with too few, they spill."""

    def blocks(self, width: int) -> tuple[tuple[int, int], ...]:
        """The blocks of columns that make up a width, as (start, size): sizes are powers of two, the largest first."""
        found, start = [], 0
        while start < width:
            size = min(self.columns, 1 << ((width - start).bit_length() - 1))
            found.append((start, size))
            start += size
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the kernels run. The products of the 3x3 convolution are what costs time: an evaluation takes one forward,
    one back, one for the weights' gradient, and one more where nothing of the hidden layer is kept."""

    precision: Precision = "bf16"
    """The dtype of products with hidden layers: bfloat16, summed in float32; or float32, without tensor cores."""
    hidden: Hidden = "levels"
    """What is kept of the second hidden layer for the way back, which needs its signs and, for the last layer's
    gradient, its values. "levels" keeps a bit and a byte of each value (no byte where a state has one channel);
    "recomputed" keeps nothing and repeats the product."""
    padding: int = 32
    """The number of hidden channels is padded to a multiple of this."""
    forward: Tile = field(default_factory=lambda: Tile(stages=3))
    back: Tile = field(default_factory=lambda: Tile(columns=64))
    """The tile of the cotangent's kernel. It has half the columns in an accumulator, since more is done after the
    product. The last layer's gradient takes this tile too where it computes the hidden layer again."""
    gradient: Tile = field(default_factory=lambda: Tile(pixels=64, columns=64, stages=3))
    """The tile of the mixing weights' gradient."""
    sums: Tile = field(default_factory=lambda: Tile(columns=64))
    """The tile of the last layer's gradient where the hidden layer was kept and is not computed again."""
    programs: int = 528
    """The most programs for the last layer's gradient where nothing is computed again."""
    chunks: int = 29
    """The pixels are divided into so many chunks for the mixing weights' gradient. Nine taps times 29 chunks are about
    two programs for each of an H200's 132 multiprocessors."""
    taps: Literal[1, 3, 9] = 1
    """How many of the nine taps one program sums up in the mixing weights' gradient."""
    assembly: bool = True
    """Whether PTX instructions round and mask hidden layers; Triton's interpreter does not know them."""
    pointwise: int = 64
    """Pixels that one program works on where it only combines states."""

    def __post_init__(self) -> None:
        if self.padding % 32:
            raise UsageError(f"hidden channels are padded to a multiple of 32, for their bits: not of {self.padding}")

    def width(self, channels: int) -> int:
        return -(-channels // self.padding) * self.padding


@dataclass(frozen=True)
class Matrices:
    """The weights as the kernels want them: hidden channels padded with zeros, and factors in the products' dtype."""

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
        first, last = (F.pad(w, (0, more)) for w in (w1.flatten(1).T, w3.flatten(1)))
        taps = F.pad(w2.flatten(2).permute(2, 1, 0), (0, more, 0, more)).to(dtype)
        return cls(
            lift=_for_patches(first, F.pad(b1, (0, more)), dtype),
            lift_back=first.contiguous(),
            mix=taps.contiguous(),
            mix_back=taps.flip(0).mT.contiguous(),
            mix_bias=F.pad(b2, (0, more)),
            lower=last.contiguous(),
            lower_back=_for_patches(last, torch.zeros_like(last[0]), dtype),
            lower_bias=b3.contiguous(),
        )


def _for_patches(matrix: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """[c, W] and [W] as the 16 lines that a patch is multiplied with: see the kernels."""
    high, bias_high = matrix.to(dtype), bias.to(dtype)
    low, bias_low = (matrix - high).to(dtype), (bias - bias_high).to(dtype)
    lines = torch.cat([high, high, low, bias_high[None], bias_low[None]])
    return F.pad(lines, (0, 0, 0, PATCH - len(lines)))


@cache
def assembly_works(device: torch.device) -> bool:
    """Whether PTX gives on this device what the kernels compute without it. It is tried once, before anything is
    captured. On a device other than a GPU nothing is tried, and the answer is yes."""
    if device.type != "cuda":
        return True
    from windermere.paper.fast import image_kernels

    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(n, device=device, generator=generator) for n in (64 * PATCH, PATCH * WIDTH_TRIED))
    bits = torch.randint(-(2**31), 2**31, (64, 4), device=device, generator=generator).to(torch.int32)
    found = torch.zeros(1, dtype=torch.int32, device=device)
    kernel: Any = image_kernels.compare_assembly
    kernel[(1,)](left.bfloat16(), right.bfloat16(), bits, found, SIZE=WIDTH_TRIED, num_warps=4, **FUSION)
    works = int(found) == 0
    if not works:
        warnings.warn("the image kernels' PTX fails here, so they go without it and are slower", stacklevel=2)
    return works


class Evaluation:
    """The kernels, for states of one shape and a field's weights. Triton is imported only here."""

    def __init__(self, launch: Launch, like: Tensor, weights: Weights) -> None:
        from windermere.paper.fast import image_kernels

        self.kernels: Any = image_kernels
        self.launch, self.like = launch, like
        self.images, self.channels, self.height, self.length = like.shape
        self.rows = self.images * self.height * self.length
        self.hidden = weights[0].shape[0]
        self.width = launch.width(self.hidden)
        self.dtype = torch.bfloat16 if launch.precision == "bf16" else torch.float32
        self.matrices = Matrices.of(weights, self.width, self.dtype)
        self.sides = {"HEIGHT": self.height, "LENGTH": self.length}
        self.assembly = launch.assembly and self.dtype == torch.bfloat16 and assembly_works(like.device)

    @property
    def source(self) -> Source:
        """Where the last layer's gradient takes the second hidden layer from. For states of one channel bits are
        enough: that gradient then follows from the mixing weights' gradient."""
        kept: Source = "levels" if self.channels > 1 else "bits"
        return kept if self.launch.hidden == "levels" else "recomputed"

    @property
    def sums_tile(self) -> Tile:
        return self.launch.back if self.source == "recomputed" else self.launch.sums

    @property
    def sums_programs(self) -> int:
        """How many programs compute the last layer's gradient: one for each tile where they compute the hidden layer
        again, else as many as run at once."""
        tiles = self.tiles(self.sums_tile)
        return tiles if self.source == "recomputed" else min(tiles, self.launch.programs)

    def new_states(self, count: int) -> Tensor:
        return self.like.new_empty(count, *self.like.shape)

    def new_patches(self) -> Tensor:
        """New patches of zeros; the border of each image stays zero."""
        return self.like.new_zeros(self.images, self.height + 2, self.length + 2, PATCH, dtype=self.dtype)

    def new_hidden(self, count: int) -> Second:
        """Room for what is kept of the second hidden layer in so many evaluations."""
        bits = self.like.new_empty(count, self.rows, 4, dtype=torch.int32)
        rows = self.rows if self.source == "levels" else 0
        levels = self.like.new_empty(count, rows, self.width, dtype=torch.uint8)
        return bits, levels, self.like.new_empty(count, rows)

    def tiles(self, tile: Tile) -> int:
        return -(-self.rows // tile.pixels)

    def shared_out(self, tile: Tile) -> dict[str, Any]:
        """A kernel's arguments that say how its work is divided; the depth is reduced until it divides the width."""
        columns = tile.blocks(self.width)
        return {
            "WIDTH": self.width,
            "TILE": tile.pixels,
            "DEPTH": min(tile.depth, self.width & -self.width),
            "COLUMNS": columns,
            "BLOCKS": len(columns),
            "num_warps": tile.warps,
            "num_stages": tile.stages,
            "maxnreg": tile.registers,
            **FUSION,
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
        other: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """base + h sum_i row_i terms_i, into a state and into patches; and another state into others."""
        tile = self.launch.pointwise
        self.kernels.combine[(-(-self.rows // tile), 1 if other is None else 2)](
            *(out if base is None else base, terms, sizes, step, out, patches, *(other or (out, patches)), self.rows),
            WEIGHTS=tuple(float(weight) for weight in row) or (0.0,),
            TERMS=len(row),
            FROM_BASE=base is not None,
            CHANNELS=self.channels,
            TILE=tile,
            **FUSION,
            **self.sides,
        )

    def forward(self, patches: Tensor, rate: Tensor, hidden: Second | None) -> None:
        """Writes the rate, and into `hidden`, where it is given, what is kept of the second hidden layer."""
        m, tile = self.matrices, self.launch.forward
        written = hidden or (rate, rate, rate)  # where nothing is wanted, any tensor will do
        self.kernels.field_forward[(self.tiles(tile),)](
            *(patches, m.lift, m.mix, m.mix_bias, m.lower, m.lower_bias, rate, *written, self.rows),
            KEEP_BITS=hidden is not None,
            KEEP_LEVELS=hidden is not None and self.source == "levels",
            ASSEMBLY=self.assembly,
            CHANNELS=self.channels,
            **self.sides,
            **self.shared_out(tile),
        )

    def backward(
        self, on_patches: Tensor, bits: Tensor, patches: Tensor, on_x: Tensor, sums: "Shares", *, add: bool = False
    ) -> None:
        """Writes the cotangent of x, or with `add` adds it to what is there."""
        m, tile = self.matrices, self.launch.back
        self.kernels.field_backward[(self.tiles(tile),)](
            *(on_patches, bits, m.lower_back, m.mix_back, patches, m.lift, m.lift_back, on_x, sums.lift, self.rows),
            ADD=add,
            ASSEMBLY=self.assembly,
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
            ASSEMBLY=self.assembly,
            **self.sides,
            **shared,
        )

    def lower_gradient(self, on_rate: Tensor, patches: Tensor, hidden: Second, sums: "Shares") -> None:
        m, tile = self.matrices, self.sums_tile
        self.kernels.lower_gradient[(self.sums_programs,)](
            *(on_rate, patches, m.lift, m.mix, m.mix_bias, *hidden, sums.lower, sums.lower_bias, self.rows),
            SOURCE=self.source,
            ASSEMBLY=self.assembly,
            ROUNDS=-(-self.tiles(tile) // self.sums_programs),
            CHANNELS=self.channels,
            **self.sides,
            **self.shared_out(tile),
        )


class Shares:
    """The sums for the gradients over all evaluations; each program adds to places of its own."""

    def __init__(self, walk: Evaluation) -> None:
        self.walk, zeros, width = walk, walk.like.new_zeros, walk.width
        self.lift = zeros(walk.tiles(walk.launch.back), width, PATCH)
        self.mix = zeros(walk.launch.chunks, 9, width, width)
        self.lower = zeros(walk.sums_programs, 2, width, PATCH)
        self.lower_bias = zeros(walk.sums_programs, PATCH)
        self.factored = walk.source == "bits"
        self.spread = walk.matrices.lower_back
        if self.factored:
            ones = torch.ones_like(walk.matrices.lower)
            self.spread = _for_patches(ones, torch.zeros_like(ones[0]), walk.dtype)

    def gradients(self) -> list[Tensor]:
        """The gradients of the six weights in their order, for all hidden channels and without the padding."""
        m, mix, c, width = self.walk.matrices, self.mix.sum(dim=0), self.walk.channels, self.walk.hidden
        lift, lower = self.lift.sum(dim=0), self.lower.sum(dim=0).mT  # [W, 16], [2, 16, W]
        on_lift = lift[:, :c] + lift[:, c : 2 * c]
        positive, on_lower = lower[1, :c] + lower[1, 4 : 4 + c], lower[0, :c] + lower[0, 4 : 4 + c]
        if self.walk.source == "levels":
            middle = lower[0, 8:] - lower[1, 8:] / 2  # levels are rounded up
            on_lower = middle[:c] + middle[4 : 4 + c]
        on_bias = (m.lower * positive).sum(dim=0)
        if self.factored:
            # One channel's last weights are a factor, left out so far: as if it were summed for on_rate itself.
            on_lower = ((m.mix * mix).sum(dim=(0, 1)) + m.mix_bias * positive[0])[None]
            mix = mix * m.lower[0]
        taps = mix[:, :width, :width].permute(2, 1, 0)
        lines = [on_lift[:width], lift[:width, 3 * c], taps, on_bias[:width], on_lower[:, :width]]
        return [*(x.contiguous() for x in lines), self.lower_bias.sum(dim=0)[:c]]
