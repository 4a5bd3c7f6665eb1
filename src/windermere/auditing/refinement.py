"""Ever finer solvers for the reference flow: where they begin, and how much is asked of each.

Steps are counted for the time span of one solve; n is the number of the model's own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from math import ceil, floor, log2

import numpy as np

from windermere.auditing.subject import Change, Pass, Subject
from windermere.checks import tidy
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

FIRST_MULTIPLES = (1, 2, 4)
"""The first solves, in multiples of the coarsest one's steps: where they are the same, solvers of the table too."""
OFF_THE_GRID = 7
"""The next is on other nodes, and judged first: features of time such as cos(16 pi t) have the same value on all nodes
of 1, 2 and 4 steps, which would agree without having seen them. From there on steps are halved."""
PLENTY = 3.5 * 16, 3.5
"""So many steps, or so many times the own ones, are taken for fine; of fewer more is asked."""
SHARE_OF_OWN = 0.1
"""The share of the training solver's error that the reference's may be (medians over samples)."""
SHARE_OF_STATE = 0.01
"""And of the state: where the training solver blows up, its error is no measure."""
OF_FEW_STEPS = 0.1
"""By this the shares are multiplied where the reference has few steps: it may seem to be converged by chance."""
BESIDE_ADAPTIVE = 0.25
"""The share of a fixed step to begin with where the last solve is adaptive, and steps can't be counted apart."""
FINEST_TOLERANCE = 1e-13


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """One of ever finer solvers."""

    change: Change
    """From a solve's own solver to this."""
    size: float
    """Its step in units of the coarsest one's."""
    judged: bool
    """Whether it may be the reference."""
    share: float
    """By which the errors that it may have are multiplied."""
    evaluations: float
    """What it is taken to cost where that can't be counted; ever more, so that a budget ends some time."""


def refinements(subject: Subject, own: Pass) -> Iterator[Refinement]:
    """For models trained with adaptive steps tolerances are tightened (dopri54), ending where float64 does. Else steps
    are shortened (rk4), from what the own solver's error asks for: a method of first order errs as much as rk4, on a
    field that is not smooth, with the root of its steps; others with about as many."""
    solver = subject.solvers[-1]
    if isinstance(solver, Adaptive):
        last = round(np.log10(_loosest(solver) / FINEST_TOLERANCE))
        for k in range(last + 1):
            change = partial(_finer, BESIDE_ADAPTIVE * 2.0**-k, 10.0**-k)
            yield Refinement(change=change, size=2.0**-k, judged=True, share=1.0, evaluations=2.0**k)
        return
    steps = own.evaluations / solver.tableau.propagating / len(subject.solvers) or 1 / solver.precision
    longest = _longest(steps, solver.order)
    for k, multiple in enumerate(_multiples()):
        taken = multiple * steps / longest
        yield Refinement(
            change=partial(_finer, longest / multiple, 10.0**-k),
            size=1 / multiple,
            judged=multiple >= OFF_THE_GRID,
            share=OF_FEW_STEPS if taken < max(PLENTY[0], PLENTY[1] * steps) else 1.0,
            evaluations=4 * taken * len(subject.solvers),
        )


def _multiples() -> Iterator[int]:
    return chain(FIRST_MULTIPLES, (OFF_THE_GRID * 2**k for k in count()))


def _longest(steps: float, order: int) -> float:
    """The first step in units of the own one: a power of 2, as the table's are, and no longer than the time span."""
    wanted = ceil(log2(steps) / 2) if order == 1 else 1
    return 2.0 ** min(wanted, floor(log2(steps))) if steps > 1 else 1.0


def _loosest(own: Adaptive) -> float:
    """The tolerance to begin with, so that there is room for three."""
    return max(min(own.precision, 1e-3) / 10, 100 * FINEST_TOLERANCE)


def _finer(factor: float, tightened: float, own: Solver) -> Solver:
    """Each solve in its own kind, since fixed and adaptive steps may stand side by side: a factor of its own step, or
    of the loosest tolerance."""
    if isinstance(own, Adaptive):
        tolerance = max(_loosest(own) * tightened, FINEST_TOLERANCE)
        return Adaptive("dopri54", tolerance=tolerance, max_steps=100_000)
    step = tidy(own.precision * factor)
    return OnGrid("rk4", own.with_precision(step).times) if isinstance(own, OnGrid) else FixedStep("rk4", step=step)


def observed_order(ratio: float, sizes: tuple[float, float, float]) -> float:
    """The order p at which solves with three step sizes a > b > c differ by such a ratio, (b^p - c^p) / (a^p - b^p):
    the difference of the last two over that of the first two. Between 0.01, where refining brings nothing, and 5."""
    a, b, c = sizes
    orders = np.linspace(5, 0.01, 1000)
    return float(np.interp(ratio, (b**orders - c**orders) / (a**orders - b**orders), orders))


def left_over(order: float, sizes: tuple[float, float]) -> float:
    """The finer solve's error as a share of its difference from the coarser one: b^p / (a^p - b^p), sizes a > b."""
    a, b = sizes
    return float(b**order / (a**order - b**order))
