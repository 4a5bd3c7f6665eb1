"""Meta's flow_matching, as its examples call it. Needs flow_matching, which no dependency of ours brings."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.adapters.models import TimeField, points
from windermere.auditing import Outcome
from windermere.auditing.adapters import find_subject
from windermere.errors import AuditError
from windermere.nn.draws import HELD
from windermere.nn.functions import as_module
from windermere.solvers import FixedStep

solvers = pytest.importorskip("flow_matching.solver")


class Velocity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = TimeField()

    def forward(self, x: Tensor, t: Tensor) -> Any:
        return self.field(t, x)


class Contraction(nn.Module):
    """The exact velocity from a normal distribution to one of a tenth of its width, by straight lines."""

    def __init__(self) -> None:
        super().__init__()
        self.width = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        variance = (1 - t) ** 2 + (t * self.width) ** 2
        return x * (t * self.width**2 - (1 - t)) / variance


def standard_normal(x: Tensor) -> Tensor:
    return -0.5 * x.square().sum(dim=1) - torch.log(torch.tensor(2 * torch.pi))


@pytest.mark.parametrize("way", ["function", "method", "module"])
def test_a_sampler_is_seen_however_it_is_called(way: str) -> None:
    solver = solvers.ODESolver(velocity_model=Velocity())

    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.solver = solver

        def forward(self, x: Tensor) -> Any:
            return self.solver.sample(x, step_size=0.25)

    ways = {
        "function": lambda x: solver.sample(x, step_size=0.25),
        "method": partial(solver.sample, step_size=0.25),
        "module": Sampler(),
    }
    subject: Any = find_subject(as_module(ways[way], points()), points())
    assert subject.solvers == (FixedStep("euler", step=0.25),)
    with torch.no_grad():
        assert torch.equal(subject.forward(points(), None).outputs, solver.sample(points(), step_size=0.25).double())


@pytest.mark.parametrize("exact", [False, True])
def test_an_audit_says_by_how_many_nats_a_likelihood_at_its_default_is_too_good(exact: bool) -> None:
    """In two dimensions Euler's is known in closed form, and that of the flow is the logarithm of the density."""
    velocity, width = Contraction(), 0.1
    solver = solvers.ODESolver(velocity_model=velocity)
    x = width * points(400)

    def log_likelihood(x: Tensor) -> Any:
        return solver.compute_likelihood(x, standard_normal, step_size=0.1, exact_divergence=exact)[1]

    verdict = wm.audit(log_likelihood, (x, x), metric="nll")
    flow = -(standard_normal(x / width) - 2 * torch.log(torch.tensor(width))).mean()
    assert verdict.reference.metric == pytest.approx(float(flow), abs=1e-3)
    assert verdict.gap is not None
    assert -verdict.gap.value == pytest.approx(euler_minus_flow(velocity, x, -flow), abs=1e-3)
    assert verdict.gap.value < -0.2
    assert verdict.outcome is Outcome.TIED
    assert (HELD in verdict.notes) is not exact


def euler_minus_flow(velocity: nn.Module, x: Tensor, flow: Tensor) -> float:
    z, trace = x.double(), torch.zeros(len(x), dtype=torch.float64)
    with torch.no_grad():
        for k in range(10):
            t = torch.tensor(1 - k / 10, dtype=torch.float64)
            trace -= 0.1 * 2 * velocity(torch.ones_like(t), t)
            z = z - 0.1 * velocity(z, t)
    return float((standard_normal(z) + trace).mean() - flow)


def test_a_solver_that_is_given_itself_is_refused_in_a_sentence_that_says_what_to_give() -> None:
    solver = solvers.ODESolver(velocity_model=Velocity())
    with pytest.raises(AuditError, match=r"lambda x: solver\.sample"):
        wm.audit(solver, (points(), torch.zeros(7)), metric=lambda z, _: z[:, 0], threshold=0.1)
