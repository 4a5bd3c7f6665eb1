"""Precision adapted while an ensemble trains: members as if alone, resumed bit for bit, decisions on record."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.paper.training.small import a_config, adapted_config, assert_same_run, checkpoint, some_spheres, trained
from windermere.adaptation import (
    Controller,
    Score,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
    review_members,
)
from windermere.errors import ToleranceError, UsageError
from windermere.nn import ODEBlock
from windermere.paper.training import Adaptation, Ensemble, RunConfig, make_controller, trained_ensemble
from windermere.paper.training.adapting import Adapting, scores
from windermere.paper.training.trainer import make_ensemble
from windermere.records import read_metrics
from windermere.solvers import Adaptive, FixedStep, Solver

ADAPTED: dict[str, Any] = {
    "solver": FixedStep("euler", step=1.0),
    "first_step": "initial",
    "iterations": 160,
    "batch_size": 64,
    "lr": 3e-3,
    "log_every": 10,
    "checkpoint_every": 20,
}


def decisions(path: Path, seed: int) -> list[dict[str, Any]]:
    return [row for row in read_metrics(path) if "reason" in row and row["seed"] == seed]


def test_the_iteration_that_is_reviewed_was_trained_before_its_decision_and_the_next_one_after() -> None:
    controller, x = SteadySteps(train="euler", check="midpoint"), torch.tensor([0.9, 1.0, 1.1])[:, None]
    adapting, _ = reviewed(cubics(1e8), controller, 1.0, x, 0)
    again = Adapting(controller, [controller.start(0.3)])
    again.go_on_from(adapting.to_dict(), [0])
    for held in (adapting, again):
        assert held.solvers == (FixedStep("euler", step=1.0),)
        for _ in range(2):
            held.use_decided()
            assert held.solvers == (FixedStep("euler", step=0.5),)


def adapted(adapt: Adaptation, **changes: Any) -> RunConfig:
    return adapted_config(adapt, **{**ADAPTED, "dtype": "float64", **changes})


@pytest.fixture(scope="module", params=["paper", "steady"])
def adapt(request: pytest.FixtureRequest) -> Adaptation:
    chosen: Adaptation = request.param
    return chosen


@pytest.fixture(scope="module")
def whole(adapt: Adaptation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adapted") / "run"
    trained(path, adapted(adapt, seeds=(0, 1)))
    return path


def paper_rule(row: dict[str, Any]) -> float:
    """Algorithm 2 on what a row says was measured, for steps from 1/500 to 1."""
    if abs(row["trained"] - row["checked"]) > 0.1:
        assert row["raised"] is None
        return float(max(0.5 * row["before"], 1 / 500))
    agreed = abs(row["checked"] - row["raised"]) <= 0.1
    return float(min(1.1 * row["before"], 1.0) if agreed else row["before"])


def steady_rule(row: dict[str, Any]) -> float:
    """Into the band from half the target to the target, by a method of order 1: halved or a tenth larger at most."""
    assert row["raised"] is None
    nearest = min(max(row["signal"], 0.005), 0.01)
    wanted = row["before"] * min(max(nearest / row["signal"], 0.5), 1.1)
    return float(min(max(wanted, 1 / 500), 1.0))


def test_reviews_come_every_fifty_iterations_and_each_follows_from_the_one_before(
    adapt: Adaptation, whole: Path
) -> None:
    rule = {"paper": paper_rule, "steady": steady_rule}[adapt]
    for seed in (0, 1):
        rows = decisions(whole, seed)
        assert [row["iteration"] for row in rows] == [50, 100, 150]
        assert [row["before"] for row in rows[1:]] == [row["after"] for row in rows[:-1]]
        assert [row["after"] for row in rows] == pytest.approx([rule(row) for row in rows], rel=1e-12)
        assert len({row["before"] for row in rows}) > 1


def test_a_review_at_the_end_is_for_a_longer_run_and_not_for_the_model(
    adapt: Adaptation, whole: Path, tmp_path: Path
) -> None:
    trained(tmp_path / "run", adapted(adapt, seeds=(0, 1), iterations=100))
    last = [decisions(tmp_path / "run", seed)[-1] for seed in (0, 1)]
    assert [row["iteration"] for row in last] == [100, 100]
    assert any(row["before"] != row["after"] for row in last)
    assert [s.precision for s in trained_ensemble(tmp_path / "run").solvers] == [row["before"] for row in last]
    trained(tmp_path / "run", adapted(adapt, seeds=(0, 1)), resume=True)
    assert_same_run(tmp_path / "run", whole)


def test_a_run_killed_before_its_model_was_saved_remembers_what_its_last_iteration_was_trained_with(
    adapt: Adaptation, tmp_path: Path
) -> None:
    config = adapted(adapt, iterations=50)
    trained(tmp_path, config)
    (row,) = decisions(tmp_path, 0)
    assert row["before"] != row["after"]
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").unlink()
    trained(tmp_path, config, resume=True)
    assert (tmp_path / "model.safetensors").read_bytes() == whole
    assert trained_ensemble(tmp_path).solvers == (FixedStep("euler", step=row["before"]),)


def test_a_step_is_in_force_from_the_iteration_after_its_review(whole: Path) -> None:
    steps = {row["iteration"]: row["step"] for row in read_metrics(whole) if row["seed"] == 0 and "loss" in row}
    first, second, third = decisions(whole, 0)
    assert steps[50] == first["before"]
    assert steps[60] == steps[100] == first["after"] == second["before"]
    assert steps[160] == third["after"]


def test_a_member_that_adapts_equals_the_same_seed_alone(adapt: Adaptation, whole: Path, tmp_path: Path) -> None:
    trained(tmp_path / "alone", adapted(adapt, seeds=(1,)))
    alone, together = decisions(tmp_path / "alone", 1), decisions(whole, 1)
    assert [row["after"] for row in alone] == pytest.approx([row["after"] for row in together], rel=1e-9)
    first, second = trained_ensemble(tmp_path / "alone").ensemble, trained_ensemble(whole).ensemble
    for name, tensor in first.tensors.items():
        torch.testing.assert_close(tensor[0], second.tensors[name][1], rtol=1e-7, atol=1e-9)


def test_an_adapted_run_resumes_bit_for_bit(adapt: Adaptation, whole: Path, tmp_path: Path) -> None:
    config = adapted(adapt, seeds=(0, 1))
    assert not trained(tmp_path / "pieces", config, stop_at=70).finished
    saved = checkpoint(tmp_path / "pieces").meta["adaptation"]
    assert saved["decided"] is None
    assert [state["reviews"] for state in saved["states"]] == [1, 1]
    assert [state["memory"] is not None for state in saved["states"]] == [adapt == "steady"] * 2
    assert trained(tmp_path / "pieces", config, resume=True).finished
    assert_same_run(tmp_path / "pieces", whole)
    assert checkpoint(tmp_path / "pieces").meta["adaptation"] == checkpoint(whole).meta["adaptation"]


def test_the_checks_are_counted_and_the_final_solver_of_each_seed_is_kept(whole: Path) -> None:
    last = [row for row in read_metrics(whole) if "loss" in row][-2:]
    expected = dict.fromkeys((0, 1), 0)
    for seed in expected:
        for row in decisions(whole, seed):
            expected[seed] += 2 * len(FixedStep("midpoint", step=row["check_precision"]).nodes(0, 1)[1:])
            if row["raised"] is not None:
                expected[seed] += len(FixedStep("euler", step=min(1.0, 1.1 * row["before"])).nodes(0, 1)[1:])
    assert {row["seed"]: row["evaluations_checks"] for row in last} == expected
    kept = trained_ensemble(whole)
    assert [s.precision for s in kept.solvers] == [decisions(whole, seed)[-1]["after"] for seed in (0, 1)]
    assert kept.member(1)[0].solver == kept.solvers[1]  # type: ignore[index]


@pytest.mark.parametrize("method", ["fehlberg21", "dopri54"])
def test_tolerances_start_at_a_millionth_and_are_checked_at_a_fifth_or_a_tenth(
    method: str, adapt: Adaptation, tmp_path: Path
) -> None:
    config = adapted_config(adapt, solver=Adaptive(method, tolerance=1e-6), seeds=(0, 1), iterations=51)
    trained(tmp_path / "run", config)
    for seed in (0, 1):
        (row,) = decisions(tmp_path / "run", seed)
        assert row["before"] == 1e-6
        assert row["check_precision"] == pytest.approx(1e-6 * {"fehlberg21": 0.2, "dopri54": 0.1}[method])


def test_each_round_of_requests_is_answered_in_one_go() -> None:
    controller = StepAdaptation(train="euler", check="midpoint")
    states = [controller.start(h) for h in (0.01, 0.02, 0.03)]
    rounds: list[dict[int, Solver]] = []

    def score(wanted: dict[int, Solver]) -> dict[int, Score]:
        rounds.append(wanted)
        return {s: Score(value=0.5 if s == 1 else 0.9) for s in wanted}

    after = review_members(controller, states, [Score(value=0.9)] * 3, score)
    assert [set(wanted) for wanted in rounds] == [{0, 1, 2}, {0, 2}]
    assert [s.precision for s in after] == [0.01 * 1.1, 0.01, 0.03 * 1.1]


class Cubic(nn.Module):
    """z' = w z^3: with w > 0 it blows up, which a single Euler step does not notice."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.w * z**3


