"""The solvers of one solve: a single one, or in an ensemble one for each member."""

from collections.abc import Sequence

from windermere.errors import UsageError, describe_value
from windermere.solvers.solver import Adaptive, Solver, Solvers


def members_of(solver: Solvers) -> tuple[tuple[Solver, ...], int | None]:
    """The solvers one by one, and how many members they are for: None for a single solver, which is no ensemble's."""
    if isinstance(solver, Solver):
        return (solver,), None
    if type(solver) is tuple and len(solver) == 1 and isinstance(solver[0], Solver):  # nearly always
        return solver, 1
    several = type(solver) in (list, tuple) or (isinstance(solver, Sequence) and not isinstance(solver, str))
    if not several or not all(isinstance(s, Solver) for s in solver):
        raise UsageError(
            "a solver is a FixedStep, an OnGrid or an Adaptive, which say how precise it is, not "
            f"{describe_value(solver)}"
        )
    if not solver or any(s.method != solver[0].method or type(s) is not type(solver[0]) for s in solver):
        raise UsageError("an ensemble needs one solver for each member, all of one method and kind")
    if isinstance(solver[0], Adaptive) and any(
        (s.control, s.max_steps) != (solver[0].control, solver[0].max_steps) for s in solver if isinstance(s, Adaptive)
    ):
        raise UsageError("the solvers of an ensemble may differ in their tolerances, not in control or max_steps")
    return tuple(solver), len(solver)


def by_sample(solvers: Sequence[Solver]) -> bool:
    return isinstance(solvers[0], Adaptive) and solvers[0].control == "sample"
