"""The solvers that an audit tries beside a model's own: the paper's, at shares and multiples of its own precision."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from windermere.auditing.samples import first as first_samples
from windermere.auditing.subject import FEW, Subject
from windermere.checks import as_number, tidy
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver, adaptive_names, counting
from windermere.solvers.tableaus import tableau

STEP_METHODS, STEP_FACTORS = ("euler", "midpoint", "rk4"), (0.5, 0.75, 1.0, 1.5, 2.0)
TOLERANCE_METHODS, TOLERANCE_FACTORS = ("dopri54",), (0.1, 1.0, 10.0)
"""Methods, and factors of the training step or tolerance: what the paper tests with."""


@dataclass(frozen=True)
class Candidate:
    """A solver to test with, given by what it makes of a solve's own one: another method, a precision by a factor.

    >>> import windermere as wm
    >>> print(wm.Candidate("rk4", 0.5)(wm.FixedStep("euler", step=1 / 8)))
    rk4, h = 1/16
    """

    method: str
    factor: float

    def __post_init__(self) -> None:
        tableau(self.method)  # an unknown method fails here, not when it is tried
        if not 0 < as_number(self.factor) < inf:
            raise UsageError(f"a candidate's factor must be positive and finite, not {self.factor}: 0.5 halves a step")

    def __call__(self, own: Solver) -> Solver:
        precision = tidy(own.precision * self.factor)
        if isinstance(own, Adaptive):
            scaled = own.with_precision(precision)
            # Beside blocks of fixed steps a method may come by that has no error estimate: only the tolerance changes.
            return replace(scaled, tolerance=None, method=self.method) if self.method in adaptive_names() else scaled
        if isinstance(own, OnGrid):
            return OnGrid(self.method, own.with_precision(precision).times)
        return FixedStep(self.method, step=precision)


def default_candidates(own: Solver) -> list[Candidate]:
    """Euler, midpoint and rk4 at five step factors, or the own method and dopri54 at three tolerance factors."""
    adaptive = isinstance(own, Adaptive)
    methods: tuple[str, ...] = TOLERANCE_METHODS if adaptive else STEP_METHODS
    factors: tuple[float, ...] = TOLERANCE_FACTORS if adaptive else STEP_FACTORS
    names = methods if own.method in methods else (own.method, *methods)
    return [Candidate(name, factor) for name in names for factor in factors]


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """By method, then from fine to coarse; each once."""
    methods = list(dict.fromkeys(c.method for c in candidates))
    return sorted(set(candidates), key=lambda c: (methods.index(c.method), c.factor))


def within_span(candidates: Sequence[Candidate], subject: Subject, x: Any) -> list[Candidate]:
    """Without steps longer than the time span, which are all the same single step, nor the same grid twice."""
    own = subject.solvers[-1]
    if not isinstance(own, FixedStep):
        distinct = {tuple(c(solver) for solver in subject.solvers): c for c in reversed(candidates)}
        return list(reversed(distinct.values()))
    with counting() as count:
        taken = subject.forward(first_samples(x, FEW), None).evaluations / own.tableau.propagating
    # Of one solve: our own count tells them apart, where a block is called several times; others' are taken for alike.
    steps = float(np.max(count.longest)) or taken / len(subject.solvers)
    return [c for c in candidates if c.factor <= max(1.0, steps) or not steps]
