"""The energy that a field names, along the solver's way and under the flow."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.auditing.evidence.walks import points, turn, walked
from windermere.auditing.evidence.energy import energy_of, own_energy_drift
from windermere.nn import Autonomous
from windermere.solvers import FixedStep


class Oscillator(nn.Module):
    """Turns by one in a time of one, and keeps its distance from the origin."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.stack([z[:, 1], -z[:, 0]], dim=1)

    def hamiltonian(self, z: Tensor) -> Tensor:
        return z.square().sum(dim=1) / 2


def test_euler_gains_the_energy_that_the_flow_keeps() -> None:
    """Each of its steps multiplies the energy by 1 + h^2."""
    start, exact = points(), turn(-1.0)
    found = own_energy_drift(walked(Oscillator(), start, FixedStep("euler", step=0.1), flow=lambda z: z @ exact))
    energy = start.square().sum(dim=1) / 2
    gained = (1.01**10 - 1) * energy / (energy - energy.mean()).abs().mean()
    assert found is not None
    assert found.own == pytest.approx(float(gained.median()))
    assert found.largest == pytest.approx(float(gained.max()))
    assert found.flow == pytest.approx(0.0, abs=1e-12)
    assert "under the flow by" in found.finding


def test_a_field_without_an_energy_or_with_something_else_of_that_name_has_no_drift() -> None:
    field = Oscillator()
    for other in (3.0, lambda q, p: q, lambda z: z, lambda z: "high", lambda z: torch.full((len(z),), torch.nan)):
        field.hamiltonian = other  # type: ignore[assignment, method-assign]
        assert own_energy_drift(walked(field, points(), FixedStep("euler", step=0.5))) is None
    assert own_energy_drift(walked(lambda t, z: -z, points(), FixedStep("euler", step=0.5))) is None


def test_the_energy_is_found_in_what_a_field_wraps() -> None:
    inner = nn.Linear(2, 2)
    inner.energy = nn.Linear(2, 1)
    assert energy_of(Autonomous(inner)) is inner.energy
    asked = SimpleNamespace(field=inner)
    assert energy_of(SimpleNamespace(asked=asked, parts=None)) is inner.energy
    assert energy_of(SimpleNamespace(asked=asked, parts=[torch.Size([2])])) is None
