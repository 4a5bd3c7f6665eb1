"""Solves of fields that meet what is no number, or infinite, only after they were watched."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import windermere as wm

ODD = (torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-40, 1e30, -1e30, 88.9, -104.0, 0.7, -0.7)
BOUNDS: list[float] = [torch.nan, torch.inf, -torch.inf, 0.0, 0.7]

OF_ONE: list[Callable[[Tensor], Tensor]] = [
    *(torch.relu, torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.exp, torch.abs, torch.erf, torch.square),
    *(functional.leaky_relu, functional.softplus, functional.elu, functional.silu, functional.mish),
    lambda x: functional.gelu(x.clamp(max=1e30)),  # in float32 PyTorch's own has no number at infinity
    *(partial(functional.gelu, approximate="tanh"), partial(functional.elu, alpha=0.3), torch.selu, torch.neg),
    *(torch.log, torch.sqrt, torch.log1p, torch.rsqrt, torch.reciprocal, torch.sign, torch.special.ndtr),
    *(lambda x: x**2, lambda x: x**3, lambda x: x**1.7, lambda x: x**-0.5, lambda x: x / 3, lambda x: 2 - x),
    *(lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=0), lambda x: x.clamp(max=0), lambda x: x - x, torch.isnan),
]
COMPARISONS: list[Callable[[Tensor, Tensor], Tensor]] = [torch.gt, torch.ge, torch.lt, torch.le, torch.eq, torch.ne]


def chosen(comparison: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """1 where it is true, and else 2."""
    return torch.where(comparison(x, y), torch.ones_like(x), 2.0)


OF_TWO: list[Callable[[Tensor, Tensor], Tensor]] = [
    *(partial(chosen, comparison) for comparison in COMPARISONS),
    *(torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.clamp),
    *(lambda x, y: torch.where(x > 0, x, y), lambda x, y: torch.where(x <= 0, x, y), lambda x, y: x * (x < y)),
]


def met(function: Callable[..., Tensor], device: str, dtype: torch.dtype, of: int) -> list[Tensor]:
    """What a field makes of odd numbers, on a fast path if there is one and step by step: of each, or of each with
    each bound. It was watched with others."""
    odd = torch.tensor(ODD, dtype=dtype, device=device)
    bound = torch.tensor(BOUNDS, dtype=dtype, device=device)
    pairs = [(odd,), (odd.repeat_interleave(len(bound)), bound.repeat(len(odd)))][of - 1]
    given = [0.3 + 0.1 * k + 0.01 * torch.rand_like(x).sort()[0] for k, x in enumerate(pairs)]
    start = torch.ones(3, len(given[0]), dtype=dtype, device=device)

    def field(t: Tensor, z: Tensor) -> Tensor:
        return function(*(z * x for x in given)).to(z.dtype)

    def end() -> Tensor:
        final: Any = wm.solve(field, start, wm.FixedStep("euler", step=1.0)).final
        return torch.as_tensor(final)

    end()
    for x, own in zip(given, pairs, strict=True):
        x.copy_(own)
    found = end()
    with wm.fast_paths(False):
        return [found, end()]