def cubics(*ws: float) -> Ensemble:
    head = nn.Linear(1, 2)
    nn.init.ones_(head.weight)
    head.bias.data = torch.tensor([1.0, 0.0])  # class 0
    return Ensemble([nn.Sequential(ODEBlock(Cubic(w), FixedStep("euler", step=1.0)), copy.deepcopy(head)) for w in ws])


def reviewed(ensemble: Ensemble, controller: Controller, start: float, x: Tensor, label: int) -> tuple[Adapting, Any]:
    """One review of all members on the same batch, and what its checks took."""
    adapting = Adapting(controller, [controller.start(start)] * ensemble.size)
    inputs, y = x.expand(ensemble.size, *x.shape), torch.full((ensemble.size, len(x)), label)
    logits = ensemble(inputs, adapting.solvers).detach()
    return adapting, adapting.review(ensemble, inputs, y, logits, scores(logits, y, logits, 1, 1)).tolist()


@pytest.mark.parametrize("label", [0, 1], ids=["all right", "all wrong"])
@pytest.mark.parametrize("kind", [StepAdaptation, SteadySteps])
def test_a_check_that_fails_refines_whatever_the_score_and_costs_what_it_evaluated(kind: Any, label: int) -> None:
    """Midpoint's check of a whole Euler step takes 8 steps; the other member's review is as if it were alone."""
    controller, x = kind(train="euler", check="midpoint"), torch.tensor([0.9, 1.0, 1.1])[:, None]
    one, of_one = reviewed(cubics(-0.1), controller, 1.0, x, label)
    other, of_other = reviewed(cubics(1e8), controller, 1.0, x, label)
    both, of_both = reviewed(cubics(-0.1, 1e8), controller, 1.0, x, label)
    for adapting in (one, other, both):
        adapting.use_decided()
    assert other.solvers == (FixedStep("euler", step=0.5),)
    assert of_other == [16]
    assert both.solvers == one.solvers + other.solvers
    assert of_both == of_one + of_other


