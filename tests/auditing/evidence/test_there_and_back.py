"""Solving back from the end: how far the starts are missed."""

import pytest
import torch
from torch import Tensor

from tests.auditing.evidence.walks import points, walked
from windermere.auditing.evidence.there_and_back import there_and_back
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver


def decay(t: Tensor, z: Tensor) -> Tensor:
    return -z


def test_euler_misses_by_what_its_two_factors_leave() -> None:
    """One step there and one back, of z' = -z: (1 - h)(1 + h) = 1 - h^2."""
    start, h = points(), 0.25
    found = there_and_back(walked(decay, start, FixedStep("euler", step=h), (0.0, h)))
    spread = float((start - start.mean(dim=0)).norm(dim=1).mean())
    missed = h * h * start[:16].norm(dim=1) / spread
    assert (found.median, found.largest) == pytest.approx((float(missed.median()), float(missed.max())))
    assert "times the starts' spread" in found.finding


@pytest.mark.parametrize(
    "solver",
    [Adaptive("dopri54", tolerance=1e-9), FixedStep("rk4", step=1 / 100), OnGrid("rk4", (0.0, 0.01, 0.03, 0.05, 0.1))],
    ids=str,
)
def test_an_accurate_solver_returns(solver: Solver) -> None:
    end = solver.times[-1] if isinstance(solver, OnGrid) else 1.0
    assert there_and_back(walked(decay, points(), solver, (0.0, end))).largest < 1e-7


def test_a_way_back_that_blows_up_is_a_finding() -> None:
    """There every step turns the sign, and back it takes three times the state."""
    found = there_and_back(walked(lambda t, z: -8 * z, points(), FixedStep("euler", step=0.25), (0.0, 400.0)))
    assert found.lost is not None
    assert "the way back from the end cannot be solved with its own solver: " in found.finding


def test_equal_starts_are_measured_against_their_size() -> None:
    start = torch.full((4, 2), 2.0, dtype=torch.float64)
    found = there_and_back(walked(decay, start, FixedStep("euler", step=0.5), (0.0, 0.5)))
    assert found.largest == pytest.approx(0.25)
