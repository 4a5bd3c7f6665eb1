"""float64 for torchdiffeq models, and what a pass leaves behind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint
from torchdiffeq._impl.odeint import SOLVERS

from tests.auditing.adapters.models import TimeField, points
from tests.auditing.adapters.torchdiffeq_models import ODENet, stepping
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.errors import DoublePrecisionError

DOUBLE = torch.float64


def test_a_model_in_float32_runs_in_float64_with_its_plain_tensors() -> None:
    model, x = ODENet(**stepping("euler", 0.125)), points()
    model.scale = torch.tensor([0.5, 2.0])
    subject = TorchdiffeqSubject(model, x)
    assert subject.notes == ()
    done = subject.forward(x, None, double=True)
    twin = ODENet(**stepping("euler", 0.125)).double()
    with torch.no_grad():
        assert torch.equal(done.outputs, twin(x.double()))
    assert all(p.dtype == torch.float32 for p in model.parameters())


class Stubborn(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.field, self.where = TimeField(), where

    def forward(self, x: Tensor) -> Any:
        def rate(t: Tensor, z: Tensor) -> Any:
            return self.field(t, z).float() if self.where == "rate" else self.field(t, z)

        if self.where == "inputs":
            x = x.float()
        if self.where == "product":
            x = x @ torch.eye(2, dtype=torch.float32)
        return odeint(rate, x, torch.tensor([0.0, 1.0]), **stepping("euler", 0.5))[-1]


@pytest.mark.parametrize("where", ["inputs", "product", "rate"])
@pytest.mark.parametrize("change", [None, lambda own: own])
def test_a_model_that_hard_codes_float32_says_so(where: str, change: Any) -> None:
    subject = TorchdiffeqSubject(Stubborn(where), points())
    assert "cannot run in float64" in subject.notes[0]
    with pytest.raises(DoublePrecisionError, match="cannot run in float64"):
        subject.forward(points(), change, double=True)
    assert subject.insight(points()) is None
    assert subject.forward(points(), lambda own: own).outputs.dtype == DOUBLE


def test_modes_and_parameters_are_untouched_and_dropout_is_off() -> None:
    model = ODENet(**stepping("euler", 0.5))
    model.fc = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2), nn.Linear(2, 2))  # type: ignore[assignment]
    model.train()
    model.fc[1].eval()  # type: ignore[index]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    subject = TorchdiffeqSubject(model, points())
    one, two = (subject.forward(points(), None) for _ in range(2))
    assert torch.equal(one.outputs, two.outputs)
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_the_table_is_restored_after_an_exception() -> None:
    class Failing(ODENet):
        fail = False

        def forward(self, x: Tensor) -> Any:
            super().forward(x)
            if self.fail:
                raise ZeroDivisionError
            return super().forward(x)

    table = dict(SOLVERS)
    model = Failing(**stepping("euler", 0.5))
    subject = TorchdiffeqSubject(model, points())
    assert table == SOLVERS
    audited: Any = subject.model
    audited.fail = True
    with pytest.raises(ZeroDivisionError):
        subject.forward(points(), lambda own: own)
    assert table == SOLVERS
    assert list(table) == list(SOLVERS)
