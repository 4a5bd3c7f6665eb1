"""What a GPU's tensor cores make of products in TF32, on a CPU: operands of 11 bits, sums of 24."""

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from windermere.paper.fast import three_products

Rounding: TypeAlias = Callable[[Tensor], Tensor]


def nearest(x: Tensor) -> Tensor:
    """The nearest number of TF32. How a chip rounds is not written down: it may cut."""
    rounded = ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x)


def cut(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), (x.view(torch.int32) & -0x2000).view(torch.float32), x)


ROUNDINGS: dict[str, Rounding] = {"nearest": nearest, "cut": cut}


def product(rounding: Rounding, x: Tensor, w: Tensor) -> Tensor:
    """The convolution, whose sums are not rounded before their end."""
    return torch.conv2d(rounding(x).double(), rounding(w).double(), padding=1).float()


def weight_product(rounding: Rounding, x: Tensor, on_y: Tensor) -> Tensor:
    w = x.new_empty(on_y.shape[1], x.shape[1], 3, 3, dtype=torch.float64)
    return three_products.pulled_back(rounding(on_y).double(), rounding(x).double(), w)[1].float()


def shrinking(x: Tensor, w: Tensor, *, at_once: int = 8) -> Tensor:
    """The convolution, whose sums are cut to 24 bits, towards zero, after every few products."""
    columns = nearest(F.unfold(x, 3, padding=1)).double()
    rows, sums = nearest(w).flatten(1).double(), columns.new_zeros(len(x), len(w), columns.shape[-1])
    for k in range(0, rows.shape[1], at_once):
        mantissa, exponent = torch.frexp(sums + rows[:, k : k + at_once] @ columns[:, k : k + at_once])
        sums = torch.ldexp((mantissa * 2**24).trunc(), exponent - 24)
    return sums.view(len(x), len(w), *x.shape[2:]).float()


def one_by_one(x: Tensor, w: Tensor) -> Tensor:
    """The convolution in float32, whose sums are rounded to the nearest after every product."""
    columns, rows = F.unfold(x, 3, padding=1).double(), w.flatten(1).double()
    sums = torch.zeros(len(x), len(w), columns.shape[-1])
    for k in range(rows.shape[1]):
        sums = (sums.double() + rows[:, k, None] * columns[:, None, k]).float()
    return sums.view(len(x), len(w), *x.shape[2:])
