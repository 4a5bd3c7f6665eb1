"""Metrics with a direction, and errors relative to the model's own."""

from dataclasses import FrozenInstanceError
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation, gap_of, ring
from tests.auditing.test_regressions import STEP, Oscillator, Path31, sampled
from windermere.auditing import Outcome, Verdict
from windermere.errors import UsageError

TIED, FLOW = Oscillator(tied=True), Oscillator(tied=False)
EULER, RK4 = wm.FixedStep("euler", step=STEP), wm.FixedStep("rk4", step=STEP)


def regression(*, tied: bool, samples: int = 300, noise: float = 2e-3, **options: Any) -> Verdict:
    """An oscillator that is tied to its Euler steps by construction, or solved well."""
    x, y = sampled(noise)
    model = Path31(TIED, EULER) if tied else Path31(FLOW, RK4)
    return wm.audit(model, (x[:samples], y[:samples]), evidence=False, **options)


def rmse(model: nn.Module, step: float) -> float:
    x, y = sampled(2e-3)
    with torch.no_grad(), wm.using(model, wm.FixedStep("euler", step=step)):
        return float((model(x) - y).square().mean().sqrt())


# ---------------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize("metric", ["mse", "rmse", "mae"])
@pytest.mark.parametrize("noise", [0.0, 2e-3])
def test_errors_many_times_the_own_one_tie_and_equal_ones_do_not(metric: str, noise: float) -> None:
    """Without noise the own error is 5e-16, which is exact: errors that matter are still seen."""
    tied, flow = (regression(tied=t, noise=noise, metric=metric) for t in (True, False))
    assert (tied.outcome, flow.outcome) == (Outcome.TIED, Outcome.FLOW)
    assert gap_of(tied).low > 10
    assert gap_of(flow).high < 1.01


def test_an_own_error_at_rounding_is_exact_whatever_the_ratio() -> None:
    """Targets that the own solver makes: its error is 0, and that of the flow 6e-6 of the outputs, which is nothing."""
    x, _ = sampled(0.0)
    model = Path31(FLOW, RK4)
    with torch.no_grad():
        y = model(x) + 7e-12
    verdict = wm.audit(model, (x, y), metric="rmse", evidence=False)
    assert verdict.own.metric == pytest.approx(7e-12, rel=1e-3)
    assert verdict.outcome is Outcome.FLOW


class Raised(nn.Module):
    """Far from 0, as temperatures in kelvin and pressures in pascal are."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.path = Path31(TIED, EULER) if tied else Path31(FLOW, RK4)

    def forward(self, x: Tensor) -> Any:
        return self.path(x) + HEIGHT


HEIGHT = 1e4


@pytest.mark.parametrize("metric", ["mse", "mae"])
def test_where_outputs_are_counted_from_decides_nothing(metric: str) -> None:
    """An error of 2e-3 is small beside 1e4, and large beside what changes."""
    x, y = sampled(2e-3)
    batch = x.double(), y.double() + HEIGHT
    tied, flow = (wm.audit(Raised(tied=t).double(), batch, metric=metric, evidence=False) for t in (True, False))
    assert (tied.outcome, flow.outcome) == (Outcome.TIED, Outcome.FLOW)
    assert gap_of(tied).value == pytest.approx(gap_of(regression(tied=True, metric=metric)).value, rel=1e-2)


def test_squared_errors_and_their_roots_decide_alike_at_any_threshold() -> None:
    for threshold in (2.0, 20.0, 30.0):
        one, other = (regression(tied=True, metric=m, threshold=threshold) for m in ("mse", "rmse"))
        assert one.outcome is other.outcome
        assert one.gap == other.gap
        assert one.own.metric == pytest.approx((other.own.metric or 0.0) ** 2)


def test_the_errors_ratio_is_that_of_their_roots() -> None:
    verdict = regression(tied=True, metric="mse")
    own, flow = verdict.own.metric, verdict.reference.metric
    assert own is not None
    assert flow is not None
    assert gap_of(verdict).value == pytest.approx((flow / own) ** 0.5)


def test_a_solver_that_is_too_coarse_for_a_true_field_is_coarse_and_the_safe_step_has_the_flows_error() -> None:
    x, y = sampled(2e-3)
    model = Path31(FLOW, wm.FixedStep("euler", step=STEP))
    verdict = wm.audit(model, (x, y), metric="rmse", evidence=False)
    assert verdict.outcome is Outcome.COARSE
    assert verdict.sentence.startswith("COARSE: the field is fine, its solver too coarse: rmse ")
    assert verdict.safe_step is None
    assert "Or use midpoint, h = 1/10: it agrees with the flow" in verdict.recommendation
    for threshold in (5.0, 15.0):
        safe = wm.audit(model, (x, y), metric="rmse", threshold=threshold, evidence=False).safe_step
        assert safe == max(h for h in (STEP, STEP / 2, STEP / 4, STEP / 8) if rmse(model, h) < threshold * 2e-3)


class GaussianVelocity(nn.Module):
    """What flow matching learns from a normal distribution to one of spread 0.3 at 2: z goes to 2 + 0.3 z."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        variance = (1 - t) ** 2 + (0.3 * t) ** 2
        return 2.0 + (0.09 * t - (1 - t)) / variance * (z - 2.0 * t)


