"""What torchdyn is asked to solve, read off its problem: our equivalent of its solver, the field, the times."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from windermere.auditing.adapters.solves import Asked, Watch, nearest_method, stand_in_note
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


def asked_of(
    problem: Any, x: Any, t_span: Any, save_at: Any, original: Callable[[Watch], Any], *, trajectory: bool
) -> Asked:
    """One solve of a problem, which has a solver, a vector field `vf` and, where steps adapt, tolerances; `original` is
    torchdyn's own way, which gives times and states, or states only (`trajectory`)."""
    if not isinstance(x, Tensor):
        raise AuditError(f"the state of this solve of torchdyn's is a {type(x).__name__}: only tensors can be audited")
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
            raise AuditError("torchdyn's state became a tuple on the way")
        states = solution.states[len(asked) - len(times) :]
        return states if trajectory else (shown.to(states.device), states)

    own, notes = _own(problem, x, grid, fixed=fixed)
    return Asked(
        own=own,
        notes=notes,
        field=lambda t, z: problem.vf(t, z),
        start=x,
        times=asked,
        original=original,
        end_of=lambda given: (given if trajectory else given[1])[-1],
        result=result,
        lands=True,
    )


def check_finite(rate: Any) -> None:
    """Raises a `NonFiniteError`: torchdyn's adaptive solvers would go on for ever."""
    if not rate.isfinite().all():
        raise NonFiniteError("the field is not finite in a solve of torchdyn's: look for where that comes from")


def _own(problem: Any, x: Tensor, grid: tuple[float, ...], *, fixed: bool) -> tuple[Solver, tuple[str, ...]]:
    """Our equivalent: fixed steps walk t_span itself."""
    name = type(problem.solver).__name__
    if name == "AsynchronousLeapfrog":
        raise AuditError("this model keeps a velocity of its solver's (AsynchronousLeapfrog): no other can solve it")
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
