"""Distances from all pairs of samples: the energy distance, and the maximum mean discrepancy (MMD).

Shapes: m generated samples, n real ones, d features, B random splits.

Both are 2 E r(x, y) - E r(x, x') - E r(y, y') for a dissimilarity r: the Euclidean distance for energy, and minus a
mean of Gaussian kernels for the MMD (squared). They are estimated without bias, a sample never paired with itself.
Pairs are taken block by block, so that memory does not grow with their number, and in float64 unless features are many.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from windermere.auditing.sets.measured import Measured

Dissimilarity: TypeAlias = Callable[[Tensor], Tensor]
"""From squared Euclidean distances to dissimilarities; it may write to what it is given."""
PAIRS_AT_ONCE = 1_000_000
"""Few enough to stay in a cache."""
NARROW = 64
"""So many features are computed with in float64: of few, two samples may be close together, and a difference of squares
loses digits there."""
BANDWIDTHS = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Multiples of the median distance between real samples; each is half the one before."""
FOR_MEDIAN = 1000
"""So many real samples tell the median distance."""


@dataclass(frozen=True, eq=False)
class PairDistance:
    """A distance from all pairs, against one set of real samples."""

    data: Tensor
    """[n, d]"""
    dissimilarity: Dissimilarity
    growth = 1.0
    """The distance of two sets of one distribution is proportional to 1/m + 1/n: its noise is a quadratic form."""

    @cached_property
    def _within_data(self) -> Tensor:
        return within(self.data, self.dissimilarity)

    def measure(self, generated: Tensor) -> Measured:
        to_data, to_generated = across(generated, self.data, self.dissimilarity)
        inside = within(generated, self.dissimilarity)
        value = 2 * to_data.mean() - inside.mean() - self._within_data.mean()
        return Measured(float(value), 2 * (to_data - inside), 2 * (to_generated - self._within_data))

    def splits(self, chosen: Tensor, signs: Tensor) -> Tensor:
        """The distance between the two halves of the chosen real samples, for each column of signs [len(chosen), B]."""
        rows = self.data[chosen]
        half, total = len(rows) // 2, 0.0
        agreeing = signs.new_zeros(signs.shape[1])
        for start, block in _blocks(rows, rows, self.dissimilarity, alone=True):
            part = signs[start : start + len(block)]
            agreeing += (part * (block.to(signs.dtype) @ signs)).sum(dim=0)
            total += float(block.sum(dtype=torch.float64))
        inside, crossing = (total + agreeing) / 2, (total - agreeing) / 4
        return 2 * crossing / half**2 - inside / (half * (half - 1))


def energy(data: Tensor) -> PairDistance:
    """The energy distance of Szekely and Rizzo, 2 E|x - y| - E|x - x'| - E|y - y'|, not its square root."""
    return PairDistance(data, lambda squares: squares.clamp_(min=0).sqrt_())


def mmd(data: Tensor, generator: torch.Generator) -> PairDistance:
    """The squared MMD of Gretton et al., with the mean of Gaussian kernels of several bandwidths."""
    some = data[torch.randperm(len(data), generator=generator)[:FOR_MEDIAN]]
    median = float(torch.pdist(some).median())
    widest = BANDWIDTHS[0] * (median or 1.0)

    def kernels(squares: Tensor) -> Tensor:
        kernel = squares.clamp_(min=0).mul_(-0.5 / widest**2).exp_()
        mean = kernel.clone()
        for _ in BANDWIDTHS[1:]:  # half the bandwidth is the fourth power
            mean += kernel.square_().square_()
        return mean.mul_(-1 / len(BANDWIDTHS))

    return PairDistance(data, kernels)


def within(rows: Tensor, dissimilarity: Dissimilarity) -> Tensor:
    """The mean dissimilarity of each row to all others, [len(rows)]."""
    parts = [block.sum(dim=1, dtype=torch.float64) for _, block in _blocks(rows, rows, dissimilarity, alone=True)]
    return torch.cat(parts) / (len(rows) - 1)


def across(one: Tensor, other: Tensor, dissimilarity: Dissimilarity) -> tuple[Tensor, Tensor]:
    """The mean dissimilarity of each row of one set to the other set: [m] and [n]."""
    rows, columns = [], torch.zeros(len(other), dtype=torch.float64)
    for _, block in _blocks(one, other, dissimilarity):
        rows.append(block.mean(dim=1, dtype=torch.float64))
        columns += block.sum(dim=0, dtype=torch.float64)
    return torch.cat(rows), columns / len(one)


def _blocks(
    one: Tensor, other: Tensor, dissimilarity: Dissimilarity, *, alone: bool = False
) -> Iterator[tuple[int, Tensor]]:
    """The dissimilarities of some rows of one set to all of the other, and the first row's number; `alone` leaves out
    those of rows to themselves."""
    dtype = torch.float64 if other.shape[1] <= NARROW else torch.float32
    centre = other.mean(dim=0)  # or a mean far from 0 would cost digits
    one, other = (one - centre).to(dtype), (other - centre).to(dtype)
    sizes = other.square().sum(dim=1)
    count = max(1, PAIRS_AT_ONCE // len(other))
    for start in range(0, len(one), count):
        some = one[start : start + count]
        squares = torch.addmm(sizes, some, other.T, alpha=-2).add_(some.square().sum(dim=1, keepdim=True))
        block = dissimilarity(squares)
        if alone:
            block.diagonal(offset=start).zero_()
        yield start, block
