"""Hand-written loops against their method on the same nodes: every known kind of slip is named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from windermere.errors import AuditError, UsageError

NOISE = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def velocity(x: Tensor, t: Any) -> Tensor:
    rate: Tensor = torch.sin(3 * x) * (1 + t) - x
    return rate


def euler(size: Callable[[int, int], float], time: Callable[[int, int], float]) -> Callable[..., Tensor]:
    """An Euler loop with steps and times as a slip would have them."""

    def loop(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
        for k in range(steps):
            x = x + v(x, time(k, steps)) * size(k, steps)
        return x

    return loop


right = euler(lambda k, n: 1 / n, lambda k, n: k / n)


def without_last(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    for k in range(steps - 1):
        x = x + v(x, k / steps) / steps
    return x


def always_ten(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    return right(v, x, 10)


def clipped(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        x = (x + v(x, k / steps) / steps).clamp(-0.5, 0.5)
    return x


def guided(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        x = x + (2 * v(x, k / steps) - v(x, k / steps)) / steps
    return x


def test_a_loop_that_is_right_agrees_and_becomes_a_sampler() -> None:
    report = wm.audit_loop(right, velocity, NOISE, steps=8)
    assert report.agrees, report
    assert (report.evaluations, report.departs) == (8, None)
    assert report.total == pytest.approx(1)
    assert report.sampler.solver == wm.FixedStep("euler", step=1 / 8)
    torch.testing.assert_close(report.sampler(NOISE), right(velocity, NOISE, 8))


@pytest.mark.parametrize("still", [lambda t: t, lambda t: (t - 0.5) * (t - 0.25), lambda t: 0.0 * t])
def test_a_velocity_that_is_nothing_at_times_makes_no_loop_wrong(still: Callable[[float], float]) -> None:
    report = wm.audit_loop(right, lambda x, t: -x * still(t), NOISE, steps=8)
    assert report.agrees, report


def test_the_sum_of_steps_is_told_where_a_step_shows_nothing() -> None:
    loop = euler(lambda k, n: 0.884 / n, lambda k, n: k / n)
    assert "sum to 0.884, not to 1" in wm.audit_loop(loop, lambda x, t: -x * t, NOISE).sentence


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (euler(lambda k, n: 0.884 / n, lambda k, n: k / n), "its steps sum to 0.884, not to 1"),
        (euler(lambda k, n: 1 / (n - 1), lambda k, n: k / (n - 1)), "its steps sum to 1.111, not to 1"),
        (euler(lambda k, n: 1 / n, lambda k, n: k / (n - 1)), "in step 2 it gives the velocity t = 0.1111, where"),
        (euler(lambda k, n: 1 / n, lambda k, n: (k + 1) / n), "time at the end of each step"),
        (euler(lambda k, n: 1 / n, lambda k, n: 1 - k / n), "one of them is the wrong way round"),
        (euler(lambda k, n: -1 / n, lambda k, n: k / n), "wrong way, so a sign is wrong"),
        (euler(lambda k, n: -1 / n, lambda k, n: 1 - k / n), "if that is meant, give times=(1, 0)"),
        (euler(lambda k, n: 1 / n, lambda k, n: 1000 * k / n), "1000 times what its steps sum to"),
        (euler(lambda k, n: 1 / n, lambda k, n: 0.01 + k / n), "in step 1 it gives the velocity t = 0.01, where"),
        (without_last, "evaluates the velocity 9 times for 10 steps, which take 10"),
        (always_ten, "10 times for 10 steps and for 20: it ignores their number"),
        (clipped, "something else"),
        (guided, "twice at each time, as guidance does"),
    ],
)
def test_every_kind_of_slip_is_named(loop: Callable[..., Tensor], words: str) -> None:
    report = wm.audit_loop(loop, velocity, NOISE, steps=10)
    assert not report.agrees
    assert words in report.sentence


def test_a_loop_that_evaluates_too_seldom_for_a_single_step_is_told_so() -> None:
    report = wm.audit_loop(right, velocity, NOISE, steps=2, method="rk4")
    told = "it evaluates the velocity 2 times for 2 steps, which take 8 evaluations by rk4"
    assert report.sentence == f"{told}: if the loop is meant to be another method, name it: method='euler'"


def test_any_grid_is_right_if_times_and_steps_are_of_one_grid() -> None:
    def time(k: int, n: int) -> float:
        return (k / n) ** 2

    report = wm.audit_loop(euler(lambda k, n: time(k + 1, n) - time(k, n), time), velocity, NOISE, steps=6)
    assert report.agrees, report
    assert isinstance(report.sampler.solver, wm.OnGrid)
    assert report.sampler.solver.times == pytest.approx([time(k, 6) for k in range(7)])


def test_a_loop_of_another_method_is_told_which_ones_it_may_be() -> None:
    report = wm.audit_loop(heun, velocity, NOISE, steps=10)
    assert report.sentence.endswith(
        "10 evaluations by euler: if the loop is meant to be another method, name it: method='midpoint' or 'heun'"
    )


def test_a_loop_may_go_from_1_to_0() -> None:
    loop = euler(lambda k, n: -1 / n, lambda k, n: 1 - k / n)
    assert wm.audit_loop(loop, velocity, NOISE, times=(1, 0)).agrees


def heun(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    h = 1 / steps
    for k in range(steps):
        rate = v(x, k * h)
        x = x + h / 2 * (rate + v(x + h * rate, (k + 1) * h))
    return x


def test_another_method_is_compared_with_itself_and_is_not_euler() -> None:
    assert wm.audit_loop(heun, velocity, NOISE, method="heun").agrees
    assert "20 times for 10 steps" in wm.audit_loop(heun, velocity, NOISE).sentence


def wrong_stage(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    h = 1 / steps
    for k in range(steps):
        x = x + h * v(x + h / 2 * v(x, k * h), k * h)
    return x


def test_a_stage_at_the_wrong_time_is_seen_in_the_states() -> None:
    report = wm.audit_loop(wrong_stage, velocity, NOISE, method="midpoint")
    assert not report.agrees
    assert report.departs == 0
    assert "differ from those of midpoint on the same nodes" in report.sentence


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, scale: float, *, timestep: Tensor) -> Tensor:
        rate: Tensor = scale * self.layer(torch.cat([x, timestep[:, None]], dim=1))
        return rate


class Policy:
    """Code as robots have it: a loop that is a method, with a network of its own."""

    def __init__(self) -> None:
        self.network = Network()

    def sample(self, x: Tensor, steps: int = 10) -> Tensor:
        t, dt = torch.zeros(len(x)), 1 / steps
        for _ in range(steps):
            x += dt * self.network(x, 2.0, timestep=t)
            t += dt
        return x


def test_a_method_that_calls_its_own_network_is_watched_as_it_is() -> None:
    policy, noise = Policy(), NOISE.clone()
    report = wm.audit_loop(policy.sample, policy.network, noise)
    assert report.agrees, report
    assert torch.equal(noise, NOISE)
    torch.testing.assert_close(report.sampler(NOISE), policy.sample(NOISE.clone()))
    assert not policy.network._forward_hooks


def noisy(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        x = x + v(x, k / steps) / steps + 0.1 * torch.randn_like(x)
    return x


def test_a_loop_that_draws_noise_is_no_ode() -> None:
    with pytest.raises(AuditError, match="stochastic differential equation"):
        wm.audit_loop(noisy, velocity, NOISE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((lambda x, steps: x, velocity, NOISE), "cannot be watched from outside"),
        ((lambda x, steps: x, nn.Linear(3, 3), NOISE), "never called"),
        ((lambda x: x, velocity, NOISE), "let it take these"),
        ((lambda v, x, steps: v(x, 0.0).sum(), velocity, NOISE), "of the noise's shape"),
        ((right, velocity, "noise"), "tensor"),
    ],
)
def test_what_is_no_loop_is_refused_in_a_sentence(arguments: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wm.audit_loop(*arguments)


def real(n: int) -> Tensor:
    """Normal samples, twice as wide as the noise."""
    return 2 * torch.randn(n, 2, generator=torch.Generator().manual_seed(1))


def noise(n: int = 300) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(2))


def widening(x: Tensor, t: Any) -> Tensor:
    """Its flow doubles the noise; Euler with two steps makes it 1.79 times as wide."""
    return x * 0.6931


def test_a_loop_that_agrees_is_audited_against_data() -> None:
    report = wm.audit_loop(right, widening, noise(), steps=64, data=real(300), evidence=False)
    assert report.verdict is not None
    assert report.verdict.outcome == "FLOW"
    expected = wm.audit(report.sampler, noise(), data=real(300), evidence=False)
    assert report.verdict.to_dict() == expected.to_dict()
    assert str(report).startswith("AGREES: ")
    assert report.verdict.sentence in str(report)


def test_a_loop_is_audited_without_data_if_asked() -> None:
    report = wm.audit_loop(right, widening, noise(), steps=2, audit=True, evidence=False)
    assert report.verdict is not None
    assert report.verdict.outcome == "MOVED"
    assert wm.audit_loop(right, widening, noise(), steps=2).verdict is None


def test_a_wrong_loop_is_not_audited_and_says_so() -> None:
    report = wm.audit_loop(always_ten, widening, noise(), steps=5, data=real(300))
    assert report.verdict is None
    assert "not audited" in str(report)


def test_an_audited_loop_gives_every_sample_its_own_condition() -> None:
    scale = torch.rand(300, 1, generator=torch.Generator().manual_seed(3))

    def conditioned(x: Tensor, t: Any, by: Tensor, *, z: Tensor) -> Tensor:
        rate: Tensor = x * by + z * t
        return rate

    def loop(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
        for k in range(steps):
            x = x + v(x, k / steps, scale, z=scale) / steps
        return x

    report = wm.audit_loop(loop, conditioned, noise(), steps=8, audit=True, samples=100, evidence=False)
    assert report.verdict is not None
    assert report.verdict.samples == 100
    flow = wm.Sampler(lambda x, t, by: x * by + by * t, wm.FixedStep("euler", step=1 / 8), order="xt")
    inputs = {"noise": noise(), "by": scale}
    assert report.verdict.gap == wm.audit(flow, inputs, samples=100, evidence=False).gap


def test_the_network_of_an_audited_loop_is_refined_in_float64() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def learned(x: Tensor, t: Tensor) -> Tensor:
        rate: Tensor = network(torch.cat([x, t[:, None]], dim=1))
        return rate

    def loop(v: Callable[..., Tensor], x: Tensor, steps: int) -> Tensor:
        for k in range(steps):
            x = x + v(x, torch.full((len(x),), k / steps)) / steps
        return x

    report = wm.audit_loop(loop, learned, noise(), steps=8, audit=True)
    assert report.verdict is not None
    assert report.verdict.reference.dtype == "float64"
    assert next(network.parameters()).dtype == torch.float32


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="'step' is no option"):
        wm.audit_loop(right, velocity, NOISE, step=10)
