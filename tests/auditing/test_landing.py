"""The reference flow lands on every time that a model asks for; what is tested interpolates as its library does."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_known_cases import ring
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.auditing.block_model import ModelSubject
from windermere.auditing.reference import reference_flow
from windermere.auditing.refinement import refinements
from windermere.auditing.subject import PredictSubject
from windermere.solvers.landing import MOST_LANDINGS, has_to_land, is_landing, landing

TIMES = (0.0, 505 / 4096, 1465 / 4096, 1467 / 4096, 3591 / 4096, 1.0)
"""Numbers in float32 too, and on no grid below."""
SOLVERS = [
    wm.Adaptive("dopri54", tolerance=1e-3),
    wm.FixedStep("euler", step=1 / 8),
    wm.OnGrid("euler", tuple(np.linspace(0, 1, 9))),
]
EVERY = pytest.mark.parametrize("solver", SOLVERS, ids=str)


class Seen(nn.Module):
    """A smooth field whose evaluations are seen, those of its copies too."""

    at: ClassVar[list[float]] = []

    def __init__(self) -> None:
        super().__init__()
        self.speed = nn.Parameter(torch.tensor(2.0))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        self.at.append(float(t.detach()))
        return self.speed * torch.sin(z.flip(-1) + t)


class WithTorchdiffeq(nn.Module):
    def __init__(self, solver: Any, times: Any = TIMES) -> None:
        super().__init__()
        self.field, self.times = Seen(), torch.tensor(times, dtype=torch.float64)
        self.how: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-3}
        if isinstance(solver, wm.FixedStep):
            self.how = {"method": "euler", "options": {"step_size": solver.step}}
        elif isinstance(solver, wm.OnGrid):
            grid = torch.tensor(solver.times, dtype=torch.float64)
            self.how = {"method": "euler", "options": {"grid_constructor": lambda f, y, t: grid}}

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = odeint(self.field, x, self.times, **self.how)
        return states[2]


class WithBlock(nn.Module):
    def __init__(self, solver: Any) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Seen(), solver, times=TIMES, interpolate=True)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.block(x)[2]
        return states


def with_predict(solver: Any) -> PredictSubject:
    field = Seen()

    def predict(x: Tensor, solver: Any) -> Tensor:
        states = wm.solve(field, x.double(), solver, TIMES, interpolate=True).states
        assert isinstance(states, Tensor)
        return states[2]

    return PredictSubject(predict, solver)


SUBJECTS: list[Callable[[Any], Any]] = [
    lambda solver: TorchdiffeqSubject(WithTorchdiffeq(solver), ring(8)),
    lambda solver: ModelSubject(WithBlock(solver)),
    with_predict,
]


def seen(run: Callable[[], Any]) -> set[float]:
    Seen.at.clear()
    run()
    return set(Seen.at)


@EVERY
@pytest.mark.parametrize("made", SUBJECTS, ids=["torchdiffeq", "block", "predict"])
@torch.no_grad()
def test_the_field_is_evaluated_at_every_time_by_the_reference_and_not_by_what_is_tested(
    made: Any, solver: Any
) -> None:
    subject, x = made(solver), ring(8)
    own = subject.forward(x, None)
    reference = reference_flow(subject, x, own, still=lambda *_: True)
    assert reference.converged
    change = next(iter(refinements(subject, own))).change
    inner = set(TIMES[1:-1])

    def first_refinement() -> None:
        with landing():
            subject.forward(x, change)

    assert inner <= seen(first_refinement)
    assert inner <= seen(lambda: reference_flow(subject, x, own, still=lambda *_: True))
    assert not inner & seen(lambda: subject.forward(x, change))
    assert not inner & seen(lambda: subject.forward(x, lambda own: own))


@EVERY
def test_the_reference_is_the_flow_at_the_times_between(solver: Any) -> None:
    subject, x = TorchdiffeqSubject(WithTorchdiffeq(solver), ring(8)), ring(8)
    reference: Any = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    exact: Any = wm.solve(Seen().double(), x.double(), wm.FixedStep("tsit54", step=1e-3), TIMES).states
    assert (reference.done.outputs - exact[2].detach()).norm(dim=1).max() < 20 * np.median(reference.error) + 1e-10


def test_steps_that_only_land_do_not_spend_the_budget_of_the_reference() -> None:
    """Three refinements of 400 landings are more than the least budget."""
    model, x = WithTorchdiffeq(SOLVERS[0], np.linspace(0, 1, 401)), ring(8)
    subject = TorchdiffeqSubject(model, x)
    reference = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    assert (reference.converged, reference.reason) == (True, None)
    assert reference.evaluations > 3 * 6 * 400


def test_where_output_times_are_many_no_refinement_is_solved_that_landing_makes_the_same_as_the_one_before() -> None:
    x = ring(8)
    subject = TorchdiffeqSubject(WithTorchdiffeq(wm.FixedStep("euler", step=1 / 64), np.linspace(0, 1, 65)), x)
    reference = reference_flow(subject, x, subject.forward(x, None), still=lambda *_: True)
    assert reference.converged
    assert reference.evaluations <= 4 * (64 + 128 + 256)


def test_no_order_is_told_where_landing_cuts_steps_short() -> None:
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    solver = wm.FixedStep("euler", step=1 / 8)
    models = wm.ODEBlock(Seen(), solver), WithTorchdiffeq(solver, tuple(np.linspace(0, 1, 31)))
    end, many = (wm.audit(model, x, evidence=False).reference.order for model in models)
    assert end == pytest.approx(4, abs=0.5)
    assert many is None


def test_landing_ends_with_its_scope_and_leaves_more_times_than_can_be_landed_on() -> None:
    assert not is_landing()
    assert not has_to_land(3)
    with landing() as landings:
        assert is_landing()
        assert has_to_land(3)
        assert not has_to_land(0)
        assert not has_to_land(MOST_LANDINGS + 1)
    assert landings.times == 3
    assert not is_landing()


def test_a_grid_made_to_stop_at_times_keeps_no_node_that_is_one_of_them_but_for_rounding() -> None:
    grid = wm.OnGrid("rk4", (0, 0.1 + 0.2, 0.5, 1))
    assert grid.stopping_at((0, 0.3, 0.7, 1)).times == (0, 0.3, 0.5, 0.7, 1)
    assert grid.stopping_at((1, 0.5, 0)).times == grid.times
