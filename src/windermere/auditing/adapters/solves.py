"""What a model asks its library to solve, and how it is answered: by the library itself, or by ours."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor, float64

from windermere.auditing.subject import Change
from windermere.errors import DoublePrecisionError
from windermere.nn.draws import Draws
from windermere.nn.model_calls import parts_of
from windermere.solvers import METHODS, Adaptive, Field, Solution, Solver, State, solve

Watch: TypeAlias = Callable[[Tensor], None]
"""Told the rate of every evaluation of the field."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One solve, as a model asked for it."""

    own: Solver
    """Our equivalent of what it asked for."""
    notes: tuple[str, ...]
    """Where `own` is not quite the same."""
    field: Field
    start: State
    """As the model knows it: a tensor or a tuple of them, not flattened."""
    times: tuple[float, ...]
    original: Callable[[Watch], Any]
    """The library's own result."""
    end_of: Callable[[Any], State]
    """Where such a result ends."""
    result: Callable[[Solution], Any]
    """Our solution, as the library would have returned it."""
    lands: bool = False
    """Whether the library's adaptive steps land on every time. Otherwise, and on fixed grids, it interpolates."""


class Tape:
    """Answers the solves of one pass, and keeps what is to be known of them."""

    def __init__(
        self,
        change: Change | None,
        *,
        double: bool = False,
        copy: int | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.change, self.double, self.copy, self.draws = change, double, copy, draws
        self.missed = 0
        self.solvers: list[Solver] = []
        self.notes: list[str] = []
        self.evaluations = 0
        self.solving = 0
        """How many solves are under way: a field may solve on its own."""
        self.outer = 0
        """Solves that are not within a field."""
        self.last: Asked | None = None
        """The solve that ended last."""
        self.end: State | None = None

    def answer(self, asked: Asked) -> Any:
        for part in parts_of(asked.start):
            self._check_double(part, "a solve starts from")
        self.solving += 1
        try:
            with nullcontext() if self.draws is None else self.draws.of_a_solve():
                result = self._solved(asked)
        finally:
            self.solving -= 1
        self.solvers.append(asked.own)
        self.outer += not self.solving
        self.notes.extend(note for note in asked.notes if note not in self.notes)
        self.last, self.end = asked, asked.end_of(result)
        return result

    def _solved(self, asked: Asked) -> Any:
        if self.change is None:
            return asked.original(self.watch)
        solver = self.change(asked.own)
        interpolate = not (asked.lands and isinstance(solver, Adaptive))
        field = asked.field if self.draws is None else partial(drawing_again, asked.field, self.draws)
        solution = solve(field, asked.start, solver, asked.times, interpolate=interpolate)
        self.evaluations += int(np.max(solution.stats.evaluations))
        return asked.result(solution)

    def watch(self, rate: Tensor) -> None:
        self.evaluations += 1
        if self.draws is not None:
            self.draws.again()
        if isinstance(rate, Tensor):
            self._check_double(rate, "the field returns")

    def _check_double(self, value: Tensor, what: str) -> None:
        if self.double and value.dtype != float64:
            kind = str(value.dtype).removeprefix("torch.")
            raise DoublePrecisionError(f"{what} {kind} although the model and its inputs are in float64")


def drawing_again(field: Field, draws: Draws, t: Tensor, z: Any) -> Any:
    """The rate of a field whose next evaluation draws the same random numbers."""
    rate = field(t, z)
    draws.again()
    return rate


def as_written(number: Any) -> float:
    """A number as its author wrote it: 0.001 where it became 0.0010000000475 in float32. Of several, the smallest."""
    values = number.detach().cpu().numpy() if isinstance(number, Tensor) else np.asarray(number)
    return float(str(values.min()))


def nearest_method(order: int, *, adaptive: bool) -> str:
    """Our method whose order is nearest: for a solver of theirs that we do not have."""
    known = [t for t in METHODS.values() if t.b_embedded is not None or not adaptive]
    return min(known, key=lambda t: abs(t.order - order)).name


def stand_in_note(library: str, name: str, method: str) -> str:
    return (
        f"{library}'s {name} is not among Windermere's methods: the model's own pass runs it as it is, and where "
        f"a solver of ours must stand for it that is {method}, the nearest by order"
    )
