"""The Frechet distance: that of the two normal distributions with the sets' means and covariances.

Shapes: m generated samples, n real ones, d features, B random splits.

On the features of an Inception network this is the FID. It grows as sets get smaller; a difference of two sets of one
size has hardly any of that bias.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from windermere.auditing.sets.measured import Measured

MANY, FEW_SPLITS = 256, 20
"""With so many features, a distance takes seconds, and few random splits have to do."""


@dataclass(frozen=True, eq=False)
class FrechetDistance:
    """The distance against one set of real samples."""

    data: Tensor
    """[n, d]"""
    growth = 1.0
    """The distance of two sets of one distribution is proportional to 1/m + 1/n."""

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        return _moments(self.data)

    @cached_property
    def _root(self) -> Tensor:
        return _power(self._moments[1], 0.5)

    def measure(self, generated: Tensor) -> Measured:
        mean, covariance = _moments(generated)
        real_mean, real = self._moments
        middle = self._root @ covariance @ self._root
        shift = mean - real_mean
        value = shift @ shift + (covariance.trace() + real.trace()) - 2 * _power(middle, 0.5).trace()
        # The optimal map between the normal distributions is linear; it says what a change of a covariance costs.
        back = self._root @ _power(middle, -0.5) @ self._root
        there = _power(back, -1.0)
        return Measured(
            float(value), _influence(generated - mean, shift, back), _influence(self.data - real_mean, -shift, there)
        )

    def splits(self, chosen: Tensor, signs: Tensor) -> Tensor:
        """The distance between the two halves of the chosen real samples, for each column of signs [len(chosen), B]."""
        rows = self.data[chosen]
        few = signs.T if rows.shape[1] <= MANY else signs.T[:FEW_SPLITS]
        return torch.stack([_distance(rows[sign > 0], rows[sign < 0]) for sign in few])


def _distance(one: Tensor, other: Tensor) -> Tensor:
    (mean, covariance), (other_mean, other_covariance) = _moments(one), _moments(other)
    root = _power(other_covariance, 0.5)
    crossed = torch.linalg.eigvalsh(root @ covariance @ root).clamp(min=0).sqrt().sum()
    distance: Tensor = (mean - other_mean).square().sum() + covariance.trace() + other_covariance.trace() - 2 * crossed
    return distance


def _influence(centred: Tensor, shift: Tensor, linear: Tensor) -> Tensor:
    """Each sample's influence on |shift|^2 + tr(C) - 2 tr((C C')^(1/2)), where `linear` takes N(0, C) to N(0, C')."""
    return 2 * centred @ shift + centred.square().sum(dim=1) - (centred @ linear * centred).sum(dim=1)


def _moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean = rows.mean(dim=0)
    return mean, (rows - mean).T @ (rows - mean) / (len(rows) - 1)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """A power of a symmetric matrix without negative eigenvalues; directions in which it is 0 stay so."""
    values, vectors = torch.linalg.eigh(matrix)
    nothing = values <= 1e-12 * values[-1].clamp(min=1e-300)
    powers = torch.where(nothing, 0.0, values.clamp(min=1e-300) ** exponent)
    result: Tensor = (vectors * powers) @ vectors.T
    return result
