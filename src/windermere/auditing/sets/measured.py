"""A distance between two sets, and what each sample contributes to it: from that come all intervals.

Shapes: m generated samples, n real ones.

The intervals are jackknife intervals. A distance is a function of two empirical distributions; how it changes when one
sample gets more weight is that sample's *influence*, and the variance of the influences over the number of samples is
the variance of the distance. Where two sets were generated from the same noise, the influences are subtracted sample by
sample, and so are those of the real samples, which both sets are compared with: what both have in common cancels.

Of two sets with the same distribution the influences are nearly nothing but noise themselves. There the jackknife errs
on the safe side (for energy and MMD its variance is twice the true one; Efron and Stein 1981), so that an interval is
too wide rather than too narrow. A bootstrap, which draws samples repeatedly, would shift these distances instead.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from windermere.auditing.statistics import CONFIDENT, Gap
from windermere.errors import UsageError


@dataclass(frozen=True, eq=False)
class Measured:
    """The distance of one generated set from the real one."""

    value: float
    """Near 0, and for energy and MMD below it as often as above, where both sets have the same distribution."""
    of_generated: Tensor
    """[m]: the influence of each generated sample, up to a constant."""
    of_data: Tensor
    """[n]: the influence of each real sample, up to a constant."""

    def interval(self) -> Gap:
        """The distance with its 95% interval."""
        return _interval(self.value, self.of_generated, self.of_data)


def set_gap(own: Measured, other: Measured) -> Gap:
    """How much farther `own` is from the data than `other`, with a 95% interval; both come from the same noise, sample
    by sample, and were measured against the same data."""
    if len(own.of_generated) != len(other.of_generated) or len(own.of_data) != len(other.of_data):
        raise UsageError(
            "two generated sets are compared sample by sample: give sets of the same size, from the same noise, "
            "measured against the same data"
        )
    return _interval(own.value - other.value, own.of_generated - other.of_generated, own.of_data - other.of_data)


def _interval(value: float, of_generated: Tensor, of_data: Tensor) -> Gap:
    variance = sum(float(torch.var(part)) / len(part) for part in (of_generated, of_data))
    half = CONFIDENT * sqrt(variance)
    return Gap(value=value, low=value - half, high=value + half, samples=len(of_generated))
