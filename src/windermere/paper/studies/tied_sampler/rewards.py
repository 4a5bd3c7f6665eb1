"""What samples may be tuned for instead of a distance from data.

Shapes: n samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Reward:
    """It is told by what is missing of it, which is never below 0."""

    shortfall: Callable[[Tensor], Tensor]
    """Minus the reward of each sample, [n]."""
    real: float = 0.0
    """What real samples lack in the mean, so that nobody need care for differences that are far below it."""
