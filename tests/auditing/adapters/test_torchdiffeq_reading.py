"""What is read off a torchdiffeq model's own call."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from tests.auditing.adapters.models import points
from tests.auditing.adapters.torchdiffeq_models import ODENet, stepping
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

DOUBLE = torch.float64


@pytest.mark.parametrize(
    ("how", "solver"),
    [
        (stepping("euler", 1 / 8), FixedStep("euler", step=1 / 8)),
        (stepping("midpoint", 0.1), FixedStep("midpoint", step=0.1)),
        (stepping("heun2", 0.1), FixedStep("heun", step=0.1)),
        (stepping("rk4", 0.25), FixedStep("rk4_38", step=0.25)),
        ({"method": "rk4"}, OnGrid("rk4_38", (0.0, 1.0))),
        (stepping("heun3", 0.1), FixedStep("heun3", step=0.1)),
        ({"rtol": 1e-3, "atol": 1e-4}, Adaptive("dopri54", rtol=1e-3, atol=1e-4)),
        ({"rtol": 1e-3, "atol": 1e-4, "method": "bosh3"}, Adaptive("bosh32", rtol=1e-3, atol=1e-4)),
    ],
)
def test_the_solver_is_read_off_the_models_own_call(how: dict[str, Any], solver: Solver) -> None:
    subject = TorchdiffeqSubject(ODENet(**how), points())
    assert subject.solvers == (solver,)
    name = how.get("method", "dopri5")
    assert [f"{name} is called {solver.method} here" in note for note in subject.notes] == [True] * (
        name != solver.method
    )


@pytest.mark.parametrize(
    ("how", "stand_in"),
    [
        ({"method": "dopri8", "rtol": 1e-4, "atol": 1e-4}, Adaptive("dopri54", tolerance=1e-4)),
        (stepping("explicit_adams", 0.1), FixedStep("rk4", step=0.1)),
        (stepping("implicit_adams", 0.1), FixedStep("rk4", step=0.1)),
        ({"method": "scipy_solver", "rtol": 1e-4, "atol": 1e-4}, Adaptive("dopri54", tolerance=1e-4)),
    ],
)
def test_a_method_that_we_lack_runs_as_it_is_and_the_nearest_stands_for_it(
    how: dict[str, Any], stand_in: Solver
) -> None:
    model, x = ODENet(**how), points()
    subject = TorchdiffeqSubject(model, x)
    assert subject.solvers == (stand_in,)
    assert how["method"] in subject.notes[0]
    assert torch.equal(subject.forward(x, None).outputs, model(x).detach().double())


@pytest.mark.parametrize(("method", "ours"), [("fehlberg2", "fehlberg21"), ("adaptive_heun", "heun21")])
def test_its_methods_that_reuse_a_wrong_stage_keep_that_quirk_and_say_so(method: str, ours: str) -> None:
    model, x = ODENet(method=method, rtol=1e-3, atol=1e-3), points()
    subject = TorchdiffeqSubject(model, x)
    assert subject.solvers == (Adaptive(ours, tolerance=1e-3),)
    assert "stage" in subject.notes[0]
    assert method in subject.notes[0]
    assert torch.equal(subject.forward(x, None).outputs, model(x).detach().double())


def test_a_spurious_last_step_is_kept_and_named() -> None:
    subject = TorchdiffeqSubject(ODENet(**stepping("euler", 1 / 61)), points())
    assert "62 steps" in subject.notes[0]
    assert subject.forward(points(), None).evaluations == 62
    assert subject.forward(points(), lambda own: own).evaluations == 61


def test_a_grid_constructor_gives_the_grid() -> None:
    def squares(func: Any, y0: Tensor, t: Tensor) -> Tensor:
        return t[0] + (t[-1] - t[0]) * torch.linspace(0, 1, 5).to(t) ** 2

    subject = TorchdiffeqSubject(ODENet(method="euler", options={"grid_constructor": squares}), points())
    assert subject.solvers == (OnGrid("euler", (0.0, 0.0625, 0.25, 0.5625, 1.0)),)


def test_tolerances_by_part_of_a_tuple_are_read_as_the_strictest() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Any:
            out = odeint(lambda t, z: (-z[0], z[1]), (x, x), torch.tensor([0.0, 1.0]), rtol=(1e-3, 1e-4), atol=1e-5)
            return out[0][-1]

    assert TorchdiffeqSubject(Two(), points()).solvers == (Adaptive("dopri54", rtol=1e-4, atol=1e-5),)
