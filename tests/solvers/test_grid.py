"""Fixed grids: never a step too many, never one of 1e-8, always exactly to the end."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.solvers.fields import DOUBLE, Recorder, elementwise, some_states
from windermere.errors import StepBudgetError, UsageError, VanishingStepError
from windermere.nn import Autonomous
from windermere.solvers import FixedStep, OnGrid, solve
from windermere.solvers.grid import make_grid

WHOLE = range(1, 2001)


def one_over(n: int, dtype: torch.dtype) -> float:
    """1/n as it comes out of a computation in this dtype."""
    return float(torch.tensor(1.0, dtype=dtype) / torch.tensor(float(n), dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("span", [1.0, 3.0, 0.1, 7.3, 100.0])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_step_of_one_over_n_of_the_span_takes_n_steps_and_ends_exactly(
    dtype: torch.dtype, span: float, backwards: bool
) -> None:
    for n in WHOLE:
        solver = FixedStep("euler", step=span * one_over(n, dtype))
        start, end = (span, 0.0) if backwards else (0.0, span)
        nodes = solver.nodes(start, end)
        assert len(nodes) == n + 1, n
        assert (nodes[0], nodes[-1]) == (start, end)
        assert abs(abs(np.diff(nodes)) * n / span - 1).max() < 1e-10, n


@pytest.mark.parametrize("accumulate", ["halved", "summed", "shrunk"])
def test_a_step_that_carries_the_rounding_of_a_computation_still_counts_as_one_over_n(accumulate: str) -> None:
    ways: dict[str, Callable[[int], float]] = {
        "halved": lambda n: 1 / (n / 2) / 2,
        "summed": lambda n: float(torch.full((n,), 1 / n, dtype=torch.float32).cumsum(0)[-1]) / n,
        "shrunk": lambda n: 1.1 / n / 1.1,
    }
    for n in WHOLE:
        assert len(FixedStep("euler", step=ways[accumulate](n)).nodes(0.0, 1.0)) == n + 1, n


@pytest.mark.parametrize("state", [torch.float32, torch.float64])
@pytest.mark.parametrize("step", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 3, 7, 49, 98, 103, 107, 161, 187, 1999])
def test_a_real_solve_takes_n_steps_and_sees_the_nodes_of_the_grid(
    state: torch.dtype, step: torch.dtype, n: int
) -> None:
    field = Recorder(elementwise)
    solution = solve(field, some_states(2, 1, dtype=state), FixedStep("euler", step=one_over(n, step)))
    assert (solution.stats.accepted, solution.stats.evaluations, field.calls) == (n, n, n)
    expected = torch.arange(n, dtype=DOUBLE) / n
    torch.testing.assert_close(torch.tensor(field.times, dtype=DOUBLE), expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (1.0, 0.0), (-0.3, 2.0), (5.0, 1.75)])
@pytest.mark.parametrize("step", [0.3, 0.07, 0.31415, 2 / 3, 0.0123])
def test_a_step_that_does_not_divide_gives_ceil_steps_with_the_last_one_shortened(
    start: float, end: float, step: float
) -> None:
    span = abs(Fraction(end) - Fraction(start))
    nodes = FixedStep("rk4", step=step).nodes(start, end)
    steps = np.diff(nodes) * np.sign(end - start)
    assert len(steps) == ceil(span / Fraction(step))
    assert (nodes[0], nodes[-1]) == (start, end)
    np.testing.assert_allclose(steps[:-1], step, rtol=1e-12)
    assert 0 < steps[-1] < step


@pytest.mark.parametrize("step", [1.0000001, 1.5, 1e6])
def test_a_step_longer_than_the_span_is_one_step_to_the_end(step: float) -> None:
    assert FixedStep("euler", step=step).nodes(0.0, 1.0).tolist() == [0.0, 1.0]


def test_every_piece_between_times_asked_for_has_its_own_grid() -> None:
    grid = make_grid([FixedStep("euler", step=0.25)], (0.0, 0.6, 1.0))
    np.testing.assert_allclose(grid.nodes, [0, 0.25, 0.5, 0.6, 0.85, 1.0])
    assert grid.stops == (0, 3, 5)


def test_members_that_are_through_wait_at_the_end() -> None:
    grid = make_grid([FixedStep("euler", step=1 / 2), FixedStep("euler", step=1 / 3)], (0.0, 1.0, 2.0))
    np.testing.assert_allclose(grid.nodes, [[0, 1 / 2, 1, 1, 3 / 2, 2, 2], [0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2]])
    assert grid.taken.tolist() == [4, 6]
    assert grid.stops == (0, 3, 6)


def test_equal_members_share_one_grid() -> None:
    assert make_grid([FixedStep("euler", step=0.5)] * 3, (0.0, 1.0)).nodes.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("method", ["heun", "rk4", "rk4_38"])
def test_no_stage_lies_beyond_the_end_not_even_by_rounding(method: str) -> None:
    """sqrt(end - t) is not a number past the end; t + h is past it for some of these spans."""
    ends = torch.rand(200, generator=torch.Generator().manual_seed(1), dtype=DOUBLE).tolist()
    for start, end in zip(ends[::2], ends[1::2], strict=True):
        low, high = sorted((start - 0.5, end))
        field = Recorder(lambda t, z: -z)
        solve(field, torch.ones(1, dtype=DOUBLE), FixedStep(method, step=(high - low) / 3), (low, high))
        assert min(field.times) == low
        assert max(field.times) == high


def test_a_grid_of_its_own_is_walked_as_given_forwards_and_backwards() -> None:
    field = Recorder(elementwise)
    times = (0.0, 0.1, 0.5, 0.55, 1.0)
    z = some_states(3, 2)
    there = solve(field, z, OnGrid("euler", times))
    assert field.times == list(times[:-1])
    assert there.times == (0.0, 1.0)
    solve(field, z, OnGrid("euler", times), (1.0, 0.0))
    assert field.times[4:] == list(times[:0:-1])
    assert isinstance(there.final, Tensor)
    expected = z
    for before, after in pairwise(times):
        expected = expected + (after - before) * elementwise(torch.tensor(before, dtype=DOUBLE), expected)
    torch.testing.assert_close(there.final, expected)


def test_a_part_of_a_grid_can_be_walked_and_ends_on_the_time_that_was_asked_for() -> None:
    nodes = OnGrid("euler", (0.0, 0.1, 0.2, 0.7)).nodes(0.1, 0.7 + 1e-8)
    assert nodes.tolist() == [0.1, 0.2, 0.7 + 1e-8]


def test_a_time_that_is_not_on_the_grid_is_refused() -> None:
    with pytest.raises(UsageError, match=r"t = 0\.3 .* not on the solver's grid \[0\.0, 0\.5, 1\.0\]"):
        solve(elementwise, some_states(2), OnGrid("euler", (0, 0.5, 1)), (0, 0.3))


def test_two_times_on_one_node_of_the_grid_are_refused() -> None:
    with pytest.raises(UsageError, match="one and the same node"):
        solve(elementwise, some_states(2), OnGrid("euler", (0, 0.5, 1)), (0, 1e-9, 1))


@pytest.mark.parametrize("times", [(1.7e9, 1.7e9 + 1e-5), [[1.7e9, 1.7e9 + 1e-5], [1.7e9, 1.7e9 - 2e-5], [2.0, 2.0]]])
def test_a_step_that_vanishes_beside_the_time_is_refused(times: Any) -> None:
    field, z = nn.Tanh().to(DOUBLE), some_states(3, 2)
    with pytest.raises(VanishingStepError, match=r"a step of 1e-07 does not advance .* are 2\.4e-07 apart: take"):
        solve(Autonomous(field), z, FixedStep("euler", step=1e-7), times)
    apart = 2.0**-22
    assert solve(Autonomous(field), z, FixedStep("euler", step=apart), (1.7e9, 1.7e9 + 4 * apart)).stats.accepted == 4


def test_a_grid_too_long_for_any_memory_is_refused() -> None:
    with pytest.raises(StepBudgetError, match=r"1e\+12 steps from 0.0 to 1.0 are too many"):
        solve(elementwise, some_states(2), FixedStep("euler", step=1e-12))
