"""Agreement with torchdiffeq where the method is the same one.

Not its fehlberg2 and adaptive_heun (which reuse a stage that is not the next step's first); its rk4 is the 3/8 rule.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torchdiffeq
from torch import Tensor

from tests.solvers.fields import Network, Recorder, coupled, some_states
from windermere.solvers import Adaptive, FixedStep, OnGrid, solve

FIXED = {"euler": "euler", "midpoint": "midpoint", "heun": "heun2", "heun3": "heun3", "rk4_38": "rk4"}
ADAPTIVE = {"dopri54": "dopri5", "bosh32": "bosh3"}
WAYS = pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0), (-0.5, 2.5)])


class Watched(torch.nn.Module):
    """A field that torchdiffeq tells of its steps."""

    def __init__(self, field: Any) -> None:
        super().__init__()
        self.field = field
        self.calls = self.accepted = self.rejected = 0

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.calls += 1
        return self.field(t, z)

    def callback_accept_step(self, t: Tensor, z: Tensor, dt: Tensor) -> None:
        self.accepted += 1

    def callback_reject_step(self, t: Tensor, z: Tensor, dt: Tensor) -> None:
        self.rejected += 1


def theirs(field: Any, z: Tensor, times: tuple[float, ...], method: str, **options: Any) -> Any:
    tolerance = options.pop("tolerance", 1e-7)
    moments = torch.tensor(times, dtype=z.dtype)
    return torchdiffeq.odeint(field, z, moments, rtol=tolerance, atol=tolerance, method=method, options=options)


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("steps", [1, 2, 10, 64])
@WAYS
def test_fixed_steps_are_torchdiffeqs(method: str, steps: int, times: tuple[float, ...]) -> None:
    z, field = some_states(5, 2), Recorder(coupled)
    step = abs(times[1] - times[0]) / steps
    want = theirs(field, z, times, FIXED[method], step_size=step)
    got = solve(coupled, z, FixedStep(method, step=step), times)
    assert got.stats.evaluations == field.calls
    torch.testing.assert_close(got.states, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", FIXED)
def test_a_grid_of_its_own_is_what_torchdiffeq_does_without_a_step(method: str) -> None:
    z, times = some_states(5, 2), (0.0, 0.1, 0.5, 0.55, 1.0)
    got = solve(coupled, z, OnGrid(method, times), times)
    torch.testing.assert_close(got.states, theirs(coupled, z, times, FIXED[method]), rtol=1e-13, atol=1e-13)


def test_the_classical_rk4_is_not_what_torchdiffeq_calls_rk4() -> None:
    z = some_states(5, 2)
    classical = solve(coupled, z, FixedStep("rk4", step=1 / 4)).final
    assert isinstance(classical, Tensor)
    assert float((classical - theirs(coupled, z, (0.0, 1.0), "rk4", step_size=1 / 4)[-1]).abs().max()) > 1e-4


@pytest.mark.parametrize("method", ADAPTIVE)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-8])
@WAYS
def test_adaptive_steps_are_torchdiffeqs(method: str, tolerance: float, times: tuple[float, ...]) -> None:
    """torchdiffeq steps over the end and interpolates, unless it is told to stop there (in its own, rising time)."""
    z, field = some_states(6, 2), Watched(coupled)
    end = torch.tensor([max(times) if times[1] > times[0] else -min(times)], dtype=z.dtype)
    want = theirs(field, z, times, ADAPTIVE[method], tolerance=tolerance, step_t=end)
    got = solve(coupled, z, Adaptive(method, tolerance=tolerance), times)
    torch.testing.assert_close(got.states, want, rtol=1e-11, atol=1e-11)
    assert (got.stats.accepted, got.stats.rejected) == (field.accepted, field.rejected)
    assert got.stats.evaluations == field.calls


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
@pytest.mark.parametrize("falling", [False, True])
def test_states_at_a_hundred_times_are_torchdiffeqs_at_the_same_cost(tolerance: float, falling: bool) -> None:
    times = tuple(np.linspace(0, 2, 100)[:: -1 if falling else 1].tolist())
    z, field = some_states(6, 2), Watched(coupled)
    end = torch.tensor([0.0 if falling else 2.0], dtype=z.dtype)
    want = theirs(field, z, times, "dopri5", tolerance=tolerance, step_t=end)
    got = solve(coupled, z, Adaptive("dopri54", tolerance=tolerance), times)
    torch.testing.assert_close(got.states, want, rtol=1e-10, atol=1e-10)
    assert got.stats.evaluations == field.calls


@pytest.mark.parametrize("method", FIXED)
def test_gradients_of_fixed_steps_are_torchdiffeqs(method: str) -> None:
    """Of adaptive steps they are not: torchdiffeq's go through the choice of the steps as well."""
    network, z = Network(), some_states(4, 2)
    want = theirs(network, z, (0.0, 1.0), FIXED[method], step_size=1 / 8)[-1]
    got = solve(network, z, FixedStep(method, step=1 / 8)).final
    assert isinstance(got, Tensor)
    for a, b in zip(
        torch.autograd.grad(got.square().sum(), list(network.parameters())),
        torch.autograd.grad(want.square().sum(), list(network.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
