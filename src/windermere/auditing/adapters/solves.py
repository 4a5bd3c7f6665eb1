"""What a model asks its library to solve, and how it is answered: by the library itself, or by ours."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, float64

from windermere.auditing.subject import Change
from windermere.errors import DoublePrecisionError
from windermere.nn.draws import Draws
from windermere.nn.model_calls import parts_of
from windermere.solvers import (
    METHODS,
    Adaptive,
    Field,
    FixedStep,
    OnGrid,
    Solution,
    Solver,
    State,
    Stats,
    counting,
    solve,
)
from windermere.solvers.landing import is_landing
from windermere.solvers.odeint_call import Call
from windermere.solvers.odeint_options import AdaptiveSteps, FixedSteps

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
    times_in: torch.dtype = float64
    """The dtype that has rounded these times: one that is a step's end but for that is one."""
    original: Callable[[Watch], Any]
    """The library's own result."""
    end_of: Callable[[Any], State]
    """Where such a result ends."""
    result: Callable[[Solution], Any]
    """Our solution, as the library would have returned it."""
    lands: bool = False
    """Whether the library's adaptive steps land on every time. Otherwise, and on fixed grids, it interpolates."""
    interp: str | None = None
    """How the library has states between two nodes of fixed steps, by odeint's names; None where as our methods do."""
    stops: tuple[float, ...] = ()
    """Times at which adaptive steps are to end."""
    jumps: tuple[float, ...] = ()
    """Times at which the field jumps: adaptive steps end there, and stay on their side of it."""
    by_library: Callable[[Adaptive, Watch], Any] = lambda solver, watch: None
    """What the library itself makes of another method or tolerance, which is what a user would get who changed it
    there; None where a solver of ours has to stand for it."""


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
        self.ends: list[State] = []
        """Where the outer solves ended."""
        self.straight = False
        """Whether states were asked for that lie on a straight line between two steps of a solver that was tried."""

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
        if not self.solving:
            self.ends.append(self.end)
        return result

    def _solved(self, asked: Asked) -> Any:
        if self.change is None:
            return asked.original(self.watch)
        solver = self.change(asked.own)
        if isinstance(solver, Adaptive) and not is_landing():
            its = asked.by_library(solver, self.watch)
            if its is not None:
                return its
        interpolate = not (asked.lands and isinstance(solver, Adaptive))
        field = asked.field if self.draws is None else partial(drawing_again, asked.field, self.draws)
        between = asked.interp is not None and len(asked.times) > 2 and not is_landing()
        if isinstance(solver, Adaptive) and (asked.stops or asked.jumps):
            solution = self._in_legs(field, asked, solver)
        elif isinstance(solver, Adaptive) or not between:
            solution = solve(field, asked.start, solver, asked.times, interpolate=interpolate)
        else:
            solution, inside = _on_its_grid(field, asked, solver)
            self.straight |= inside and asked.interp == "linear"
        self.evaluations += int(np.max(solution.stats.evaluations))
        return asked.result(solution)

    def _in_legs(self, field: Field, asked: Asked, solver: Adaptive) -> Solution:
        """As `odeint` solves where steps end at some times. What solves within the field evaluate counts as theirs."""
        before = self.evaluations
        with counting() as count:
            call = _as_call(field, asked, AdaptiveSteps(solver, asked.stops, asked.jumps))
            states = call.states()
        own = int(np.max(count.checks) + np.max(count.forward)) - (self.evaluations - before)
        return _solution(asked, states, Stats(evaluations=own, accepted=0, rejected=0))

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


def _on_its_grid(field: Field, asked: Asked, solver: FixedStep | OnGrid) -> tuple[Solution, bool]:
    """As `odeint` solves by these steps: on its own grid, and by interpolation between two nodes of it, so that a step
    that is safe here is safe there; and whether some of the times lie between two nodes."""
    nodes = solver.nodes(asked.times[0], asked.times[-1])
    call = _as_call(field, asked, FixedSteps(solver, torch.as_tensor(nodes), (), asked.interp or "linear"))
    states, taken = call.states(), len(nodes) - 1
    cost = Stats(evaluations=taken * solver.tableau.propagating, accepted=taken, rejected=0)
    return _solution(asked, states, cost), call.interpolates


def _as_call(field: Field, asked: Asked, steps: FixedSteps | AdaptiveSteps) -> Call:
    first, *_ = parts_of(asked.start)
    t = torch.tensor(asked.times, dtype=asked.times_in)
    return Call(
        func=field, field=field, start=asked.start, t=t, times=asked.times, dtype=first.real.dtype, steps=steps,
        gradient="backprop",
    )  # fmt: skip


def _solution(asked: Asked, states: State, cost: Stats) -> Solution:
    final = states[-1] if isinstance(states, Tensor) else tuple(part[-1] for part in states)
    return Solution(times=asked.times, states=states, final=final, stats=cost, trajectory=None)


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


def name_note(name: str, method: str) -> tuple[str, ...]:
    """Both of torchdiffeq's and our name of a method, where they differ: verdicts have ours."""
    if name == method:
        return ()
    besides = " (the 3/8 rule; our rk4 is the classical one)" if name == "rk4" else ""
    return (f"torchdiffeq's {name} is called {method} here{besides}",)


def stand_in_note(library: str, name: str, method: str) -> str:
    return (
        f"{library}'s {name} is not among Windermere's methods: the model's own pass runs it as it is, and where "
        f"a solver of ours must stand for it that is {method}, the nearest by order"
    )
