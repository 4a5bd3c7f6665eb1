"""Regressions as docs/audit.md tells users to audit them, on a model that is tied by construction."""

from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import gap_of
from windermere.auditing import Outcome, Verdict

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
STEP, TIMES = 0.1, tuple(i / 10 for i in range(31))
TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


class Oscillator(nn.Module):
    """z' = A z, where Euler steps of 0.1 go just to where the oscillator is, exp(0.1 J) = 1 + 0.1 A; with a field of
    its own, A = J, it is the flow that does."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        by_steps = (torch.linalg.matrix_exp(STEP * TURN) - torch.eye(2, dtype=torch.float64)) / STEP
        self.matrix = nn.Parameter((by_steps if tied else TURN).T.clone())

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z @ self.matrix


class Path31(nn.Module):
    """31 states of each sample, [n, 31, 2]."""

    def __init__(self, field: nn.Module, solver: Any) -> None:
        super().__init__()
        self.block = wm.ODEBlock(field, solver, times=TIMES)

    def forward(self, z: Tensor) -> Tensor:
        states: Tensor = self.block(z)
        return states.transpose(0, 1)


def sampled(noise: float) -> tuple[Tensor, Tensor]:
    """Starts, and where the oscillator really is at all times, as it was measured."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(300, 2, dtype=torch.float64, generator=generator) - 1
    states = [x @ torch.linalg.matrix_exp(t * TURN).T for t in TIMES]
    y = torch.stack(states, dim=1)
    return x, y + noise * torch.randn(y.shape, dtype=torch.float64, generator=generator)


def by_errors(model: nn.Module, inputs: Tensor, targets: Tensor) -> Verdict:
    """What the page tells users to write."""
    return wm.audit(model, (inputs, targets), metric="mse", evidence=False)


def by_r_squared(model: nn.Module, inputs: Tensor, targets: Tensor) -> Verdict:
    spread = (targets - targets.mean(dim=0)).square().mean()

    def r_squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return 1 - (outputs - targets).square().flatten(1).mean(dim=1) / spread

    return wm.audit(model, (inputs, targets), metric=r_squared, threshold=0.05, evidence=False)


@pytest.mark.parametrize("noise", [0.0, 2e-3])
def test_relative_errors_tie_a_model_whose_error_grows_by_hundreds_and_that_r_squared_calls_a_flow(
    noise: float,
) -> None:
    model, batch = Path31(Oscillator(tied=True), wm.FixedStep("euler", step=STEP)), sampled(noise)
    with torch.no_grad():
        own = (model(batch[0]) - batch[1]).square().mean()
        with wm.using(model, wm.FixedStep("rk4", step=1 / 100)):
            flow = (model(batch[0]) - batch[1]).square().mean()
    assert flow > 100 * own
    assert by_r_squared(model, *batch).outcome is Outcome.FLOW
    assert by_errors(model, *batch).outcome is Outcome.TIED


@pytest.mark.parametrize("noise", [0.0, 2e-3])
def test_relative_errors_call_a_flow_what_is_one_down_to_no_error_at_all(noise: float) -> None:
    model, batch = Path31(Oscillator(tied=False), wm.FixedStep("rk4", step=STEP)), sampled(noise)
    verdict = by_errors(model, *batch)
    assert verdict.outcome is Outcome.FLOW
    assert verdict.metric == "mse"


def test_no_page_recommends_r_squared_any_more() -> None:
    pages = [PAGE.parents[1] / "README.md", *PAGE.parent.glob("*.md")]
    assert not [page.name for page in pages if page.exists() and "r_squared" in page.read_text()]


# ---------------------------------------------------------------------------------------------------------
# Series of several lengths, batch by batch


class ManyTimes(nn.Module):
    """As many times as the inputs have, from the state at the first one."""

    def forward(self, x: Tensor) -> Tensor:
        times = torch.linspace(0.0, x.shape[1] / 10, x.shape[1])
        return wm.odeint(lambda t, z: torch.sin(3 * z), x[:, 0], times, method="euler").movedim(1, 0)


def series(samples: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = [torch.randn(samples, times, 2, generator=generator) for times in (10, 15, 20)]
    return [(each, ManyTimes()(each) + 0.05 * torch.randn(each.shape, generator=generator)) for each in x]


@pytest.mark.parametrize("samples", [3, 40])
@pytest.mark.parametrize("metric", ["mse", "rmse", "mae", "r2", None])
def test_series_of_several_lengths_are_judged_together(metric: str | None, samples: int) -> None:
    batches: Any = series(samples) if metric else [(x,) for x, _ in series(samples)]
    verdict = wm.audit(ManyTimes(), batches, metric=metric, samples=None, evidence=False)
    assert verdict.samples == 3 * samples
    alone = [wm.audit(ManyTimes(), [b], metric=metric, samples=None, evidence=False).own.metric for b in batches]
    if metric in ("mse", "mae"):
        assert verdict.own.metric == pytest.approx(np.mean([each or 0.0 for each in alone]), rel=1e-6)
    assert isfinite(gap_of(verdict).value)
