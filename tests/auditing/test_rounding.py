"""Models in half precision: what their rounding does is not their solver's fault."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from windermere.auditing import Outcome

POINTS = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))


class Turning(nn.Module):
    """By 6, with weights, so that the model has a dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[0.0, 6.0], [-6.0, 0.0]]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z @ self.matrix


class Autocast(nn.Module):
    """Computes in bfloat16, though its weights and states are in float32."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.block(x).float()


def turning(method: str, steps: int) -> wm.ODEBlock:
    return wm.ODEBlock(Turning(), wm.FixedStep.of(method, steps=steps))


@pytest.mark.parametrize("metric", [None, "mse"])
def test_a_solver_is_not_called_too_coarse_for_what_half_precision_rounds(metric: str | None) -> None:
    model, x = turning("rk4", 40).to(torch.bfloat16), POINTS.bfloat16()
    targets = turning("rk4", 40)(x.float()).detach() + 1e-3
    data: Any = x if metric is None else (x, targets)
    verdict = wm.audit(model, data, metric=metric, evidence=False)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "in half precision it rounds too much to tell" in verdict.sentence


def test_a_solver_is_not_called_too_coarse_for_what_autocast_rounds() -> None:
    plain, data = turning("rk4", 40), (POINTS, turning("rk4", 40)(POINTS).detach() + 1e-4)
    verdict = wm.audit(Autocast(plain), data, metric="mse", evidence=False)
    assert "in half precision it rounds too much to tell" in verdict.sentence
    assert wm.audit(plain, data, metric="mse", evidence=False).outcome is Outcome.FLOW


def test_a_solver_that_is_too_coarse_in_any_precision_is_called_so_in_half_precision() -> None:
    model, x = turning("euler", 20).to(torch.bfloat16), POINTS.bfloat16()
    verdict = wm.audit(model, (x, model(x).float().detach() + 0.01), metric="mse", evidence=False)
    assert verdict.outcome is Outcome.TIED


def test_the_row_of_its_own_solver_is_the_model_as_it_is_in_half_precision() -> None:
    verdict = wm.audit(turning("rk4", 40).half(), POINTS.half(), evidence=False)
    (own,) = (line for line in verdict.table if line.solver == verdict.own.solver)
    assert (own.metric, own.error) == (0.0, verdict.own.error)
