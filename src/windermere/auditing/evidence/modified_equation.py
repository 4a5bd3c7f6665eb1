"""The modified equation: which field a solver's steps follow instead of the model's own.

Steps of size h follow, but for higher powers of h, the flow of f minus a term of size h^p. Of Euler it is h/2 (f_t +
f_z f): a model that is trained with Euler steps learns the field that the data have, plus that term (Zhu et al., 2022).

Shapes: P points (independent of each other, for the field too); states and terms are [P, ...].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.jacobians import check_states
from windermere.errors import UsageError
from windermere.report.numbers import two_digits
from windermere.solvers import Tableau
from windermere.solvers.field import Rate
from windermere.solvers.runge_kutta import combine, stage_nodes, stages

NEARBY = 1e-5
"""The share of a step over which the field is differentiated along its own direction: in float64 its square is lost,
and rounding is not yet seen."""

STANDING = 1e-3
"""Points whose speed is below this share of the mean are as good as at rest: nothing is divided by less."""


@dataclass(frozen=True, kw_only=True)
class ModifiedEquation:
    """The leading term, relative to the field."""

    order: int
    """The method's; the term is of this power of the step."""
    median: float
    largest: float
    points: int
    """Steps looked at: each sampled point at each sampled step of its walk counts."""
    proves: ClassVar[str] = (
        "To leading order the solver's steps follow the flow of the field without this term, and not of the field: a "
        "model that is trained through them learns its term along, and other solvers do not take it away again."
    )
    limits: ClassVar[str] = (
        "It is the leading term alone, so that a large one only says that it is large; nor does it say how much "
        "predictions depend on it."
    )

    @property
    def finding(self) -> str:
        """In words."""
        term = "h/2 (f_t + f_z f)" if self.order == 1 else f"its leading term of order {self.order}"
        largest, median = two_digits(self.largest), two_digits(self.median)
        return f"{term} is up to {largest} times the field along trajectories (median {median})"


@torch.no_grad()
def modified_equation(
    field: Rate, tableau: Tableau, states: Tensor, times: Sequence[float], steps: Sequence[int]
) -> ModifiedEquation:
    """The term at states[n], [P, ...], for the steps n of a walk, from times[n] to times[n + 1] each."""
    check_states(states, times)
    pairs = [_lengths(field, tableau, states[n], times[n], times[n + 1]) for n in steps]
    terms, speeds = (torch.cat(column) for column in zip(*pairs, strict=True))
    if not (terms.isfinite().all() and speeds.isfinite().all()):
        raise UsageError("the field is not finite near finite states: look for a division, root or norm in it")
    if not speeds.any():
        raise UsageError("the field is zero wherever a step begins, and nothing can be compared with it")
    shares = terms / speeds.clamp_min(STANDING * float(speeds.mean()))
    return ModifiedEquation(
        order=tableau.order, median=float(shares.median()), largest=float(shares.max()), points=len(shares)
    )


def _lengths(field: Rate, tableau: Tableau, z: Tensor, start: float, end: float) -> tuple[Tensor, Tensor]:
    """The lengths of the term and of the field at each point, [P] each."""
    rate = field(z.new_tensor(start), z)
    term = eulers_term(field, z, start, end, rate) if tableau.order == 1 else _leading(field, tableau, z, start, end)
    lengths, speeds = (each.reshape(len(z), -1).norm(dim=1) for each in (term, rate))
    return lengths, speeds


def eulers_term(field: Rate, z: Tensor, start: float, end: float, rate: Tensor) -> Tensor:
    """h/2 (f_t + f_z f): the field's derivative along its own direction, by a difference over very little time. A field
    that reads its time as a number would hide that part from autograd, and the term would be wrong in silence."""
    little = NEARBY * (end - start)
    before, behind = (field(z.new_tensor(start + s), z + s * rate) for s in (-little, little))
    return (end - start) / 2 * (behind - before) / (2 * little)


def _leading(field: Rate, tableau: Tableau, z: Tensor, start: float, end: float) -> Tensor:
    """One step against two of half its size: they differ by h^(p + 1) (1 - 2^-p) times the term's coefficient."""
    middle = (start + end) / 2
    whole = _stepped(field, tableau, z, start, end)
    halves = _stepped(field, tableau, _stepped(field, tableau, z, start, middle), middle, end)
    return (whole - halves) / ((end - start) * (1 - 0.5**tableau.order))


def _stepped(field: Rate, tableau: Tableau, z: Tensor, start: float, end: float) -> Tensor:
    nodes = stage_nodes(tableau, np.asarray(start), np.asarray(end))[: tableau.propagating]
    times = torch.as_tensor(nodes, dtype=z.dtype, device=z.device).unbind(0)
    h = end - start
    return combine(z, h, tableau.b, stages(tableau, field, times, z, h))
