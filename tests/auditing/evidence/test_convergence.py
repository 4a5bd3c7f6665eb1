"""The slope of log error against log step below the training step, and where it stops."""

from dataclasses import replace
from math import exp

import pytest
import torch
from torch import Tensor

from tests.auditing.evidence.walks import points, turn, walked
from windermere.auditing.evidence.convergence import convergence
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver


def decay(t: Tensor, z: Tensor) -> Tensor:
    return -z


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_a_smooth_field_converges_with_the_order_of_its_method(method: str, order: int) -> None:
    found = convergence(walked(decay, points(), FixedStep.of(method, steps=16), flow=lambda z: z * exp(-1)))
    assert found is not None
    assert found.slopes == pytest.approx([order, order], abs=0.15)
    assert (found.order, found.stops, found.steps) == (order, None, (1 / 16, 1 / 32, 1 / 64))
    assert f"from h = 1/16 to 1/64 (the method's order is {order})" in found.finding


def test_a_grid_of_unequal_steps_converges_too() -> None:
    grid = OnGrid("euler", tuple((torch.linspace(0, 1, 17, dtype=torch.float64) ** 2).tolist()))
    found = convergence(walked(decay, points(), grid, flow=lambda z: z * exp(-1)))
    assert found is not None
    assert found.slopes == pytest.approx([1, 1], abs=0.15)


def test_steps_that_are_too_long_for_the_field_show_no_power_of_the_step() -> None:
    """Two steps of a rotation by 20: halving them makes it worse."""
    omega = 20.0
    matrix = omega * torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    exact = turn(omega)
    found = convergence(
        walked(lambda t, z: z @ matrix, points(), FixedStep.of("euler", steps=2), flow=lambda z: z @ exact)
    )
    assert found is not None
    assert max(found.slopes) < 0
    assert "does not fall as a power of the step: slopes -" in found.finding


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        (0, "no slope can be seen: at h = 1/16 the error is as small as the reference's own"),
        (1, "no slope can be seen: at h = 1/32 the error is as small as the reference's own"),
        (2, "slope 1 from h = 1/16 to 1/32 (the method's order is 1); it stops at 1/64, at the reference's own error"),
    ],
)
def test_it_stops_where_errors_are_the_references_own_and_says_at_which_step(stopped: int, words: str) -> None:
    paths = walked(decay, points(), FixedStep.of("euler", steps=16), flow=lambda z: z * exp(-1))
    clear = convergence(paths)
    assert clear is not None
    assert paths.flow is not None
    share = clear.errors[stopped] / clear.errors[0] / 2.9
    found = convergence(replace(paths, flow=replace(paths.flow, share=share)))
    assert found is not None
    assert (len(found.slopes), found.stops) == (max(0, stopped - 1), clear.steps[stopped])
    assert words in found.finding


def test_errors_of_rounding_have_no_slope() -> None:
    found = convergence(walked(decay, points(), FixedStep.of("rk4", steps=4000), flow=lambda z: z * exp(-1)))
    assert found is not None
    assert (found.slopes, found.stops) == ((), 1 / 4000)


@pytest.mark.parametrize("solver", [Adaptive("dopri54", tolerance=1e-4), FixedStep.of("euler", steps=4)], ids=str)
def test_tolerances_and_flows_that_are_not_known_have_no_slope(solver: Solver) -> None:
    known = isinstance(solver, Adaptive)
    assert convergence(walked(decay, points(), solver, flow=(lambda z: z) if known else None)) is None
