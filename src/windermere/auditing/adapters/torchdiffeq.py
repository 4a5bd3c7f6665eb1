"""Models that solve with torchdiffeq, however they imported `odeint` or `odeint_adjoint`.

Both look their solver up in one table when they are called. Only that table is changed, and only while passes run; what
other threads ask it for, they get from the library itself.
`odeint_dense` alone goes past it, and is not seen.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq._impl.misc import _flat_to_shape, _PerturbFunc, _ReverseFunc, _TupleFunc
from torchdiffeq._impl.odeint import SOLVERS
from torchdiffeq._impl.solvers import FixedGridODESolver

from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Asked, Tape, Watch, as_written, name_note, nearest_method, stand_in_note
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.errors import AuditError, SolverError
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solution, Solver, State
from windermere.solvers.odeint_options import ADAPTIVE, FIXED, stops_in

METHODS = {**FIXED, **ADAPTIVE}
"""Torchdiffeq's names of methods and ours. Its rk4 is the 3/8 rule."""
WRONG_STAGE = (
    "torchdiffeq's {0} takes over a stage from the step before that is not the field there: the model's own pass keeps "
    "that, and so do rows of {1}"
)


def _replace_entries() -> Callable[[], None]:
    """One by one, so that no thread ever finds a name missing; what is not ours by then, others have put there."""
    entries = {name: _Entry(name, original) for name, original in SOLVERS.items()}
    SOLVERS.update(entries)

    def restore() -> None:
        for name, entry in entries.items():
            if SOLVERS.get(name) is entry:
                SOLVERS[name] = entry.original

    return restore


TABLE: Interception[Tape] = Interception(_replace_entries)


class TorchdiffeqSubject(TorchSubject):
    """A module whose forward pass calls torchdiffeq, as it is."""

    library = "torchdiffeq"
    calls = TABLE


def _about(name: str, method: str) -> tuple[str, ...]:
    """What torchdiffeq's method is, if it is not ours of that name."""
    if name not in METHODS:
        return (stand_in_note("torchdiffeq", name, method),)
    if name in ("fehlberg2", "adaptive_heun"):
        return (WRONG_STAGE.format(name, method),)
    return name_note(name, method)


@dataclass(frozen=True)
class _Entry:
    """Stands in the table for one of its solvers."""

    name: str
    original: Any

    def valid_callbacks(self) -> Any:
        return self.original.valid_callbacks()

    def __call__(self, func: nn.Module, y0: Tensor, rtol: Any, atol: Any, **options: Any) -> Any:
        tape = TABLE.watcher(_Wrapped.of(func).field)
        if tape is None:
            return self.original(func=func, y0=y0, rtol=rtol, atol=atol, **options)
        return _Solve(self, tape, func, y0, {"rtol": rtol, "atol": atol, **options})


