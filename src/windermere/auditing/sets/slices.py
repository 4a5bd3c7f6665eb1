"""The sliced Wasserstein distance: sets are projected onto lines, where sorting tells the distance exactly.

Shapes: m generated samples, n real ones, d features, L lines, B random splits.

On a line the Wasserstein distance of order 1 is the area between two distribution functions. Empirical sets of one
distribution are never at distance 0, so this one has a bias: it estimates the distance of sets *of that size*.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from windermere.auditing.sets.measured import Measured

LINES = 64


@dataclass(frozen=True, eq=False)
class SlicedWasserstein:
    """The distance against one set of real samples, along fixed lines."""

    data: Tensor
    """[n, d]"""
    lines: Tensor
    """[d, L], each of length 1"""
    growth = 0.5
    """The distance of two sets of one distribution is proportional to the square root of 1/m + 1/n."""

    def measure(self, generated: Tensor) -> Measured:
        m, n = len(generated), len(self.data)
        places, order = (torch.cat([generated, self.data]) @ self.lines).T.sort(dim=1)
        gaps = places.diff(dim=1)
        masses = torch.where(order < m, n, -m)  # whole numbers: a sign must be right where two functions meet
        apart = masses.cumsum(dim=1)[:, :-1].double() / (m * n)
        potential = torch.zeros_like(places)
        potential[:, 1:] = (apart.sign() * gaps).cumsum(dim=1)
        pull = torch.zeros_like(places).scatter_(1, order, potential).mean(dim=0)
        return Measured(float((apart.abs() * gaps).sum(dim=1).mean()), -pull[:m], pull[m:])

    def splits(self, chosen: Tensor, signs: Tensor) -> Tensor:
        """The distance between the two halves of the chosen real samples, for each column of signs [len(chosen), B]."""
        places, order = (self.data[chosen] @ self.lines).T.sort(dim=1)
        gaps = places.diff(dim=1).to(signs.dtype)
        areas = [
            signs[o].cumsum(dim=0)[:-1].abs_().mul_(g[:, None]).sum(dim=0) for o, g in zip(order, gaps, strict=True)
        ]
        return torch.stack(areas).mean(dim=0) / (len(chosen) // 2)


def sliced_wasserstein(data: Tensor, generator: torch.Generator) -> SlicedWasserstein:
    """Along lines in random directions; in one dimension there is only one."""
    count = LINES if data.shape[1] > 1 else 1
    lines = torch.randn(data.shape[1], count, generator=generator, dtype=torch.float64)
    return SlicedWasserstein(data, lines / lines.norm(dim=0))