@pytest.mark.parametrize("kind", [ToleranceAdaptation, SteadyTolerances])
def test_a_check_below_what_float32_resolves_is_solved_in_float64(kind: Any) -> None:
    controller = kind(train="dopri54", **({"min_steps": 0} if kind is ToleranceAdaptation else {}))
    x, ensemble = torch.linspace(3, 5, 6)[:, None], cubics(-0.01, -0.02)
    with pytest.raises(ToleranceError, match="float32 cannot resolve dopri54, tol = 1e-07"):
        ensemble(x.expand(2, *x.shape), [Adaptive("dopri54", tolerance=1e-7)] * 2)
    adapting, spent = reviewed(ensemble, controller, 1e-6, x, 0)
    for state in adapting.decided or []:
        assert state.decision is not None
        assert state.decision.check_precision == pytest.approx(1e-7)
        assert state.decision.checked == 1.0
        assert state.precision > 1e-6
    assert min(spent) > 0
    assert ensemble.dtype == torch.float32


def test_the_first_step_is_hairers_for_each_member() -> None:
    config = adapted_config("paper", **ADAPTED, seeds=(0, 1, 2))
    ensemble = make_ensemble(config)
    inputs, _ = some_spheres()[0]
    adapting = Adapting.begin(config, ensemble, inputs[:64].expand(3, 64, 2))
    assert adapting is not None
    steps = [s.precision for s in adapting.solvers]
    assert len(set(steps)) == 3
    assert all(1 / 500 <= step <= 1 for step in steps)
    alone = adapted_config("paper", **ADAPTED, seeds=(2,))
    single = Adapting.begin(alone, make_ensemble(alone), inputs[:64].expand(1, 64, 2))
    assert single is not None
    assert np.isclose(single.solvers[0].precision, steps[2], rtol=1e-5)


@pytest.mark.parametrize(
    ("solver", "check", "words"),
    [
        (FixedStep("rk4", step=0.1), None, r"no usual check: choose one .* with check=\.\.\. \(dopri54, tsit54\)"),
        (FixedStep("euler", step=0.1), "euler", "'euler' cannot check 'euler'"),
        (FixedStep("tsit54", step=0.1), None, "no method has a higher order: adapt the steps of euler"),
        (Adaptive("bosh32", tolerance=1e-3), None, "tolerances of bosh32 cannot be adapted: adapt"),
        (Adaptive("dopri54", tolerance=1e-3), "tsit54", "are checked by dopri54, not by tsit54"),
    ],
    ids=str,
)
def test_what_cannot_be_adapted_is_refused(solver: Solver, check: str | None, words: str, adapt: Adaptation) -> None:
    with pytest.raises(UsageError, match=words):
        make_controller(adapt, solver, check=check)


def test_an_initial_step_is_for_adapted_runs() -> None:
    with pytest.raises(UsageError, match="an initial step is for adapted runs"):
        a_config(first_step="initial")