@dataclass(frozen=True)
class _Solve:
    """An object that `odeint` uses as its solver."""

    entry: _Entry
    tape: Tape
    func: nn.Module
    y0: Tensor
    options: dict[str, Any]

    def integrate(self, t: Tensor) -> Tensor:
        if len(t) < 2:
            start: Tensor = self.original(t, self.entry, self.options, lambda rate: None)
            return start
        solution: Tensor = self.tape.answer(self.asked(t))
        return solution

    def integrate_until_event(self, *_: Any) -> Any:
        raise AuditError(
            "this model solves until an event (event_fn): when that happens depends on the solver itself, so it cannot "
            "be audited; audit the part of the model before the event, with a fixed end time"
        )

    def asked(self, t: Tensor) -> Asked:
        wrapped = _Wrapped.of(self.func)
        own, notes = self.own(t, wrapped)
        return Asked(
            own=own,
            notes=notes,
            field=wrapped.field,
            start=wrapped.state(self.y0),
            times=wrapped.times(t),
            times_in=t.dtype,
            original=partial(self.original, t, self.entry, self.options),
            by_library=partial(self.by_library, t, own),
            end_of=lambda solution: wrapped.state(solution[-1]),
            result=_flat,
            interp=None if isinstance(own, Adaptive) else self.options.get("interp", "linear"),
            stops=wrapped.times(stops_in("step_t", self.options)) if isinstance(own, Adaptive) else (),
            jumps=wrapped.times(stops_in("jump_t", self.options)) if isinstance(own, Adaptive) else (),
        )

    def by_library(self, t: Tensor, own: Solver, solver: Adaptive, watch: Watch) -> Tensor | None:
        """The library's own answer by this method and tolerance: its steps are not ours, nor are states within one."""
        name = next((theirs for theirs, ours in ADAPTIVE.items() if ours == solver.method), "")
        entry = SOLVERS.get(name)
        if not isinstance(entry, _Entry) or self.entry.name not in ADAPTIVE or not self.resolves(solver):
            return None
        factor = solver.precision / own.precision
        changed = {name: self.options[name] * factor for name in ("rtol", "atol")}
        return self.original(t, entry, {**self.options, **changed, "max_num_steps": solver.max_steps}, watch)

    def resolves(self, solver: Adaptive) -> bool:
        """Whether rounding the state once takes less than half of what the local error may be: else ours refuses the
        tolerance, where theirs would try steps by the thousands."""
        sizes = self.y0.detach().abs()
        share = torch.finfo(self.y0.dtype).eps * sizes / (solver.atol + solver.rtol * sizes)
        return bool(share.double().square().mean().sqrt() <= 0.5)

    def original(self, t: Tensor, entry: _Entry, options: dict[str, Any], watch: Watch) -> Tensor:
        """The library's own answer. `odeint` made the module `func` for this call: its hook goes with it."""
        handle = self.func.register_forward_hook(lambda module, given, rate: watch(rate))
        try:
            solver = entry.original(func=self.func, y0=self.y0, **options)
            solution: Tensor = solver.integrate(t)
        except AssertionError as error:
            raise SolverError(f"torchdiffeq's own {entry.name} gave up: {error}; {self.advice(t)}") from error
        finally:
            handle.remove()
        return solution

    def advice(self, t: Tensor) -> str:
        """What to do about a failed solve. One cause can be seen at once: a field that is not finite at the start."""
        if self.func(t[0], self.y0).isfinite().all():
            return "loosen its tolerance, or let it take more steps"
        return "the field is not finite where it starts: look for weights or inputs that are not"

    def own(self, t: Tensor, wrapped: "_Wrapped") -> tuple[Solver, tuple[str, ...]]:
        """Our equivalent of what was asked for, and in which way it is not quite the same."""
        kind = self.entry.original
        fixed = isinstance(kind, type) and issubclass(kind, FixedGridODESolver)
        method = METHODS.get(self.entry.name) or nearest_method(getattr(kind, "order", 5), adaptive=not fixed)
        notes = _about(self.entry.name, method)
        if not fixed:
            rtol, atol = (as_written(self.options[name]) for name in ("rtol", "atol"))
            return Adaptive(method, rtol=rtol, atol=atol), notes
        if (step := self.options.get("step_size")) is not None:
            solver = FixedStep(method, step=abs(as_written(step)))
            return solver, (*notes, *self.about_grid(solver, t))
        construct = self.options.get("grid_constructor")
        return OnGrid(method, wrapped.times(t if construct is None else construct(self.func, self.y0, t))), notes

    def about_grid(self, solver: FixedStep, t: Tensor) -> Iterator[str]:
        """How its grid for a step differs from ours."""
        theirs = FixedGridODESolver._grid_constructor_from_step_size(self.options["step_size"])(None, self.y0, t)
        ours = solver.nodes(float(t[0]), float(t[-1]))
        if len(theirs) > len(ours):
            last = float(theirs[-1] - theirs[-2])
            yield (
                f"torchdiffeq takes {len(theirs) - 1} steps of {solver.step:.6g} where {len(ours) - 1} suffice, the "
                f"last one of {last:.1g}: the model's own pass keeps it"
            )
        rounding = 1e-6 + 4 * torch.finfo(t.dtype).eps * float(t.abs().max())
        if len(t) > 2 and not torch.isclose(t[:, None], theirs[None, :], rtol=0, atol=rounding).any(dim=1).all():
            yield (
                f"some of the {len(t)} times asked for lie between steps of {solver.step:.6g}: torchdiffeq draws a "
                "straight line there (or what its `interp` says), and so do all fixed steps of the table; the "
                "reference flow lands on each"
            )


@dataclass(frozen=True)
class _Wrapped:
    """The user's own field inside what torchdiffeq wraps around it: flat states, negated time."""

    field: Any
    shapes: list[torch.Size] | None
    backwards: bool

    @classmethod
    def of(cls, func: Any) -> "_Wrapped":
        shapes, backwards = None, False
        while isinstance(func, _PerturbFunc | _ReverseFunc | _TupleFunc):
            if isinstance(func, _TupleFunc):
                shapes = func.shapes
            backwards ^= isinstance(func, _ReverseFunc)
            func = func.base_func
        return cls(func, shapes, backwards)

    def state(self, flat: Tensor) -> State:
        state: State = flat if self.shapes is None else _flat_to_shape(flat, (), self.shapes)
        return state

    def times(self, t: Tensor | Sequence[float]) -> tuple[float, ...]:
        values = t.detach().double().tolist() if isinstance(t, Tensor) else t
        return tuple(0.0 - value if self.backwards else value for value in values)


def _flat(solution: Solution) -> Tensor:
    """States at all times as torchdiffeq holds them inside: a tuple's parts flattened, one after the other."""
    states = solution.states
    if isinstance(states, Tensor):
        return states
    return torch.cat([part.reshape(len(part), -1) for part in states], dim=1)
