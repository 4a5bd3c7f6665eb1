"""Times of its own for each sample, for batches whose samples were observed at different moments.

Shapes: B samples, n times of each. A row that has fewer repeats its last one at its end.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windermere.errors import UsageError, describe_value
from windermere.solvers.solver import Adaptive, OnGrid, Solver
from windermere.solvers.times import UNORDERED, Times, check_times_are_numbers

TimesGiven: TypeAlias = Sequence[Any] | NDArray[Any] | Tensor
"""Times for all, [n], or rows of them by sample, [B, n]."""
Rows: TypeAlias = NDArray[np.float64]
ROWS = (tuple, list)


def are_by_sample(times: Any) -> bool:
    """Whether these are rows of times, one for each sample, not times that all samples share."""
    if isinstance(times, ROWS):
        first: Any = times[0] if times else None
        if type(first) is float:  # so it is in most solves, and they should be quick
            return False
        return isinstance(first, ROWS) or (getattr(first, "ndim", 0) > 0 and len(first) > 1)
    return times is not None and getattr(times, "ndim", 1) > 1


def check_sample_times(times: Any, samples: int) -> Times:
    """Each sample's own times, given as [B, n]: n arrays [B], copied, since a way back may come later."""
    check_times_are_numbers(times)
    rows = _rows(times)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise UsageError(f"times must be [n], or [samples, n] with n of 2 or more, not of shape {rows.shape}")
    if len(rows) != samples:
        raise UsageError(
            f"times has {len(rows)} rows, but the state has {samples} samples: give each sample a row of its own"
        )
    for bad in np.flatnonzero(~_are_in_order(rows))[:1]:
        raise UsageError(
            "each sample's times must be finite, and all rise or all fall (at the end of its row the last one may be "
            f"repeated), but those of sample {bad} are {describe_value(rows[bad].tolist())}"
        )
    return tuple(rows.T.copy())


def check_steps_by_sample(solvers: Sequence[Solver], *, ensemble: bool) -> None:
    """Samples that end at different times cannot share their steps."""
    if ensemble:
        raise UsageError(
            "times of its own for each sample are not for ensembles: solve for one member after the other, or give "
            "all samples the same times"
        )
    if isinstance(solvers[0], OnGrid) or (isinstance(solvers[0], Adaptive) and solvers[0].control != "sample"):
        raise UsageError(
            f"where each sample has times of its own it needs steps of its own, which {solvers[0]} does not give it: "
            "take Adaptive(..., control='sample') or a FixedStep"
        )


def _rows(times: Any) -> Rows:
    try:
        rows = [_numbers(row) for row in times] if isinstance(times, ROWS) else _numbers(times)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UsageError(f"times must be rows of numbers, one for each sample, not {describe_value(times)}") from error
    if isinstance(rows, list) and len({row.shape for row in rows}) > 1:
        raise UsageError(
            "the rows of times must be of one length: where a sample has fewer, repeat its last one at the row's end"
        )
    return np.asarray(rows)


def _numbers(values: Any) -> Rows:
    if isinstance(values, UNORDERED) or (isinstance(values, Tensor | np.ndarray) and np.iscomplexobj(values)):
        raise TypeError
    if isinstance(values, Tensor):
        return np.asarray(values.detach().cpu().double().numpy())
    return np.asarray([float(t) for t in values] if isinstance(values, ROWS) else values, np.float64)


def _are_in_order(rows: Rows) -> NDArray[np.bool_]:
    """[B]: whether a row goes one way, strictly, until it stands still; one that does so from the start is in order."""
    finite = np.asarray(np.isfinite(rows).all(axis=1))
    steps = np.diff(np.where(finite[:, None], rows, 0.0), axis=1)
    moves = steps * np.sign(steps.sum(axis=1, keepdims=True)) > 0
    until_it_stands = (moves[:, :-1] | ~moves[:, 1:]).all(axis=1)
    return np.asarray(finite & until_it_stands & (moves | (steps == 0)).all(axis=1))
