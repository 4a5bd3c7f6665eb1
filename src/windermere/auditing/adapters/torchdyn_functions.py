"""Solves of torchdyn's that no NeuralODE makes: its functions, `odeint` above all, and multiple shooting.

However they were imported, its functions look up the loops over steps when they are called, and shooting the method
`root_solve` of its solver. These are what is replaced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from windermere.auditing.adapters.solves import Asked, Tape, Watch, nearest_method
from windermere.auditing.adapters.torchdyn_reading import METHODS, asked_of, check_finite
from windermere.errors import AuditError
from windermere.solvers import OnGrid, Solution

Watcher = Callable[[Any], Tape | None]
SHOOTING = (
    "torchdyn's {} solves all intervals at once and mends them in turns: the model's own pass runs it as it is, and "
    "where a solver of ours must stand for it that is {} with its fine steps, which it approaches"
)
_within: ContextVar[bool] = ContextVar("whether the next loop over steps is that of a NeuralODE's solve", default=False)


@contextmanager
def the_next_loop_is_seen() -> Iterator[None]:
    """Within it, the first loop over steps belongs to a solve that is answered already; others, of fields, do not."""
    token = _within.set(True)
    try:
        yield
    finally:
        _within.reset(token)


def replace_functions(watcher: Watcher) -> Callable[[], None]:
    """Puts the replacements in place, and returns what undoes that."""
    functions: Any = import_module("torchdyn.numerics.odeint")
    solvers: Any = import_module("torchdyn.numerics.solvers.ode")
    fixed, adaptive = functions._fixed_odeint, functions._adaptive_odeint
    kinds = (solvers.MSZero, solvers.MSBackward, solvers.ParallelImplicitEuler)
    shooting = [kind.root_solve for kind in kinds]
    functions._fixed_odeint = partial(_fixed, watcher, fixed)
    functions._adaptive_odeint = partial(_adaptive, watcher, adaptive)
    for kind, own in zip(kinds, shooting, strict=True):
        kind.root_solve = _shooting(watcher, own, fixed)

    def restore() -> None:
        functions._fixed_odeint, functions._adaptive_odeint = fixed, adaptive
        for kind, own in zip(kinds, shooting, strict=True):
            kind.root_solve = own

    return restore


def _tape(watcher: Watcher, field: Any) -> Tape | None:
    if _within.get():
        _within.set(False)
        return None
    return watcher(field)


def _fixed(
    watcher: Watcher,
    own: Callable[..., Any],
    f: Any,
    x: Any,
    t_span: Any,
    solver: Any,
    save_at: Any = (),
    args: Any = None,
) -> Any:
    way = partial(own, x=x, t_span=t_span, solver=solver, save_at=save_at, args={} if args is None else args)
    tape = _tape(watcher, f)
    if tape is None:
        return way(f)
    problem = SimpleNamespace(solver=solver, vf=f)
    return tape.answer(asked_of(problem, x, t_span, save_at, lambda watch: way(_watched(f, watch)), trajectory=False))


def _adaptive(
    watcher: Watcher, own: Callable[..., Any], f: Any, k1: Any, x: Any, dt: Any, t_span: Any, solver: Any,
    atol: float = 1e-4, rtol: float = 1e-4, args: Any = None, interpolator: Any = None, return_all_eval: bool = False,
    seminorm: Any = (False, None),
) -> Any:  # fmt: skip
    more = (atol, rtol, args, interpolator, return_all_eval, seminorm)
    tape = _tape(watcher, f)
    if tape is None:
        return own(f, k1, x, dt, t_span, solver, *more)
    if return_all_eval:
        raise AuditError(
            "this model asks torchdyn for the states at all steps that the solver takes (return_all_eval): another "
            "solver takes others, so let it ask for times of its own"
        )
    problem = SimpleNamespace(solver=solver, vf=f, atol=atol, rtol=rtol)

    def original(watch: Watch) -> Any:
        return own(_watched(f, watch), k1, x, dt, t_span, solver, *more)

    return tape.answer(asked_of(problem, x, t_span, (), original, trajectory=False))


def _watched(f: Callable[..., Tensor], watch: Watch) -> Callable[..., Tensor]:
    def field(*given: Any, **named: Any) -> Tensor:
        rate = f(*given, **named)
        watch(rate)
        check_finite(rate)
        return rate

    return field


def _shooting(watcher: Watcher, own: Callable[..., Any], fixed: Callable[..., Any]) -> Callable[..., Any]:
    def root_solve(
        solver: Any, odeint_func: Any, f: Any, x: Tensor, t_span: Tensor, B: Any, fine_steps: int, maxiter: int
    ) -> Any:
        tape = watcher(f)
        if tape is None:
            return own(solver, odeint_func, f, x, t_span, B, fine_steps, maxiter)

        def original(watch: Watch) -> Any:
            with torch.enable_grad():  # some find the way to mend an interval by its gradient
                return own(solver, fixed, _watched(f, watch), x, t_span, B, fine_steps, maxiter).detach()

        return tape.answer(_asked_of_shooting(solver, f, x, t_span, fine_steps, original))

    return root_solve


def _asked_of_shooting(
    solver: Any, f: Any, x: Tensor, t_span: Tensor, fine_steps: int, original: Callable[[Watch], Any]
) -> Asked:
    implicit = type(solver).__name__ == "ParallelImplicitEuler"
    fine = type(solver.fine_method).__name__
    method = METHODS.get(fine) or nearest_method(solver.fine_method.order, adaptive=False)
    times = tuple(t_span.detach().double().tolist())
    return Asked(
        own=OnGrid(method, times if implicit else _refined(times, max(1, fine_steps - 1))),
        notes=(SHOOTING.format(type(solver).__name__, method),),
        field=lambda t, z: f(t, z),
        start=x,
        times=times,
        original=original,
        end_of=lambda states: states[-1],
        result=_states,
    )


def _refined(times: tuple[float, ...], parts: int) -> tuple[float, ...]:
    """Every interval in so many equal parts."""
    inner = [a + (b - a) * k / parts for a, b in pairwise(times) for k in range(parts)]
    return (*inner, times[-1])


def _states(solution: Solution) -> Any:
    return solution.states
