"""Models whose solves have several solvers: what is told of one of them holds for all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_known_cases import Rotation
from windermere.auditing import Outcome

POINTS = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
FAST, SLOW = (6.0, 1 / 32), (0.1, 1 / 2)
"""By how much a solve turns, and by which steps of rk4."""


class ByTorchdiffeq(nn.Module):
    def __init__(self, *turns: tuple[float, float]) -> None:
        super().__init__()
        self.fields, self.steps = nn.ModuleList(Rotation(turn) for turn, _ in turns), [step for _, step in turns]

    def forward(self, x: Tensor) -> Any:
        for field, step in zip(self.fields, self.steps, strict=True):
            x = odeint(field, x, torch.tensor([0.0, 1.0]), method="rk4", options={"step_size": step})[-1]
        return x


def by_blocks(*turns: tuple[float, float]) -> nn.Module:
    return nn.Sequential(*(wm.ODEBlock(Rotation(turn), wm.FixedStep("rk4", step=step)) for turn, step in turns))


@pytest.mark.parametrize("turns", [(FAST, SLOW), (SLOW, FAST)])
@pytest.mark.parametrize("made", [by_blocks, ByTorchdiffeq])
def test_a_safe_step_is_safe_in_every_solve(made: Any, turns: Any) -> None:
    verdict = wm.audit(made(*turns), POINTS, outputs="classes", evidence=False)
    assert verdict.safe_step is not None
    alike, flow = by_blocks(*((turn, verdict.safe_step) for turn, _ in turns)), by_blocks((6.1, 1 / 256))
    assert float((alike(POINTS).argmax(1) == flow(POINTS).argmax(1)).double().mean()) >= 0.99
    assert verdict.own.precision == 1 / 32
    assert any("its solves have several steps (1/32 to 1/2)" in note for note in verdict.notes)


def test_a_solver_of_several_methods_is_told_by_all_of_them_and_is_no_row() -> None:
    coarse, fine = wm.FixedStep("euler", step=1 / 2), wm.Adaptive("dopri54", tolerance=1e-3)
    model = nn.Sequential(wm.ODEBlock(Rotation(6.0), coarse), wm.ODEBlock(Rotation(0.5), fine))
    verdict = wm.audit(model, (POINTS, model(POINTS).argmax(1)), evidence=False)
    assert verdict.outcome is Outcome.TIED
    assert "accuracy 1.000 with euler, h = 1/2 and then dopri54, tol = 0.001, " in verdict.sentence
    assert "(own)" not in str(verdict)
    assert verdict.own.solver not in {line.solver for line in verdict.table}
