"""Models with torchdyn's `NeuralODE` inside.

While passes run, the two methods by which a NeuralODE solves, and nothing else, are replaced, for their threads alone.
A model that calls `torchdyn.numerics.odeint` itself is not seen.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Asked, Tape, Watch, nearest_method, stand_in_note
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.errors import AuditError, NonFiniteError
from windermere.solvers import Adaptive, OnGrid, Solution, Solver

METHODS = {
    "Euler": "euler",
    "Midpoint": "midpoint",
    "RungeKutta4": "rk4",
    "DormandPrince45": "dopri54",
    "Tsitouras45": "tsit54",
}
"""Its classes and our names."""
SHIFTED_NODES = (
    "torchdyn's rk4 evaluates a field that depends on t at shifted times, so it is of order 1 here: the model's own "
    "pass keeps that, our rk4 does not"
)


class TorchdynSubject(TorchSubject):
    """A module with torchdyn's NeuralODE inside (or one itself), as it is."""

    library = "torchdyn"

    @staticmethod
    def intercepting(tape: Tape) -> AbstractContextManager[None]:
        return METHODS_OF_ITS.watching(tape)

    def output_of(self, result: Any) -> Tensor:
        """A NeuralODE returns its times and then its states: those are audited."""
        if isinstance(result, tuple) and len(result) == 2 and all(isinstance(r, Tensor) for r in result):
            times, states = result
            if times.ndim == 1 and len(states) == len(times):
                return super().output_of(states)
        return super().output_of(result)


def _replace_methods() -> Callable[[], None]:
    core = import_module("torchdyn.core")
    odeint, trajectory = core.ODEProblem.odeint, core.NeuralODE.trajectory
    shooting = core.MultipleShootingProblem.odeint
    core.ODEProblem.odeint = _replacing(odeint, trajectory=False)
    core.NeuralODE.trajectory = _replacing(trajectory, trajectory=True)
    core.MultipleShootingProblem.odeint = _refusing(shooting)

    def restore() -> None:
        core.ODEProblem.odeint, core.NeuralODE.trajectory = odeint, trajectory
        core.MultipleShootingProblem.odeint = shooting

    return restore


METHODS_OF_ITS: Interception[Tape] = Interception(_replace_methods)


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(problem: Any, *given: Any, **named: Any) -> Any:
        if METHODS_OF_ITS.watcher(problem) is None:
            return original(problem, *given, **named)
        raise AuditError(
            "this model solves by multiple shooting (parallel in time), which has no step that could be changed: audit "
            "the same vector field in a NeuralODE"
        )

    return method


def _replacing(original: Callable[..., Any], *, trajectory: bool) -> Callable[..., Any]:
    """The method of a NeuralODE that solves: `odeint` gives times and states, `trajectory` states only."""

    def method(problem: Any, x: Any, t_span: Any, save_at: Any = (), args: Any = None) -> Any:
        more = () if trajectory else (save_at, {} if args is None else args)
        own_way = partial(original, problem, x, t_span, *more)
        tape = METHODS_OF_ITS.watcher(problem)
        if tape is None:
            return own_way()
        return tape.answer(_asked(problem, x, t_span, save_at, own_way, trajectory=trajectory))

    return method


def _asked(problem: Any, x: Any, t_span: Any, save_at: Any, own_way: Callable[[], Any], *, trajectory: bool) -> Asked:
    if not isinstance(x, Tensor):
        raise AuditError(f"the state of this NeuralODE is a {type(x).__name__}: only tensors can be audited")
    span = torch.cat(t_span) if isinstance(t_span, list) else t_span
    grid = tuple(span.detach().double().tolist())
    fixed = problem.solver.stepping_class == "fixed"
    saved = torch.as_tensor(save_at) if fixed and len(save_at) else span
    times = tuple(saved.detach().double().tolist())
    asked = times if times[0] == grid[0] else (grid[0], *times)
    # Backwards, torchdyn negates the times and returns them so.
    shown = -saved if grid[1] < grid[0] else saved

    def result(solution: Solution) -> Any:
        if not isinstance(solution.states, Tensor):
            raise AuditError("a NeuralODE's state became a tuple on the way")
        states = solution.states[len(asked) - len(times) :]
        return states if trajectory else (shown.to(states.device), states)

    own, notes = _own(problem, x, grid, fixed=fixed)
    return Asked(
        own=own,
        notes=notes,
        field=lambda t, z: problem.vf(t, z),
        start=x,
        times=asked,
        original=partial(_original, problem, own_way),
        end_of=lambda given: (given if trajectory else given[1])[-1],
        result=result,
        lands=True,
    )


def _original(problem: Any, own_way: Callable[[], Any], watch: Watch) -> Any:
    def seen(module: Any, given: Any, rate: Tensor) -> None:
        watch(rate)
        if not rate.isfinite().all():  # its adaptive solvers would go on for ever
            raise NonFiniteError("the field is not finite in a solve of torchdyn's: look for where that comes from")

    handle = problem.vf.register_forward_hook(seen)
    try:
        return own_way()
    finally:
        handle.remove()


def _own(problem: Any, x: Tensor, grid: tuple[float, ...], *, fixed: bool) -> tuple[Solver, tuple[str, ...]]:
    """Our equivalent: fixed steps walk t_span itself."""
    name = type(problem.solver).__name__
    if name == "AsynchronousLeapfrog":
        raise AuditError(
            "this NeuralODE keeps a velocity of its solver's (AsynchronousLeapfrog): no other can solve it"
        )
    method = METHODS.get(name) or nearest_method(problem.solver.order, adaptive=not fixed)
    notes = () if name in METHODS else (stand_in_note("torchdyn", name, method),)
    if not fixed:
        return Adaptive(method, rtol=float(problem.rtol), atol=float(problem.atol)), notes
    shifted = (SHIFTED_NODES,) if name == "RungeKutta4" and _depends_on_time(problem, x, grid) else ()
    return OnGrid(method, grid), (*notes, *shifted)


def _depends_on_time(problem: Any, x: Tensor, grid: tuple[float, ...]) -> bool:
    with torch.no_grad():
        first, later = (problem.vf(x.new_tensor(t), x) for t in grid[:2])
    return not torch.equal(first, later)