def test_a_sampler_that_no_solver_trained_is_coarse_in_four_euler_steps_and_a_flow_in_many() -> None:
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    measured = 2.0 + 0.3 * noise + 0.02 * torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
    four, many = (
        wm.audit(wm.ODEBlock(GaussianVelocity(), wm.FixedStep.of(method, steps=n)), (noise, measured), metric="rmse")
        for method, n in (("euler", 4), ("rk4", 32))
    )
    assert (four.outcome, many.outcome) == (Outcome.COARSE, Outcome.FLOW)
    assert "own solver only" not in four.recommendation


def test_r_squared_has_a_direction_and_its_own_units() -> None:
    verdict = regression(tied=True, metric="r2", threshold=0.003)
    assert verdict.outcome is Outcome.TIED
    x, y = sampled(2e-3)
    with torch.no_grad():
        squares = (Path31(TIED, EULER)(x) - y).square().mean()
    expected = 1 - squares / (y - y.mean(dim=0)).square().mean()
    assert verdict.own.metric == pytest.approx(float(expected))


@pytest.mark.parametrize("samples", [1, 3])
def test_one_trajectory_is_judged_by_blocks_of_time(samples: int) -> None:
    tied, flow = (regression(tied=t, samples=samples, metric="mse") for t in (True, False))
    assert (tied.outcome, flow.outcome) == (Outcome.TIED, Outcome.FLOW)
    assert gap_of(tied).blocks
    assert "blocks of time" in tied.facts()[1]
    assert gap_of(tied).high < 1000


def test_times_without_a_measurement_are_left_out() -> None:
    x, y = sampled(2e-3)
    gone = y.clone()
    gone[:, 1::2] = torch.nan
    kept = y[:, ::2]

    class Every(Path31):
        def forward(self, z: Tensor) -> Tensor:
            return super().forward(z)[:, ::2]

    holes = wm.audit(Path31(TIED, EULER), (x, gone), metric="mse", evidence=False)
    whole = wm.audit(Every(TIED, EULER), (x, kept), metric="mse", evidence=False)
    assert holes.own.metric == pytest.approx(whole.own.metric)
    assert gap_of(holes).value == pytest.approx(gap_of(whole).value, rel=1e-6)
    gone[5] = torch.nan
    with pytest.raises(UsageError, match="1 of 300 samples have no target that is a number"):
        wm.audit(Path31(TIED, EULER), (x, gone), metric="mse")


@pytest.mark.parametrize("metric", ["mse", "rmse", "mae", "r2"])
def test_targets_that_are_infinite_or_complex_are_refused(metric: str) -> None:
    """Infinite errors under all solvers would count as equal ones, and an imaginary part would go in silence."""
    x, y = sampled(2e-3)
    for wrong, words in ((y.clone().index_fill_(0, torch.tensor([7]), torch.inf), "infinite"), (y + 0j, "complex")):
        with pytest.raises(UsageError, match=words):
            wm.audit(Path31(TIED, EULER), (x, wrong), metric=metric, evidence=False)


def test_targets_of_another_shape_are_never_spread_out() -> None:
    x, y = sampled(0.0)
    with pytest.raises(UsageError, match="one target for each output"):
        wm.audit(Path31(FLOW, RK4), (x, y.transpose(1, 2)), metric="mse")
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("rk4", steps=8)), nn.Linear(2, 1))
    with torch.no_grad():
        flat = model(ring())[:, 0] + 0.1
    assert wm.audit(model, (ring(), flat), metric="rmse", evidence=False).own.metric == pytest.approx(0.1, rel=1e-3)


# ---------------------------------------------------------------------------------------------------------
# Likelihoods


GROWTH, TURN = torch.eye(2), torch.tensor([[0.0, 1.5], [-1.5, 0.0]])


