"""Flows of zuko's, as its tutorials write them. Needs zuko, which no dependency of ours brings."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.adapters.models import TimeField, points
from windermere.auditing import Outcome
from windermere.auditing.adapters import find_subject
from windermere.errors import NonFiniteError
from windermere.nn.draws import HELD
from windermere.solvers import Adaptive

zuko = pytest.importorskip("zuko")
utils = pytest.importorskip("zuko.utils")


@pytest.fixture(autouse=True)
def _its_solves_are_restored() -> Iterator[None]:
    before = utils.AdaptiveCheckpointAdjoint
    yield
    assert utils.AdaptiveCheckpointAdjoint is before


def flow(**how: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return zuko.flows.CNF(2, hidden_features=(16,), atol=1e-3, rtol=1e-3, **how)


class Density(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.flow = flow(**how)

    def forward(self, x: Tensor) -> Any:
        return self.flow().log_prob(x)


def test_a_likelihood_of_zukos_is_seen_and_its_own_pass_is_the_librarys() -> None:
    model, x = Density(), points()
    subject: Any = find_subject(model, x)
    assert subject.library == "zuko"
    assert subject.solvers == (Adaptive("dopri54", rtol=1e-3, atol=1e-3),)
    own = subject.forward(x, None)
    assert torch.equal(own.outputs, model.eval()(x).detach().double())
    assert own.states.shape == (7, 3)
    assert own.evaluations % 7 == 0


def test_a_fine_solve_in_float64_is_zukos_own_fine_solve() -> None:
    model, x = Density(), points()
    subject: Any = find_subject(model, x)
    fine = subject.forward(x, lambda own: own.with_precision(1e-9), double=True)
    exact = zuko.flows.CNF(2, hidden_features=(16,), atol=1e-10, rtol=1e-10).double()
    exact.load_state_dict(model.flow.state_dict())
    with torch.no_grad():
        assert (fine.outputs - exact.double().eval()().log_prob(x.double())).abs().max() < 2e-5


def test_an_audit_of_a_flow_decides_for_its_likelihood_and_its_samples() -> None:
    made, x = flow(), points(50)
    density = wm.audit(lambda x: made().log_prob(x), (x, x), metric=lambda p, _: p, threshold=0.05)
    sampler = wm.audit(lambda z: made().transform.inv(z), (x, x), metric=lambda z, _: z[:, 0], threshold=0.05)
    assert density.outcome is sampler.outcome is Outcome.FLOW
    assert HELD not in density.notes


def test_a_stochastic_trace_is_decided_with_its_noise_held() -> None:
    verdict = wm.audit(Density(exact=False), (points(50), points(50)), metric=lambda p, _: p, threshold=0.05)
    assert verdict.outcome is Outcome.FLOW
    assert HELD in verdict.notes
    assert verdict.reference.dtype == "float64"


class Solving(nn.Module):
    """By the function itself, however it was imported."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.field, self.scale = TimeField(), scale

    def forward(self, x: Tensor) -> Any:
        return utils.odeint(lambda t, z: self.scale * self.field(t, z), x, 0.0, 1.0)


def test_its_odeint_is_seen_too_and_a_field_that_is_not_finite_ends_in_a_sentence() -> None:
    subject: Any = find_subject(Solving(), points())
    assert subject.solvers == (Adaptive("dopri54", rtol=1e-5, atol=1e-6),)
    insight = subject.insight(points())
    assert insight is not None
    assert insight.times == (0.0, 1.0)
    with pytest.raises(NonFiniteError, match="zuko"):
        find_subject(Solving(float("nan")), points())
