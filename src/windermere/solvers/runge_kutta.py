"""One explicit Runge-Kutta step, for any tableau."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere._torch_private import times_written
from windermere.errors import FieldError
from windermere.solvers.field import Rate
from windermere.solvers.tableaus import Tableau


def combine(z: Tensor, h: float | Tensor, weights: Sequence[float], rates: Sequence[Tensor]) -> Tensor:
    """z + h sum_i w_i k_i. A float h is one for all; a tensor h is one for each group."""
    for weight, rate in zip(weights, rates, strict=False):
        if weight != 0.0:
            z = torch.add(z, rate, alpha=h * weight) if isinstance(h, float) else z.addcmul(rate, h, value=weight)
    return z


def stages(
    tableau: Tableau,
    rate: Rate,
    times: Sequence[Tensor],
    z: Tensor,
    h: float | Tensor,
    first: Tensor | None = None,
) -> list[Tensor]:
    """The rates k_i at the given stage times; `first` is k_0 where it is known already.

    As many stages as there are times: a fixed step leaves out those that only the error estimate needs.
    """
    rates = [rate(times[0], z) if first is None else first]
    written = [times_written(rates[0])]
    for row, t in zip(tableau.a[1:], times[1:], strict=False):
        rates.append(rate(t, combine(z, h, row, rates)))
        written.append(times_written(rates[-1]))
    check_kept(rates, written)
    return rates


def check_kept(rates: Sequence[Tensor], written: Sequence[int | None]) -> None:
    """A field may hand out memory that it writes over at a later evaluation: several stages would be the last one."""
    if any(times_written(rate) != before for rate, before in zip(rates, written, strict=True)):
        raise FieldError(
            "the field writes a rate over one before it, in the same memory, and a step needs several of them: let it "
            "return a new tensor, such as a .clone()"
        )


def step_through(tableau: Tableau, rate: Rate, sizes: Sequence[float | Tensor], z: Tensor) -> Tensor:
    """z after steps of these sizes, with a rate that is the same at all times."""
    times = (z.new_zeros(()),) * tableau.propagating
    for h in sizes:
        z = combine(z, h, tableau.b, stages(tableau, rate, times, z, h))
    return z


def stage_nodes(tableau: Tableau, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """The times of the stages of steps between two ends, [stages, ...]: t + h may err past the end by rounding."""
    return np.stack([end if c == 1.0 else start + c * (end - start) for c in tableau.c])
