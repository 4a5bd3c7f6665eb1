"""The times of a torchode problem, which every sample may have of its own, as times of one solve.

Shapes: n samples, T evaluation points.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Clock:
    """The times of a problem: as they are where all samples share them, else rescaled to s in [0, 1]."""

    start: Tensor
    """[n]"""
    span: Tensor
    """[n]; ones where nothing is rescaled."""
    same: bool
    times: tuple[float, ...]
    places: NDArray[np.int64]
    """[n, T]: which of `times` each sample is evaluated at."""
    outputs: Tensor
    """[n, T]: its evaluation points, as torchode returns them."""

    @classmethod
    def of(cls, problem: Any) -> "Clock":
        start, end = problem.t_start.double(), problem.t_end.double()
        outputs = problem.t_end[:, None] if problem.t_eval is None else problem.t_eval
        asked = outputs.double()
        same = all(bool((t == t[:1]).all()) for t in (start, end, asked))
        span = torch.ones_like(start) if same else end - start
        moments = asked if same else (asked - start[:, None]) / span[:, None]
        # A sample that starts where it ends does not move: any moment does.
        found = moments.nan_to_num(0.0).cpu().numpy()
        rounding = 16 * torch.finfo(problem.time_dtype).eps
        times, places = _distinct(found, float(start[0]) if same else 0.0, rounding)
        dtype = problem.y0.dtype
        return cls(start.to(dtype), span.to(dtype), same, times, places, outputs)


def _distinct(
    moments: NDArray[np.float64], first: float, rounding: float
) -> tuple[tuple[float, ...], NDArray[np.int64]]:
    """The times to stop at, from the first on, and where among them each moment is found."""
    sign = 1.0 if moments.max() > first else -1.0
    tiny = rounding * abs(moments - first).max()
    rising = np.unique(sign * np.append(moments, first))
    apart = rising[np.append(True, np.diff(rising) > tiny)]
    return tuple((sign * apart).tolist()), np.searchsorted(apart, sign * moments - tiny).clip(max=len(apart) - 1)
