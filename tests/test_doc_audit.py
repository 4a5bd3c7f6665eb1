"""The Python of docs/audit.md runs: each block, or each line of it, with what its comments take for given."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.processes import ROOT
from tests.test_doc_code import BLOCK

BLOCKS = BLOCK.findall((ROOT / "docs/audit.md").read_text())
EULER = wm.FixedStep("euler", step=1 / 4)


class Density(nn.Module):
    """The log-density of x, whose flow shrinks the plane to a normal distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.block = wm.ODEBlock(wm.Autonomous(nn.Linear(3, 3)), EULER)

    def forward(self, x: Tensor) -> Tensor:
        end: Tensor = self.block(torch.cat([x, torch.zeros(len(x), 1)], dim=1))
        return end[:, 2] - end[:, :2].square().sum(dim=1) / 2


class AtTimes(nn.Module):
    """Its state at times that all samples share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def states(self, t: Tensor, x: Tensor) -> Tensor:
        found: Tensor = wm.odeint(lambda t, z: self.layer(z), x, t, method="euler").movedim(0, 1)
        return found


class Last(AtTimes):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.states(t, x)[:, -1]


class ByTime(AtTimes):
    def forward(self, ts: Tensor, y0: Tensor) -> Tensor:
        return self.states(ts, y0)


@pytest.fixture
def given() -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(40, 2)
    model = nn.Sequential(wm.ODEBlock(wm.Autonomous(nn.Linear(2, 2)), EULER))
    known = {"wm": wm, "nn": nn, "x": x, "inputs": x, "labels": (x[:, 0] > 0).long(), "targets": model(x).detach()}
    return {**known, "model": model, "density": Density(), "noise": torch.randn(40, 2), "real": torch.randn(40, 2)}


def run(text: str, given: dict[str, Any]) -> dict[str, Any]:
    here = dict(given)
    exec(compile(text, "docs/audit.md", "exec"), here)
    return here


def block(word: str) -> str:
    """The one block with this word in it."""
    (found,) = (each for each in BLOCKS if word in each)
    return str(found)


def test_every_block_of_the_page_is_run_here() -> None:
    words = (
        "an iterable of such pairs",
        "hits =",
        "class Pendulum",
        "shared=(1,)",
        "verdict.save",
        "ODESolver",
        "assert_flow",
    )
    assert {block(word) for word in words} == {*BLOCKS}


def test_verdicts_by_accuracy_error_likelihood_movement_and_a_metric_of_ones_own(given: dict[str, Any]) -> None:
    known = run(block("an iterable of such pairs"), given)
    assert known["verdict"].kind == "movement"
    assert run(block("hits ="), given)["verdict"].metric == "hits"


def test_a_time_series_with_samples_first(given: dict[str, Any]) -> None:
    parts = {"field": staticmethod(lambda t, z: -z), "times": torch.linspace(0, 1, 5)}
    shown = SimpleNamespace(Module=type("Module", (nn.Module,), parts))
    run(block("class Pendulum"), {**given, "nn": shown, "odeint": wm.odeint, "targets": torch.randn(40, 5, 2)})


def test_inputs_that_all_samples_share(given: dict[str, Any]) -> None:
    t = torch.linspace(0, 1, 5)
    known = {**given, "t": t, "ts": t, "y0": given["x"], "solver": EULER}
    tuples, names, by_time, position = block("shared=(1,)").splitlines()
    for line in (tuples, names):
        run(line, {**known, "model": Last()})
    run(by_time, {**known, "model": ByTime(), "targets": torch.randn(40, 5, 2)})
    run(position, {**known, "predict": lambda x, solver: wm.solve(lambda t, z: -z, x[0], solver).final})


def test_a_verdict_is_saved(given: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(block("verdict.save"), {**given, "verdict": wm.audit(given["model"], given["x"])})
    assert {file.name for file in tmp_path.iterdir()} == {"audit.html", "verdict.json"}


def test_models_of_flow_matching(given: dict[str, Any]) -> None:
    solver = pytest.importorskip("flow_matching.solver", reason="flow_matching is not installed")
    make, *lines = block("ODESolver").splitlines()
    known = run(make, {**given, "ODESolver": solver.ODESolver, "velocity": lambda x, t: -x * (1 - t.reshape(-1, 1))})
    normal = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    for line in lines[:2]:
        run(line, {**known, "log_p0": normal.log_prob})


def test_models_of_torchdyn_and_zuko(given: dict[str, Any]) -> None:
    torchdyn = pytest.importorskip("torchdyn.core", reason="torchdyn is not installed")
    zuko = pytest.importorskip("zuko", reason="zuko is not installed")
    *_, trajectory, density = block("ODESolver").splitlines()
    node = torchdyn.NeuralODE(nn.Linear(2, 2), solver="euler", sensitivity="autograd")
    run(trajectory, {**given, "node": node, "times": torch.linspace(0, 1, 5)})
    run(density, {**given, "flow": zuko.flows.CNF(2, hidden_features=(8,), atol=1e-3, rtol=1e-3)})


def test_a_test_of_ones_own(given: dict[str, Any], assert_flow: Any) -> None:
    known = run(block("assert_flow"), {**given, "load_model": lambda: given["model"]})
    known["test_the_model_is_a_flow"](assert_flow)
