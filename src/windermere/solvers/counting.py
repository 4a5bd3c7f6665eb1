"""Counting evaluations of the field, whoever asks for them: blocks hide their solutions, backward comes later. And
seeing for how long a time solvers are used, which blocks hide as well."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from windermere.errors import UsageError

Tally: TypeAlias = int | NDArray[np.int64]
"""A number of evaluations; in an ensemble one for each member."""
Role = Literal["forward", "backward", "recomputed", "checks", "steps"]


@dataclass
class Count:
    """Evaluations of the field while `counting()` was open; in an ensemble, one number for each member.

    `forward` are those of forward solves, `backward` those of the adjoint's solves, `recomputed` those that
    checkpointing repeats, and `checks` those inside `checking()`. `steps` are all steps accepted in forward solves,
    `longest` those of the solve that took most.

    >>> import torch
    >>> import windermere as wm
    >>> with wm.counting() as count:
    ...     _ = wm.solve(lambda t, z: -z, torch.ones(2), wm.FixedStep("rk4", step=1 / 8))
    >>> count.forward, count.steps
    (32, 8)
    """

    forward: Tally = 0
    """Evaluations of forward solves."""
    backward: Tally = 0
    """Evaluations of the adjoint's solves. Backpropagation makes none: it differentiates the forward ones."""
    recomputed: Tally = 0
    """Evaluations that checkpointing repeats."""
    checks: Tally = 0
    """Evaluations made inside `checking()`: the price of watching the solver."""

    steps: Tally = 0
    """Steps accepted by all solves that were not the adjoint's."""
    longest: Tally = 0
    """Those of the solve that took most of them."""

    def add(self, role: Role, evaluations: Tally) -> None:
        """Solves call this."""
        counted = getattr(self, role)
        by_member = isinstance(counted, np.ndarray) and isinstance(evaluations, np.ndarray)
        if by_member and np.shape(counted) != np.shape(evaluations):
            raise UsageError("one count cannot hold ensembles of different sizes: count each in a context of its own")
        setattr(self, role, counted + evaluations)
        if role == "steps":
            by_member = isinstance(self.longest, np.ndarray) or isinstance(evaluations, np.ndarray)
            self.longest = np.maximum(self.longest, evaluations) if by_member else max(self.longest, evaluations)


_open: ContextVar[tuple[Count, ...]] = ContextVar("open counts", default=())
_checking: ContextVar[bool] = ContextVar("solves are checks", default=False)


@contextmanager
def counting() -> Iterator[Count]:
    """Count the evaluations of every solve inside, in a `Count`. Counts may be nested; each sees all inside it.

    >>> import torch
    >>> import windermere as wm
    >>> with wm.counting() as count:
    ...     end = wm.solve(lambda t, z: -z, torch.ones(3, 2), wm.FixedStep("midpoint", step=1 / 8)).final
    >>> count.forward, count.steps
    (16, 8)
    """
    count = Count()
    _open.set((*_open.get(), count))
    try:
        yield count
    finally:  # those of generators may be left in any order, and even in another thread
        _open.set(tuple(other for other in _open.get() if other is not count))


@contextmanager
def checking() -> Iterator[None]:
    """Within `with checking():`, evaluations count as `checks`, not as `forward` or `backward`.

    >>> import torch
    >>> import windermere as wm
    >>> with wm.counting() as count, wm.checking():
    ...     _ = wm.solve(lambda t, z: -z, torch.ones(2), wm.FixedStep("euler", step=1 / 8))
    >>> count.forward, count.checks
    (0, 8)
    """
    token = _checking.set(True)
    try:
        yield
    finally:
        _checking.reset(token)


_spans: ContextVar[dict[Hashable, float] | None] = ContextVar("spans of solves", default=None)


@contextmanager
def noting_spans() -> Iterator[dict[Hashable, float]]:
    """The longest time that each solver is asked to solve for inside; an ensemble's are noted under its first."""
    spans: dict[Hashable, float] = {}
    token = _spans.set(spans)
    try:
        yield spans
    finally:
        _spans.reset(token)


def note_span(solver: Hashable, span: float) -> None:
    """Solves call this."""
    if (spans := _spans.get()) is not None:
        spans[solver] = max(span, spans.get(solver, 0.0))


@dataclass(frozen=True)
class Ledger:
    """The counts that were open when a solve began: backward may run later, and in another thread."""

    counts: tuple[Count, ...]
    checking: bool

    @classmethod
    def current(cls) -> "Ledger":
        return cls(_open.get(), _checking.get())

    def add(self, role: Role, evaluations: Tally) -> None:
        for count in self.counts:
            count.add("checks" if self.checking and role != "steps" else role, evaluations)
