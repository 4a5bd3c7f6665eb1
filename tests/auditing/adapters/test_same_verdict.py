"""One network as a torchdiffeq model and as our block: one verdict, with the same numbers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

import windermere as wm
from tests.auditing.adapters.torchdiffeq_models import ODENet, ours, stepping


def trained() -> tuple[ODENet, Tensor, Tensor]:
    """A little, with coarse steps: enough that solvers differ."""
    torch.manual_seed(0)
    model = ODENet(**stepping("euler", 0.25))
    x = torch.randn(400, 2)
    y = (x.norm(dim=1) > 1.1).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model, x, y


@pytest.mark.parametrize("solver", [odeint, odeint_adjoint])
@pytest.mark.parametrize(("theirs", "method", "step"), [("euler", "euler", 0.25), ("rk4", "rk4_38", 0.5)])
def test_verdicts_agree_in_every_number(solver: Any, theirs: str, method: str, step: float) -> None:
    model, x, y = trained()
    model.solver, model.how = solver, stepping(theirs, step)
    one = wm.audit(model, (x, y))
    other = wm.audit(ours(model, wm.FixedStep(method, step=step)), (x, y))
    assert one.outcome is other.outcome
    names = ("torchdiffeq's rk4 is called rk4_38 here (the 3/8 rule; our rk4 is the classical one)",)
    assert one.notes == (names if theirs == "rk4" else ())
    assert_close(replace(one, notes=()).to_dict(), other.to_dict(), "verdict")


def assert_close(one: Any, other: Any, where: str) -> None:
    """To 1e-5, however deep."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_close(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_close(a, b, f"{where}[{i}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5), where
    else:
        assert one == other, where
