"""Adaptive solves: where they land, what their tolerances mean, and how they choose a step."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import DOUBLE, Recorder, coupled, elementwise, some_states
from windermere.solvers import Adaptive, FixedStep, adaptive_names, solve
from windermere.solvers.adaptive import next_step

EVERY = pytest.mark.parametrize("method", adaptive_names())
CONTROLS = pytest.mark.parametrize("control", ["batch", "sample"])


def final(*args: Any, **options: Any) -> Tensor:
    value = solve(*args, **options).final
    assert isinstance(value, Tensor)
    return value


@EVERY
@CONTROLS
@pytest.mark.parametrize("times", [(0.0, 1.0), (0.3, 0.31, 0.7, 2.9), (1.0, 0.9, -0.7), (-0.123, 4.567), (7.1, 6.3)])
def test_without_interpolation_a_solve_lands_on_every_time_asked_for_and_evaluates_nothing_beyond(
    method: str, control: Any, times: tuple[float, ...]
) -> None:
    field = Recorder(coupled)
    solver = Adaptive(method, tolerance=1e-3, control=control)
    solution = solve(field, some_states(3, 2), solver, times, interpolate=False, record=True)
    assert solution.trajectory is not None
    assert solution.times == times
    for t in times:
        assert (solution.trajectory.times == t).any(axis=0).all()
    assert (min(field.times), max(field.times)) == (min(times), max(times))
    assert isinstance(solution.states, Tensor)
    assert isinstance(solution.trajectory.states, Tensor)
    assert torch.equal(solution.states[-1], solution.trajectory.states[-1])


def test_the_end_is_met_exactly_whatever_the_rounding_of_t_plus_h() -> None:
    ends = torch.rand(300, generator=torch.Generator().manual_seed(2), dtype=DOUBLE).tolist()
    for a, b in zip(ends[::2], ends[1::2], strict=True):
        field = Recorder(elementwise)
        low, high = sorted((a - 0.5, b))
        solve(field, torch.ones(1, dtype=DOUBLE), Adaptive("bosh32", tolerance=1e-2), (low, high))
        assert (min(field.times), max(field.times)) == (low, high)


@pytest.mark.parametrize("rate", [1e-9, 1e-6, 1e-3])
def test_a_field_that_hardly_moves_the_state_is_not_probed_beyond_the_end_either(rate: float) -> None:
    """Nor by rounding: 0.3 + (0.9 - 0.3) > 0.9."""
    field = Recorder(lambda t, z: rate * z)
    solve(field, torch.ones(2, 2, dtype=DOUBLE), Adaptive("dopri54", tolerance=1e-4), (0.3, 0.9))
    assert max(field.times) == 0.9
    torch.testing.assert_close(field.nodes[1][1], torch.full((2, 2), 1 + 0.6 * rate, dtype=DOUBLE))


@EVERY
def test_a_smaller_tolerance_gives_a_smaller_error_in_proportion_on_average(method: str) -> None:
    z = some_states(12, 2)
    truth = final(coupled, z, FixedStep.of("dopri54", steps=1000), (0, 1))
    tolerances = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
    errors = [
        float((final(coupled, z, Adaptive(method, tolerance=tol)) - truth).square().mean().sqrt()) for tol in tolerances
    ]
    slope = np.polyfit(np.log(tolerances), np.log(errors), 1)[0]
    assert 0.6 < slope < 1.4
    assert all(error < 1000 * tol for error, tol in zip(errors, tolerances, strict=True))


@EVERY
def test_a_step_back_in_time_undoes_the_way_there(method: str) -> None:
    z, solver = some_states(5, 2), Adaptive(method, tolerance=1e-6)
    there = final(coupled, z, solver, (0.0, 2.0))
    assert float((there - z).abs().max()) > 0.1
    torch.testing.assert_close(final(coupled, there, solver, (2.0, 0.0)), z, rtol=0, atol=2e-4)


@EVERY
def test_backwards_in_time_is_forwards_in_mirrored_time(method: str) -> None:
    z, solver = some_states(5, 2), Adaptive(method, tolerance=1e-5)
    backwards = solve(coupled, z, solver, (2.0, -1.0))
    mirrored = solve(lambda t, z: -coupled(-t, z), z, solver, (-2.0, 1.0))
    assert backwards.stats == mirrored.stats
    torch.testing.assert_close(backwards.final, mirrored.final, rtol=0, atol=0)


def jump(t: Tensor, z: Tensor) -> Tensor:
    """Slow for a while, then sudden and fast: a step that was right is far too long at once."""
    return torch.where(t < 0.5, 0.1, 5 * torch.cos(20 * t)) * torch.ones_like(z)


@EVERY
def test_rejected_steps_happen_and_are_counted_apart(method: str) -> None:
    solution = solve(jump, torch.ones(2, 1, dtype=DOUBLE), Adaptive(method, tolerance=1e-5), record=True)
    stats, trajectory = solution.stats, solution.trajectory
    assert trajectory is not None
    assert isinstance(stats.rejected, int)
    assert stats.rejected > 0
    assert stats.accepted == len(trajectory.times) - 1
    exact = 1 + 0.05 + (np.sin(20) - np.sin(10)) / 4
    torch.testing.assert_close(solution.final, torch.full((2, 1), exact, dtype=DOUBLE), rtol=0, atol=1e-2)


def test_a_state_far_from_zero_is_bound_by_rtol_and_one_near_zero_by_atol() -> None:
    def steps(size: float, rtol: float, atol: float) -> int:
        field = Recorder(lambda t, z: size * torch.cos(8 * t) + 0 * z)
        stats = solve(field, torch.full((1,), size, dtype=DOUBLE), Adaptive("bosh32", rtol=rtol, atol=atol)).stats
        assert isinstance(stats.accepted, int)
        return stats.accepted

    assert steps(1e4, 1e-3, 1e-12) < steps(1e4, 1e-6, 1e-12)
    assert steps(1e4, 1e-3, 1e-12) == steps(1e4, 1e-3, 1e-9)
    assert steps(1e-4, 1e-12, 1e-7) < steps(1e-4, 1e-12, 1e-10)
    assert steps(1e-4, 1e-12, 1e-7) == steps(1e-4, 1e-9, 1e-7)


def test_scaling_state_and_absolute_tolerance_together_changes_no_step() -> None:
    def linear(t: Tensor, z: Tensor) -> Tensor:
        return (torch.cos(5 * t) - 2) * z

    z = some_states(4, 2)
    small = solve(linear, z, Adaptive("tsit54", rtol=1e-5, atol=1e-6), record=True)
    large = solve(linear, 1024 * z, Adaptive("tsit54", rtol=1e-5, atol=1024e-6), record=True)
    assert small.stats == large.stats
    assert small.trajectory is not None
    assert large.trajectory is not None
    np.testing.assert_allclose(small.trajectory.times, large.trajectory.times, rtol=1e-12)


@pytest.mark.parametrize(
    ("ratio", "factor"),
    [(1e-9, 10.0), (0.0, 10.0), (0.5**5, 1.8), (0.99, 1.0), (2.0**5, 0.45), (1e9, 0.2), (np.inf, 0.2)],
)
def test_the_next_step_aims_at_nine_tenths_of_the_one_that_just_meets_the_tolerance(
    ratio: float, factor: float
) -> None:
    assert next_step(np.array(0.3), np.array(ratio), 5) == pytest.approx(0.3 * factor)


def test_a_step_shortened_to_land_does_not_shorten_the_one_after_it() -> None:
    z, solver = some_states(3, 2), Adaptive("dopri54", tolerance=1e-3)
    plain = solve(coupled, z, solver, (0.0, 2.0)).stats
    stopped = solve(coupled, z, solver, (0.0, 0.5, 0.500001, 2.0), interpolate=False).stats
    assert plain.accepted < stopped.accepted <= plain.accepted + 3


@EVERY
def test_both_dtypes_take_the_same_steps_where_rounding_is_far_below_the_tolerance(method: str) -> None:
    """But for a decision that rounding tips."""
    z, solver, times = some_states(6, 2), Adaptive(method, tolerance=1e-3), (0.0, 3.0)
    single, double = (solve(coupled, state, solver, times) for state in (z.float(), z))
    assert single.stats.accepted == pytest.approx(double.stats.accepted, abs=1)
    torch.testing.assert_close(single.final, double.final, check_dtype=False, rtol=0, atol=1e-3)
