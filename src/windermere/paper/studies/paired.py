"""Student's test of differences that are paired by seed."""

from collections.abc import Sequence
from math import exp, lgamma, pi, sqrt
from statistics import fmean, stdev

import numpy as np


def p_value(differences: Sequence[float]) -> float:
    """How likely differences so far from zero would be, on either side, if they were zero in the mean."""
    n = len(differences)
    if n < 2:
        return 1.0
    if (around := stdev(differences) / sqrt(n)) == 0.0:
        return 1.0 if fmean(differences) == 0 else 0.0
    return 2 * tail(abs(fmean(differences)) / around, n - 1)


def tail(t: float, freedom: float) -> float:
    """The probability that Student's t exceeds a positive t: an integral over x = sqrt(freedom) tan(angle)."""
    angles, width = np.linspace(np.arctan(t / sqrt(freedom)), pi / 2, 2001, retstep=True)
    heights = np.clip(np.cos(angles), 0.0, None) ** (freedom - 1)
    simpson = width / 3 * (heights[0] + 4 * heights[1:-1:2].sum() + 2 * heights[2:-1:2].sum() + heights[-1])
    return float(exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi) * simpson)
