"""torchdiffeq models that cannot be audited, or only in part."""

from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn
from torchdiffeq import odeint

from tests.auditing.adapters.models import points
from tests.auditing.adapters.torchdiffeq_models import ODENet, stepping
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.errors import AuditError, SolverError

DOUBLE = torch.float64


def test_a_solve_until_an_event_is_refused() -> None:
    class Falling(nn.Module):
        def forward(self, x: Tensor) -> Any:
            _, out = torchdiffeq.odeint_event(
                lambda t, z: -torch.ones_like(z), x, torch.tensor(0.0), event_fn=lambda t, z: z.sum() + 50, atol=1e-3
            )
            return out[-1]

    with pytest.raises(AuditError, match="until an event"):
        TorchdiffeqSubject(Falling(), points())


def test_a_model_without_a_solve_is_refused() -> None:
    with pytest.raises(AuditError, match="asked torchdiffeq for no solve"):
        TorchdiffeqSubject(nn.Linear(2, 2), points())


def test_a_model_that_returns_one_number_is_refused() -> None:
    class Loss(ODENet):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x).mean()

    subject_of = Loss(**stepping("euler", 0.5))
    with pytest.raises(AuditError, match="one output for each sample"):
        TorchdiffeqSubject(subject_of, points()).forward(points(), None)


def test_a_solver_of_theirs_that_gives_up_is_a_sentence() -> None:
    model = ODENet(rtol=1e-6, atol=1e-6, method="dopri5", options={"max_num_steps": 1})
    with pytest.raises(SolverError, match=r"torchdiffeq's own dopri5 gave up: max_num_steps exceeded.*; loosen"):
        TorchdiffeqSubject(model, points())


def test_weights_that_are_not_finite_are_named_where_theirs_says_underflow() -> None:
    model = ODENet(rtol=1e-3, atol=1e-3, method="dopri5")
    next(model.parameters()).data.fill_(float("nan"))
    with pytest.raises(SolverError, match=r"underflow in dt.*; the field is not finite where it starts"):
        TorchdiffeqSubject(model, points())


def test_a_state_that_is_not_by_sample_is_hidden() -> None:
    class Transposed(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return odeint(lambda t, z: -z, x.T, torch.tensor([0.0, 1.0]), **stepping("euler", 0.5))[-1].T

    subject = TorchdiffeqSubject(Transposed(), points())
    assert subject.forward(points(), None).states is None
    assert subject.insight(points()) is None
