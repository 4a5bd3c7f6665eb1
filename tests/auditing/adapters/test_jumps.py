"""Fields that jump at times that their solves are told: every adaptive solver of an audit ends its steps there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn

import windermere as wm
from windermere.auditing import Outcome

SLOPES = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
KNOTS = torch.arange(9.0)
STARTS = torch.linspace(0.5, 1.5, 20)[:, None]


class Driven(nn.Module):
    """As a controlled differential equation whose control is piecewise linear."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        slope = SLOPES[int(t.clamp(0, 7.999))]
        return 0.3 * slope * torch.cos(z)


class Model(nn.Module):
    def __init__(self, odeint: Callable[..., Any], times: tuple[float, float], option: str) -> None:
        super().__init__()
        self.field, self.odeint, self.times = Driven(), odeint, times
        self.options = {option: KNOTS[1:-1] if option == "jump_t" else KNOTS[1:-1] + 0.25}

    def forward(self, x: Tensor) -> Any:
        t = torch.tensor(self.times)
        return self.odeint(self.field, x, t, rtol=1e-4, atol=1e-4, options=dict(self.options))[-1]


def exact(z: Tensor, *, backwards: bool) -> Tensor:
    """The field is a number of t times cos(z), so that an integral of 1 / cos(z) moves by these numbers' sum."""
    way = 0.3 * float(SLOPES.sum()) * (-1 if backwards else 1)
    return torch.asin(torch.tanh(torch.atanh(torch.sin(z.double())) + way))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("odeint", [torchdiffeq.odeint, wm.odeint])
def test_the_flow_of_a_field_that_jumps_where_its_solve_is_told_is_found(
    odeint: Callable[..., Any], backwards: bool
) -> None:
    model = Model(odeint, (8.0, 0.0) if backwards else (0.0, 8.0), "jump_t")
    verdict = wm.audit(model, (STARTS, exact(STARTS, backwards=backwards) + 0.01), metric="mae", evidence=False)
    assert verdict.outcome is Outcome.FLOW, verdict
    assert verdict.reference.metric == pytest.approx(0.01, abs=1e-6)
    assert not any("jump_t" in note for note in verdict.notes)


@pytest.mark.parametrize("odeint", [torchdiffeq.odeint, wm.odeint])
def test_other_solvers_stop_where_the_steps_of_a_solve_are_to_end(odeint: Callable[..., Any]) -> None:
    verdict = wm.audit(Model(odeint, (0.0, 8.0), "step_t"), STARTS, evidence=False)
    loosest = max(verdict.table, key=lambda line: line.precision)
    assert loosest.evaluations >= 8 * 6
