"""Samplers: how a velocity is called is named or found, and audits swap the solver underneath."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from windermere.auditing.block_model import ModelSubject
from windermere.errors import AuditError, UnknownNameError, UsageError

EULER = wm.FixedStep("euler", step=1 / 4)
NOISE = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


class Network(nn.Module):
    """A velocity that wants times [n], as U-Nets do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, t: Tensor, shift: Any = 0.0) -> Tensor:
        rate: Tensor = self.layer(torch.cat([x, t[:, None]], dim=1)) + shift
        return rate


def by_hand(velocity: Callable[[Tensor, Tensor], Tensor], x: Tensor, steps: int = 4) -> Tensor:
    for k in range(steps):
        x = x + velocity(x, torch.full((len(x),), k / steps)) / steps
    return x


def test_a_sampler_is_the_loop_that_one_writes_by_hand() -> None:
    network = Network()
    torch.testing.assert_close(wm.Sampler(network, EULER)(NOISE), by_hand(network, NOISE))


@pytest.mark.parametrize(
    ("velocity", "order", "time"),
    [
        (Network(), "xt", "batch"),
        (lambda t, x: Network()(x, t), "tx", "batch"),
        (lambda x, t: torch.cat([x, t[:, :1]], dim=1) @ torch.ones(4, 3) + 0 * t, "xt", "column"),
        (lambda t, x: -x, "tx", "scalar"),
        (lambda x, t: -x, "xt", "scalar"),
        (lambda x, t: x[:, :1] * x * t, "xt", "scalar"),
    ],
)
def test_the_order_and_the_shape_of_the_time_are_found_where_one_runs(velocity: Any, order: str, time: str) -> None:
    sampler = wm.Sampler(velocity, EULER)
    sampler(NOISE)
    assert (sampler.field.order, sampler.field.time) == (order, time)


def test_of_two_orders_that_run_one_has_to_be_named() -> None:
    def velocity(one: Tensor, other: Tensor) -> Tensor:
        return one * other + one

    with pytest.raises(UsageError, match="order='xt' or order='tx'"):
        wm.Sampler(velocity, EULER)(NOISE)
    assert wm.Sampler(velocity, EULER, order="xt")(NOISE).shape == NOISE.shape


def test_of_two_shapes_of_the_time_that_differ_one_has_to_be_named() -> None:
    def velocity(x: Tensor, t: Tensor) -> Tensor:
        return x + t.ndim

    with pytest.raises(UsageError, match="name the one that it was trained with by time="):
        wm.Sampler(velocity, EULER)(NOISE)
    assert wm.Sampler(velocity, EULER, time="batch")(NOISE).shape == NOISE.shape


def test_as_many_samples_as_features_do_not_confuse_the_shape_of_the_time() -> None:
    sampler = wm.Sampler(lambda x, t: x * t - x, EULER, order="xt")
    square = NOISE[:3]
    torch.testing.assert_close(sampler(square), wm.solve(lambda t, x: x * t - x, square, EULER).final)


def test_trying_a_velocity_out_leaves_no_trace() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    sampler = wm.Sampler(lambda x, t: network(x), EULER)
    sampler.field.learn(NOISE, 0.0, {})
    assert torch.equal(torch.get_rng_state(), state)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_conditions_are_handed_to_the_velocity_by_sample_or_shared() -> None:
    network = Network()
    shifts = torch.arange(6.0)[:, None]
    found = wm.Sampler(network, EULER)(NOISE, shift=shifts)
    torch.testing.assert_close(found, by_hand(lambda x, t: network(x, t, shifts), NOISE))
    shared = wm.Sampler(network, EULER)(NOISE, shift=2.0)
    torch.testing.assert_close(shared, by_hand(lambda x, t: network(x, t, 2.0), NOISE))


