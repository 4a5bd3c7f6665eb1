"""The first step: Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, p. 169."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere._torch_private import times_written
from windermere.checks import is_whole
from windermere.errors import NonFiniteError, UsageError
from windermere.solvers.field import Field, packed_rate
from windermere.solvers.layout import Layout, State, lay_out
from windermere.solvers.paths import prepare
from windermere.solvers.runge_kutta import check_kept, combine
from windermere.solvers.times import check_times

Numbers = NDArray[np.float64]


def probing_step(d0: Numbers, d1: Numbers) -> Numbers:
    """h0 = 0.01 d0/d1: a small Euler step that feels how the field changes."""
    tiny = (d0 < 1e-5) | (d1 < 1e-5)
    return np.where(tiny, 1e-6, 0.01 * d0 / np.where(tiny, 1.0, d1))


def proposed_step(h0: Numbers, d1: Numbers, d2: Numbers, order: int) -> Numbers:
    """h = min(100 h0, h1), with h1 from the size of the field and of its derivative."""
    largest = np.maximum(d1, d2)
    flat = largest < 1e-15
    h1 = np.where(flat, np.maximum(1e-6, 1e-3 * h0), (0.01 / np.where(flat, 1.0, largest)) ** (1 / (order + 1)))
    return np.minimum(100 * h0, h1)


def initial_step(
    field: Field,
    z0: State,
    *,
    order: int,
    times: tuple[float, float] = (0.0, 1.0),
    members: int | None = None,
) -> Any:
    """A first step for a method of this order, by the rule of Hairer, Norsett and Wanner: where adaptation starts.

    `field`, `z0` and `times` are as for `solve`; `order` is that of the training method (`solver.order`). Returns a
    float; with `members`, for a state [members, samples, ...], an array with one for each. Costs two evaluations.

    >>> import torch
    >>> import windermere as wm
    >>> round(wm.initial_step(lambda t, z: -z, torch.ones(8, 2), order=1), 3)
    0.084
    """
    # d0, d1, d2 are means over the samples of Euclidean norms over all of a sample's entries.
    if not is_whole(order, least=1):
        raise UsageError(f"the order of a method is a whole number, at least 1, not {order}: give solver.order")
    layout = lay_out(z0, members=members, samples=False)
    z = layout.pack(z0).detach()
    if not z.numel():
        raise UsageError("no first step can be chosen: the batch is empty")
    ready, _ = prepare(field, z)
    rate = packed_rate(layout, ready.rate)
    start, *_, end = check_times(times)
    span = end - start
    # A field that is not finite divides zero by zero on the way; it is named at the end.
    with torch.no_grad(), np.errstate(invalid="ignore", divide="ignore"):
        t = layout.columns(np.full(layout.groups, start), z)
        k = rate(t, z)
        written = times_written(k)
        d0, d1 = _mean_norm(z, layout), _mean_norm(k, layout)
        h0 = np.sign(span) * np.minimum(probing_step(d0, d1), abs(span))  # behind its end a field may be anything
        probe = combine(z, by_group(h0, layout, z), (1.0,), (k,))
        probed = rate(layout.columns(start + h0, z), probe)
        check_kept([k], [written])
        d2 = _mean_norm(probed - k, layout) / abs(h0)
        h = np.minimum(proposed_step(abs(h0), d1, d2, order), abs(span))
    if not np.isfinite(h).all():
        raise NonFiniteError(f"no first step can be chosen: the field is not finite at t = {start} for this state")
    return float(h) if members is None else h


def by_group(values: Numbers, layout: Layout, like: Tensor) -> float | Tensor:
    """A plain float where there is one group: the fast path of `combine`."""
    return layout.columns(values, like) if layout.groups else float(values)


def _mean_norm(value: Tensor, layout: Layout) -> Numbers:
    """The mean over a group's samples of the norm of each."""
    norms = value.flatten(layout.lead).norm(dim=-1) if value.ndim > layout.lead else value.abs()
    means: Numbers = norms.reshape(*layout.groups, -1).mean(dim=-1).cpu().double().numpy()
    return means
