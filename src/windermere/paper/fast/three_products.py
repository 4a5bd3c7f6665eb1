"""The image field's 3x3 convolution on a GPU in three products of TF32: nearly as exact as in float32, and faster.

Tensor cores round what they multiply to TF32, which has 11 significant bits of float32's 24. So each number is parted,
x = high + low, where high is x rounded to TF32, and of x w = (high + low)(high' + low') three products are taken. The
fourth, low low', is at most 2^-22 |x w|, and so is what rounding the last of a low part's 12 bits changes in the other
two: together 2^-21 |x w|. Numbers under 2^-100, whose low parts TF32 hardly has, are not as exact.

Tensor cores also cut off each sum, after every 4 or 8 products, to 24 bits, towards zero: long sums shrink (see
https://github.com/triton-lang/triton/issues/4603). So products of high parts are summed over few channels or images at
once, and these sums are added in float32, which rounds to the nearest; corrections are small, and are summed as one.
The 1x1 convolutions stay as they are: together they take 1/200 as many products, and wait for memory.

Shapes: B images of H x L pixels, c channels. *x* and *y* are [B, c, H, L], *w* is [c, c, 3, 3]. A name with *on_* is a
cotangent.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from windermere._torch_private import operation
from windermere.nn.arithmetic import convolving_in
from windermere.paper.fast.compiling import Function, compiled

CHANNELS_AT_ONCE, IMAGES_AT_ONCE = 32, 16
"""Products of high parts are summed over so many. With 8 products between two cuts a convolution's errors are then
twice those of float32, where all 128 channels at once would make it eight times."""
LARGEST = (2 - 2**-10) * 2.0**127
"""The largest number of TF32."""
FLAT = torch.channels_last


def parted(x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low part: x rounded to TF32, and the rest, exactly. An infinite x is one and infinity, with its sign:
    then its products are infinite as in float32, and none of them meets another of the other sign."""
    bits = (x.view(torch.int32) + 0x1000) & -0x2000  # the nearest with 13 zeros; ties go away from zero
    high = bits.view(torch.float32).clamp(-LARGEST, LARGEST)
    high = torch.where(x.isinf(), x.sign(), high)
    return high, x - high


def pieces(x: Tensor, axis: int, at_once: int, low_first: bool) -> list[Tensor]:
    """High parts, so many channels (axis 1) or images (axis 0) in each piece; and a last piece with both parts along
    this axis, for the corrections."""
    high, low = parted(x)
    both = torch.cat((low, high) if low_first else (high, low), axis).contiguous(memory_format=FLAT)
    highs = both.chunk(2, axis)[int(low_first)].split(at_once, axis)  # type: ignore[no-untyped-call]
    return [*(piece.contiguous(memory_format=FLAT) for piece in highs), both]


def total(parts: Sequence[Tensor]) -> Tensor:
    return sum(parts[1:], start=parts[0])


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.conv2d(x, w, padding=1)


def weight_product(x: Tensor, on_y: Tensor) -> Tensor:
    return pulled_back(on_y, x, _like_w(x, on_y), only_w=True)[1]


def pulled_back(on_y: Tensor, x: Tensor, w: Tensor, *, only_w: bool = False) -> tuple[Tensor, Tensor]:
    """The cotangents of x and w as PyTorch finds them."""
    sizes = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    on_x, on_w, _ = torch.ops.aten.convolution_backward(on_y, x, w, None, *sizes, [not only_w, True, False])
    return on_x, on_w


def _convolve(x: Tensor, w: Tensor) -> Tensor:
    xs, ws = _fast(pieces, x)(x, 1, CHANNELS_AT_ONCE, False), pieces(w, 1, CHANNELS_AT_ONCE, True)
    with convolving_in("tf32"):
        parts = [product(*pair) for pair in zip(xs, ws, strict=True)]
    return cast(Tensor, _fast(total, x)(parts)).contiguous(memory_format=FLAT)


def _correlate(x: Tensor, on_y: Tensor) -> Tensor:
    xs, ys = (_fast(pieces, x)(v, 0, IMAGES_AT_ONCE, low_first) for v, low_first in ((x, False), (on_y, True)))
    with convolving_in("tf32"):
        parts = [weight_product(*pair) for pair in zip(xs, ys, strict=True)]
    return torch.stack(parts).sum(0).contiguous()


def _fast(function: Function, x: Tensor) -> Function:
    return compiled(function) if x.is_cuda else function


def _like_y(x: Tensor, w: Tensor) -> Tensor:
    shape = (x.shape[0], w.shape[0], *x.shape[2:])
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=FLAT)


def _like_w(x: Tensor, on_y: Tensor) -> Tensor:
    return x.new_empty(on_y.shape[1], x.shape[1], 3, 3)


def turned(w: Tensor) -> Tensor:
    """A convolution with it takes a cotangent back."""
    return w.transpose(0, 1).flip(2, 3)


def _convolve_back(ctx: Any, on_y: Tensor) -> tuple[Tensor | None, Tensor | None]:
    (x, w), (first, second) = ctx.saved_tensors, ctx.needs_input_grad
    return convolve(on_y, turned(w)) if first else None, correlate(x, on_y) if second else None


def _correlate_back(ctx: Any, on_w: Tensor) -> tuple[Tensor | None, Tensor | None]:
    (x, on_y), (first, second) = ctx.saved_tensors, ctx.needs_input_grad
    return convolve(on_y, turned(on_w)) if first else None, convolve(x, on_w) if second else None


convolve = operation("windermere::convolve", _convolve, shaped=_like_y, back=_convolve_back)
"""y from x and w."""
correlate = operation("windermere::correlate", _correlate, shaped=_like_w, back=_correlate_back)
"""on_w from x and on_y. Each of the two has its gradients by the other, and so may be differentiated again."""


def mixed(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return convolve(x, w) + bias[:, None, None]


def mixed_back(on_y: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cotangents of x, w and the bias."""
    return convolve(on_y, turned(w)), correlate(x, on_y), on_y.sum((0, 2, 3))
