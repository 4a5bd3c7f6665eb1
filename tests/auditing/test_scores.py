"""What a metric of one's own gives: one score for each sample or each of its times, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation, gap_of, ring
from windermere.errors import UsageError

TIMES = torch.linspace(0, 1, 9).tolist()
LOOSE = 0.05
Score = Callable[[Any, Any], Any]


def walks(steps: int) -> nn.Module:
    """Rotations, [T, n, 2]."""
    return wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=steps), times=TIMES)


def test_the_share_of_times_that_are_hit_is_judged_by_its_own_interval() -> None:
    """As classes of a sequence are: the interval of a difference holds the difference."""
    x = ring()
    with torch.no_grad(), wm.using(flow := walks(8), wm.FixedStep("rk4", step=1 / 256)):
        targets = flow(x).movedim(0, 1)
    hit = wm.Metric(lambda outputs, targets: (outputs - targets).norm(dim=2) < LOOSE, better="higher", threshold=0.1)
    gap = gap_of(wm.audit(walks(64), (x, targets), metric=hit, evidence=False))
    assert gap.value < -0.1
    assert gap.low <= gap.value <= gap.high


class Growth(nn.Module):
    """Logistic growth: whatever the start and the step, all comes to rest at 1."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return 1.5 * z * (1 - z)


class Curve(nn.Module):
    """One number at each time, [n, T]."""

    def __init__(self, solver: wm.FixedStep) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Growth(), solver, times=torch.linspace(0, 20, 41).tolist(), interpolate=True)

    def forward(self, x: Tensor) -> Any:
        return self.block(x)[..., 0].T


@pytest.mark.parametrize(
    "score", [lambda outputs, targets: (outputs - targets).abs(), lambda o, t: (o - t).abs().mean(dim=1)]
)
def test_a_solver_that_is_right_at_the_end_alone_is_not_taken_for_an_accurate_one(score: Score) -> None:
    """All solvers end where the flow does, to rounding, and coarse Euler steps are far from it on the way."""
    x = torch.linspace(0.01, 0.1, 200)[:, None]
    with torch.no_grad():
        targets = Curve(wm.FixedStep("rk4", step=1 / 50)).double()(x.double())
    metric = wm.Metric(score, better="lower", threshold=0.004)
    verdict = wm.audit(Curve(wm.FixedStep("rk4", step=1 / 2)), (x, targets), metric=metric, evidence=False)
    assert verdict.outcome == "FLOW"
    assert [line.method for line in verdict.table if line.counts and line.method == "euler"] == []


def points() -> Tensor:
    return torch.randn(200, 2, generator=torch.Generator().manual_seed(0))


def column() -> nn.Module:
    """One output for each sample, [n, 1]."""
    return nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("rk4", steps=8)), nn.Linear(2, 1))


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize(
    "spread",
    [lambda outputs, targets: (outputs - targets).abs(), lambda o, t: (o - t).square().reshape(len(o), -1).mean(dim=1)],
)
def test_a_metric_that_spreads_outputs_and_targets_out_against_each_other_is_refused(
    spread: Score, relative: bool
) -> None:
    """Outputs [n, 1] minus targets [n] are [n, n]: every score would be one of all targets, whatever the solver."""
    metric = wm.Metric(spread, better="lower", threshold=None if relative else 0.1, relative=relative)
    for model, targets in ((column(), points()[:, 0]), (nn.Sequential(column(), nn.Flatten(0)), points()[:, :1])):
        with pytest.raises(UsageError, match="out against each other"):
            wm.audit(model, (points(), targets), metric=metric, evidence=False)
        with torch.no_grad():
            like = targets.reshape(model(points()).shape)
        assert wm.audit(model, (points(), like), metric=metric, evidence=False).samples == len(like)


def _scaled(outputs: Tensor, targets: Tensor) -> Any:
    return (outputs[:, 0] - targets).abs() / targets.std()


def _of_outputs_alone(outputs: Tensor, targets: Tensor) -> Any:
    return outputs.square().sum(dim=1)


@pytest.mark.parametrize("metric", [_scaled, _of_outputs_alone])
def test_a_metric_that_sees_to_the_shapes_itself_is_taken(metric: Score) -> None:
    verdict = wm.audit(column(), (points(), points()[:, 0]), metric=metric, threshold=0.1, evidence=False)
    assert verdict.outcome == "FLOW"


def test_targets_that_are_all_the_same_may_be_spread_out() -> None:
    verdict = wm.audit(
        column(), (points(), torch.zeros(len(points()))), metric=lambda o, t: (o - t).mean(dim=1), threshold=1
    )
    assert verdict.outcome == "FLOW"


def test_scores_with_more_axes_than_times_are_told_what_to_do() -> None:
    def by_entry(outputs: Tensor, targets: Any) -> Any:
        return (outputs - targets).abs()

    x = points()
    with pytest.raises(UsageError, match="mean over all axes but the samples'"):
        wm.audit(walks(8), (x, torch.zeros(len(x), len(TIMES), 2)), metric=by_entry, threshold=0.1)