def test_using_swaps_the_solver_of_a_sampler() -> None:
    network = Network()
    sampler = wm.Sampler(network, EULER)
    with wm.using(sampler, wm.FixedStep("euler", step=1 / 16)):
        torch.testing.assert_close(sampler(NOISE), by_hand(network, NOISE, steps=16))


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_audit_runs_a_sampler_in_float64_under_any_solver_and_conditions(wrapped: bool) -> None:
    network = Network()
    velocity = (lambda x, t, shift=0.0: network(x, t, shift)) if wrapped else network
    subject = ModelSubject(wm.Sampler(velocity, EULER))
    inputs = {"shift": torch.arange(6.0)[:, None], "noise": NOISE}
    done = subject.forward(inputs, lambda own: wm.FixedStep("rk4", step=1 / 8), double=True)
    double = Network().double()
    double.load_state_dict(network.state_dict())
    exact = wm.solve(
        lambda t, x: double(x, t.expand(6), inputs["shift"].double()), NOISE.double(), wm.FixedStep("rk4", step=1 / 8)
    )
    torch.testing.assert_close(done.outputs, exact.final, rtol=1e-12, atol=1e-12)
    assert done.evaluations == 32
    assert network.layer.weight.dtype == torch.float32


def test_evidence_sees_the_field_of_a_sampler_with_its_shared_conditions() -> None:
    network = Network()
    insight = ModelSubject(wm.Sampler(network, EULER)).insight({"noise": NOISE, "shift": 2.0})
    assert insight is not None
    rate = insight.field(torch.tensor(0.5, dtype=torch.float64), NOISE.double())
    torch.testing.assert_close(rate.float(), network(NOISE, torch.full((6,), 0.5), 2.0))


def test_a_sampler_runs_on_a_falling_grid_of_sigmas() -> None:
    sigmas = (10.0, 3.0, 1.0, 0.0)
    sampler = wm.Sampler(lambda x, sigma: x * sigma / (1 + sigma**2), wm.OnGrid("euler", sigmas), order="xt")
    x = NOISE
    for sigma, following in pairwise(sigmas):
        x = x + (following - sigma) * x * sigma / (1 + sigma**2)
    torch.testing.assert_close(sampler(NOISE), x)


def jump(x: Tensor, t: Tensor, r: Tensor) -> Tensor:
    return x * t * r


def conditioned(x: Tensor, t: Tensor, text: Tensor) -> Tensor:
    return x * t * text


@pytest.mark.parametrize(
    ("velocity", "words"),
    [
        (jump, "second time .'r'.*no ODE to audit"),
        (conditioned, "give text by name"),
        (lambda x, t: x.sum(), "something else than a rate"),
        (lambda x: x, r"does not run as velocity\(x, t\) or velocity\(t, x\)"),
    ],
)
def test_what_is_no_velocity_is_told_so_in_a_sentence(velocity: Any, words: str) -> None:
    with pytest.raises(AuditError, match=words):
        wm.Sampler(velocity, EULER)(NOISE)


def test_an_order_that_was_named_and_does_not_run_is_the_only_one_that_is_told() -> None:
    with pytest.raises(AuditError, match=r"does not run as velocity\(t, x\), with"):
        wm.Sampler(lambda x, t: x @ torch.eye(2) * t, EULER, order="tx")(NOISE)


def test_wrong_names_are_refused_at_once() -> None:
    with pytest.raises(UnknownNameError, match="order"):
        wm.Sampler(Network(), EULER, order="yt")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="velocity"):
        wm.Sampler(3, EULER)  # type: ignore[arg-type]


def test_noise_that_a_velocity_draws_is_not_taken_for_the_time_that_it_is_given() -> None:
    def drawing(t: Tensor, x: Tensor) -> Tensor:
        return -x + torch.randn_like(x)

    with pytest.raises(UsageError, match=r"draws noise, .* name order='tx' and time=\.\.\., one of 'scalar', 'batch'"):
        wm.Sampler(drawing, EULER, order="tx")(NOISE)
    named = wm.Sampler(drawing, EULER, order="tx", time="scalar")
    assert any("noise is held fixed" in note for note in wm.audit(named, NOISE, evidence=False).notes)
