"""From a state through times: in one piece where a fast path can, over a grid, or with adaptive steps."""

from windermere.solvers.adaptive import walk_adaptively
from windermere.solvers.dense_output import Between
from windermere.solvers.fixed import explain_non_finite, is_finite, walk_grid
from windermere.solvers.paths import solve_in_one_piece
from windermere.solvers.problem import Problem, Walked


def integrate(problem: Problem) -> Walked:
    """Solve in one piece, or where no path does that step by step."""
    walked = solve_in_one_piece(problem)
    return step_by_step(problem) if walked is None else checked(walked, problem)


def step_by_step(problem: Problem) -> Walked:
    """Walk through the times, or from end to end with states interpolated in between."""
    if problem.fixed:
        problem = _grouped_as_its_grid(problem)
    between = Between(problem) if problem.interpolate else None
    if problem.adaptive:
        walked = walk_adaptively(problem, between)
    else:
        walked = checked(walk_grid(problem, between), problem, between)
    return walked if between is None else between.with_ends(walked)


def checked(walked: Walked, problem: Problem, between: Between | None = None) -> Walked:
    """Fixed steps go on whatever they meet: look at their end. Adaptive ones have looked."""
    if problem.fixed and not all(map(is_finite, (walked.states[-1], *(between.values if between else ())))):
        raise explain_non_finite(_grouped_as_its_grid(problem)).after(walked.evaluations)
    return walked


def _grouped_as_its_grid(problem: Problem) -> Problem:
    """Members that share a grid are one group."""
    return problem if problem.grid.nodes.ndim > 1 else problem.ungrouped()
