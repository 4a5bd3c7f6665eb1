"""Which library a model solves with is seen by running it."""

import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.adapters.models import TimeField, points
from tests.auditing.test_known_cases import Rotation
from windermere.auditing.adapters import find_subject
from windermere.errors import AuditError
from windermere.solvers import FixedStep


def quietly(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


class Diffeq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = TimeField()

    def forward(self, x: Tensor) -> Any:
        times = torch.tensor([0.0, 1.0]).type_as(x)
        return odeint(self.field, x, times, method="euler", options={"step_size": 0.25})[-1]


def test_a_model_that_calls_torchdiffeq_is_torchdiffeqs() -> None:
    found = find_subject(Diffeq(), points())
    assert found is not None
    assert found.library == "torchdiffeq"
    assert found.solvers == (FixedStep("euler", step=0.25),)


class ImportsLate(Diffeq):
    def forward(self, x: Tensor) -> Any:
        from torchdiffeq import odeint

        return odeint(self.field, x, torch.tensor([0.0, 1.0]), method="euler", options={"step_size": 0.25})[-1]


def test_a_model_that_imports_its_library_in_its_first_pass_is_seen_to_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torchdiffeq")
    found = find_subject(ImportsLate(), points())
    assert found is not None
    assert found.solvers == (FixedStep("euler", step=0.25),)


def test_a_model_that_solves_nothing_is_nobodys() -> None:
    assert find_subject(nn.Linear(2, 2), points()) is None
    assert find_subject(lambda x: x, points()) is None


def test_a_model_of_torchdyns_is_torchdyns_and_two_libraries_in_one_pass_are_refused() -> None:
    core = quietly("torchdyn.core")
    node = core.NeuralODE(nn.Linear(2, 2), solver="euler", return_t_eval=False)
    found = find_subject(node, points())
    assert found is not None
    assert found.library == "torchdyn"
    with pytest.raises(AuditError, match="torchdiffeq and torchdyn"):
        find_subject(nn.Sequential(Diffeq(), node), points())


def test_a_model_of_torchodes_is_torchodes() -> None:
    to = quietly("torchode")

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return to.solve_ivp(lambda t, y: -y, x, torch.tensor([0.0, 1.0]), method="dopri5").ys[:, -1]

    found = find_subject(Model(), points())
    assert found is not None
    assert found.library == "torchode"


@pytest.mark.usefixtures("quick_jax")
def test_a_model_of_equinox_is_diffraxs_if_it_solves() -> None:
    diffrax, eqx, jax = (quietly(name) for name in ("diffrax", "equinox", "jax"))

    class Model(eqx.Module):  # type: ignore[misc, name-defined]
        scale: float

        def __call__(self, y: Any) -> Any:
            term = diffrax.ODETerm(lambda t, y, args: -self.scale * y)
            return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 0.5, y).ys[-1]

    found = find_subject(Model(2.0), points())
    assert found is not None
    assert found.library == "diffrax"
    assert found.solvers == (FixedStep("heun", step=0.5),)
    assert find_subject(eqx.nn.Linear(2, 2, key=jax.random.PRNGKey(0)), points()) is None


def test_a_model_that_solves_the_field_of_a_block_by_another_library_is_that_librarys() -> None:
    block = wm.ODEBlock(Rotation(3.0), wm.FixedStep("rk4", step=1 / 32))

    def model(x: torch.Tensor) -> Any:
        return odeint(block.field, x, torch.tensor([0.0, 1.0]), method="euler", options={"step_size": 1 / 2})[-1]

    verdict = wm.audit(model, torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), evidence=False)
    assert verdict.own.solver == "euler, h = 1/2"
