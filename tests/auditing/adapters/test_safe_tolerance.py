"""A tolerance that an audit calls safe is so in the library itself, whose steps are not ours."""

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.adapters.torchdiffeq_models import ODENet
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.errors import ToleranceError

POINTS = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
END = torch.tensor([0.0, 1.0])


class Field(nn.Module):
    """A network that moves points about as far as they are apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
        for weight in self.parameters():
            weight.data *= 2

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        rate: Tensor = self.net(torch.cat([z, t.to(z).expand(len(z), 1)], dim=1))
        return rate


@pytest.mark.parametrize("method", ["fehlberg2", "bosh3"])
def test_a_safe_tolerance_is_safe_in_torchdiffeq(method: str) -> None:
    field = Field()

    def solved(x: Tensor, tolerance: float) -> Tensor:
        with torch.no_grad():
            end: Tensor = odeint(field, x, END.to(x), method=method, rtol=tolerance, atol=tolerance)[-1]
        return end

    verdict = wm.audit(lambda x: solved(x, 1e-4), POINTS, evidence=False)
    assert verdict.safe_step is not None
    by_it = solved(POINTS, verdict.safe_step).double()
    field.double()
    with torch.no_grad():
        flow = odeint(field, POINTS.double(), END.double(), rtol=1e-9, atol=1e-10)[-1]
    moved = (by_it - flow).square().mean().sqrt() / (flow - flow.mean(dim=0)).square().mean().sqrt()
    assert moved <= 0.01


@pytest.mark.parametrize("method", ["dopri5", "bosh3", "fehlberg2", "adaptive_heun"])
@pytest.mark.parametrize(("other", "ours"), [("dopri5", "dopri54"), ("bosh3", "bosh32")])
def test_a_method_of_the_librarys_at_another_tolerance_is_its_own(method: str, other: str, ours: str) -> None:
    loose, tight = ODENet(method=method, rtol=1e-3, atol=1e-4), ODENet(method=other, rtol=1e-4, atol=1e-5)
    tight.load_state_dict(loose.state_dict())
    subject, x = TorchdiffeqSubject(loose, POINTS), POINTS
    tighter = subject.forward(x, wm.Candidate(ours, 0.1))
    with torch.no_grad():
        torch.testing.assert_close(tighter.outputs, tight(x).double(), rtol=1e-6, atol=1e-6)
    assert tighter.evaluations != subject.forward(x, None).evaluations


def test_a_tolerance_that_float32_cannot_resolve_is_refused_there_and_tried_in_float64() -> None:
    subject, tighter = TorchdiffeqSubject(ODENet(rtol=1e-6, atol=1e-6), POINTS), wm.Candidate("dopri54", 0.01)
    with pytest.raises(ToleranceError):
        subject.forward(POINTS, tighter)
    assert subject.forward(POINTS, tighter, double=True).dtype == "float64"