class LinearField(nn.Module):
    """z' = A z, and the logarithm of its determinant."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix.clone())

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return state[0] @ self.matrix.T, self.matrix.trace() * torch.ones_like(state[1])


class LinearFlow(nn.Module):
    """The log-density of what such a field makes normal, which Euler gets wrong."""

    def __init__(self, matrix: Tensor, steps: int) -> None:
        super().__init__()
        self.block = wm.ODEBlock(LinearField(matrix), wm.FixedStep.of("euler", steps=steps))

    def forward(self, x: Tensor) -> Tensor:
        z, logdet = self.block((x, torch.zeros_like(x[:, :1])))
        log_p: Tensor = -0.5 * z.square().sum(dim=1) - x.shape[1] * log(2 * np.pi) / 2 + logdet[:, 0]
        return log_p


@pytest.mark.parametrize(
    ("matrix", "outcome", "wrong"), [(GROWTH, Outcome.TIED, "good"), (TURN, Outcome.COARSE, "bad")]
)
def test_a_likelihood_is_told_its_nats_and_in_which_direction(matrix: Tensor, outcome: Outcome, wrong: str) -> None:
    """What grows does so less under Euler: its density is too high. What turns goes outwards: it is too low."""
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) @ torch.linalg.matrix_exp(-matrix).T
    only = [wm.Candidate("euler", 0.5), wm.Candidate("rk4", 1.0)]
    verdict = wm.audit(LinearFlow(matrix, 8), (x, None), metric="nll", candidates=only, evidence=False)
    own, flow = verdict.own.metric, verdict.reference.metric
    assert own is not None
    assert flow is not None
    z = x @ torch.linalg.matrix_exp(matrix).T
    assert flow == pytest.approx(
        0.5 * float(z.square().sum(dim=1).mean() + log(4 * np.pi**2) - 2 * matrix.trace()), 1e-4
    )
    assert (own < flow) == (wrong == "good")
    assert verdict.outcome is outcome
    assert f"log-likelihoods are too {wrong} by {abs(own - flow):.3f} nats" in verdict.recommendation


# ---------------------------------------------------------------------------------------------------------
# Metrics of one's own


def test_a_metric_is_a_frozen_value_that_checks_itself() -> None:
    metric = wm.Metric(lambda o, t: o, better="lower", threshold=0.1)
    with pytest.raises(FrozenInstanceError):
        metric.better = "higher"  # type: ignore[misc]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"better": "up"}, 'better is "higher" or "lower"'),
        ({"better": "higher", "relative": True}, 'give better="lower"'),
        ({"better": "lower", "relative": True, "threshold": 0.5}, "a number above 1"),
        ({"better": "lower", "threshold": -1}, "at least 0"),
        ({"better": "lower", "form": "root mean square"}, "give relative=True"),
    ]
    for how, words in wrong:
        with pytest.raises(UsageError, match=words):
            wm.Metric(lambda o, t: o, **how)


def test_a_direction_tells_coarse_from_tied() -> None:
    """The same scores, of which once the lower and once the higher ones are the better."""

    def size(outputs: Tensor, _: Any) -> Tensor:
        return outputs.square().sum(dim=1).sqrt()

    def verdict(better: Any) -> Verdict:
        block = wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=8))
        metric = wm.Metric(size, better=better, threshold=0.1)
        return wm.audit(block, ring(), metric=metric, candidates=[wm.Candidate("rk4", 1.0)], evidence=False)

    assert verdict("lower").outcome is Outcome.COARSE, "Euler goes outwards, and the flow does not"
    assert verdict("higher").outcome is Outcome.TIED


class Pendulum(nn.Module):
    """A conserved energy, which Euler does not conserve."""

    def __init__(self, solver: Any) -> None:
        super().__init__()
        self.path = Path31(Oscillator(tied=False), solver)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.path(x)
        return found

    def energy(self, z: Tensor) -> Tensor:
        return z.square().sum(dim=-1) / 2


def test_energy_drifts_under_euler_and_the_models_own_energy_is_found_by_name() -> None:
    x, _ = sampled(0.0)
    model = Pendulum(EULER)
    by_name = wm.audit(model, x, metric="energy-drift", evidence=False)
    given = wm.audit(model, x, metric=wm.energy_drift(lambda z: z.square().sum(dim=-1) / 2), evidence=False)
    assert by_name.outcome is given.outcome is Outcome.COARSE
    assert by_name.gap == given.gap
    assert wm.audit(Pendulum(RK4), x, metric="energy-drift", evidence=False).outcome is Outcome.FLOW
    with pytest.raises(UsageError, match="the energy at several times"):
        wm.audit(wm.ODEBlock(Rotation(1.0), RK4), ring(), metric=wm.energy_drift(lambda z: z.sum(dim=-1)))


# ---------------------------------------------------------------------------------------------------------
# What metrics may do


def test_a_metric_that_writes_to_what_it_is_given_changes_no_verdict() -> None:
    def distance(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sub_(targets.mul_(2)).abs().mean(dim=(1, 2))

    x, y = sampled(2e-3)
    careful = wm.Metric(lambda o, t: (o - 2 * t).abs().mean(dim=(1, 2)), better="lower", relative=True, name="distance")
    writing = wm.Metric(distance, better="lower", relative=True)
    first, second = (wm.audit(Path31(TIED, EULER), (x, y), metric=m, evidence=False) for m in (careful, writing))
    assert (first.outcome, first.gap) == (second.outcome, second.gap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_metric_may_be_a_network(dtype: torch.dtype) -> None:
    critic = nn.Linear(2, 1, dtype=dtype)
    judged = wm.audit(
        nn.Sequential(wm.ODEBlock(Rotation(3.0), RK4)),
        (ring(50), ring(50)),
        metric=lambda outputs, targets: critic(outputs.to(dtype))[:, 0],
        threshold=0.1,
        evidence=False,
    )
    assert judged.outcome is Outcome.FLOW


def test_complex_scores_are_refused() -> None:
    with pytest.raises(UsageError, match="complex scores"):
        regression(tied=False, metric=lambda outputs, targets: outputs[:, 0, 0] + 0j, threshold=0.1)
