"""Solving at times that are not on the solver's grid."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from windermere.audit.adapters.dense import solve_at
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, OnGrid, solve

START = torch.tensor([[0.3, -0.2], [1.0, 0.5]], dtype=torch.float64)


def rate(t: Tensor, z: Tensor) -> Tensor:
    x, y = z.unbind(-1)
    return torch.stack([torch.sin(2 * y + 3 * t), torch.cos(3 * x * torch.cos(2 * t)) - y / 4], dim=-1)


def states(solution: Any) -> Tensor:
    assert isinstance(solution.states, Tensor)
    return solution.states


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.0, 0.25, 0.75, 1.0), (2.0, 1.5, 1.25)])
def test_times_on_the_grid_are_solved_as_ever(times: tuple[float, ...]) -> None:
    solver = FixedStep("midpoint", step=0.25)
    assert torch.equal(states(solve_at(rate, START, solver, times)), states(solve(rate, START, solver, times)))


@pytest.mark.parametrize("solver", [Adaptive("dopri54", tolerance=1e-6), Adaptive("bosh32", tolerance=1e-3)])
def test_adaptive_solvers_land_on_all_times(solver: Adaptive) -> None:
    times = (0.0, 0.31, 0.77, 1.0)
    assert torch.equal(states(solve_at(rate, START, solver, times)), states(solve(rate, START, solver, times)))


@pytest.mark.parametrize("times", [(0.0, 0.1, 0.33, 0.9, 1.0), (1.0, 0.9, 0.4, 0.0)])
@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "dopri54"])
def test_the_grid_is_walked_as_it_is_whatever_lies_between(times: tuple[float, ...], method: str) -> None:
    solver = FixedStep(method, step=0.25)
    done, plain = solve_at(rate, START, solver, times), solve(rate, START, solver, (times[0], times[-1]))
    assert torch.allclose(states(done)[-1], plain.final, rtol=0, atol=1e-14)  # type: ignore[arg-type]
    assert done.times == times
    assert done.stats.evaluations - plain.stats.evaluations in (0, 1)
    assert torch.equal(states(done)[0], START)


def test_between_nodes_the_error_falls_with_the_fourth_power_of_the_step() -> None:
    times = (0.0, 0.123, 0.456, 0.789, 1.0)
    exact = states(solve(rate, START, Adaptive("dopri54", tolerance=1e-12), times))
    errors = [
        float((states(solve_at(rate, START, FixedStep("rk4", step=1 / n), times)) - exact).abs()[1:-1].max())
        for n in (16, 32, 64)
    ]
    assert np.log2(errors[0] / errors[2]) / 2 > 3.5


def test_a_tuple_of_states_is_interpolated_part_by_part() -> None:
    def both(t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return rate(t, z[0]), z[0].sum(dim=1, keepdim=True)

    times, solver = (0.0, 0.4, 1.0), FixedStep("rk4", step=1 / 3)
    done = solve_at(both, (START, torch.zeros(2, 1, dtype=torch.float64)), solver, times)
    assert isinstance(done.states, tuple)
    assert [part.shape for part in done.states] == [(3, 2, 2), (3, 2, 1)]
    assert torch.allclose(done.states[0], states(solve_at(rate, START, solver, times)), rtol=0, atol=1e-14)


def test_a_grid_that_misses_an_end_is_an_error() -> None:
    with pytest.raises(UsageError, match="not on the solver's grid"):
        solve_at(rate, START, OnGrid("euler", (0.0, 0.5, 1.0)), (0.0, 0.3, 2.0))
