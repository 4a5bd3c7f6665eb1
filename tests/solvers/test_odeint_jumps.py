"""Where `odeint` is told of jumps of the field and of times at which steps are to end."""

from math import exp
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.solvers.fields import DOUBLE, Recorder, coupled, some_states
from tests.solvers.test_odeint import EVERY_ADAPTIVE, at


def jumping(t: Tensor, y: Tensor) -> Tensor:
    return -0.5 * y if t < 0.5 else y**2


@EVERY_ADAPTIVE
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("backwards", [False, True])
def test_steps_end_at_a_jump_and_stay_on_their_side_of_it(method: str, dtype: torch.dtype, backwards: bool) -> None:
    y0 = torch.tensor([1.0, 1.2], dtype=dtype)
    t = torch.tensor([1.0, 0.75, 0.0] if backwards else [0.0, 0.25, 1.0])
    plain, told = Recorder(jumping), Recorder(jumping)
    how: dict[str, Any] = {"method": method, "rtol": 1e-6, "atol": 1e-6}
    wm.odeint(plain, y0, t, **how)
    states = wm.odeint(told, y0, t, **how, options={"jump_t": torch.tensor([0.5])})
    assert told.calls < plain.calls
    assert 0.5 not in told.times
    assert any(0.5 < t < 0.5 + 1e-6 for t in told.times)
    assert any(0.5 - 1e-6 < t < 0.5 for t in told.times)
    middle = y0 / (1 + y0 / 2) if backwards else y0 * exp(-0.25)
    exact = middle * exp(0.25) if backwards else middle / (1 - middle / 2)
    torch.testing.assert_close(states[-1], exact, rtol=0, atol=1e-3)


def test_the_adjoint_stops_at_jumps_too() -> None:
    class Jumping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = nn.Parameter(at(0.5))

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return self.rate * y if t < 0.5 else -2 * self.rate * y

    field = Jumping()
    end = wm.odeint_adjoint(field, at(2.0), at(0.0, 1.0), options={"jump_t": at(0.5)})[-1]
    (gradient,) = torch.autograd.grad(end, field.rate)
    torch.testing.assert_close(end, 2 * torch.exp(-0.5 * field.rate))
    torch.testing.assert_close(gradient, -torch.exp(-0.5 * field.rate))


def test_steps_end_at_the_times_of_step_t() -> None:
    field = Recorder(coupled)
    wm.odeint(field, some_states(2, 2), at(0.0, 2.0), rtol=1e-3, atol=1e-3, options={"step_t": at(0.7, 5.0)})
    assert 0.7 in field.times
