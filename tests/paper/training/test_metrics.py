"""What a run writes down about itself."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fast.test_native import needs_a_compiler
from tests.paper.training.small import a_config, checkpoint, model, some_spheres, trained
from windermere.errors import UsageError
from windermere.nn import ode_blocks
from windermere.paper.training import Report, evaluate, load_run, open_run, train, trained_ensemble
from windermere.records import read_json, read_metrics
from windermere.solvers import Adaptive, FixedStep, Solver

EULER = FixedStep.of("euler", steps=6)


def columns(path: Path, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in read_metrics(path)]


def test_there_is_a_row_for_each_seed_at_every_interval_and_at_the_end(tmp_path: Path) -> None:
    trained(tmp_path, a_config(seeds=(7, 2), iterations=12, log_every=5, evaluate_every=12))
    assert columns(tmp_path, "iteration", "seed") == [(5, 7), (5, 2), (10, 7), (10, 2), (12, 7), (12, 2)]


def test_a_row_has_all_that_the_run_is_about(tmp_path: Path) -> None:
    trained(tmp_path, a_config(iterations=5))
    for row in read_metrics(tmp_path):
        assert list(row)[:4] == ["iteration", "seed", "loss", "accuracy"]
        assert {"evaluations_forward", "evaluations_backward", "evaluations_recomputed", "seconds"} <= row.keys()
        assert row["loss"] > 0
        assert 0 <= row["accuracy"] <= 1
        assert row["seconds"] >= 0
        assert row["accuracy"] * 16 == round(row["accuracy"] * 16)


def test_evaluations_on_the_test_set_have_rows_even_between_the_others(tmp_path: Path) -> None:
    trained(tmp_path, a_config(iterations=12, log_every=5, evaluate_every=4))
    rows = [(row["iteration"], "test_accuracy" in row) for row in read_metrics(tmp_path)]
    assert rows == [(4, True), (5, False), (8, True), (10, False), (12, True)]


def test_the_precision_is_a_step_or_a_tolerance(tmp_path: Path) -> None:
    trained(tmp_path / "fixed", a_config(solver=EULER))
    trained(tmp_path / "adaptive", a_config(solver=Adaptive("dopri54", tolerance=1e-3), iterations=5))
    assert set(columns(tmp_path / "fixed", "step")) == {(1 / 6,)}
    assert set(columns(tmp_path / "adaptive", "tolerance")) == {(1e-3,)}
    assert "tolerance" not in read_metrics(tmp_path / "fixed")[0]
    assert "step" not in read_metrics(tmp_path / "adaptive")[0]


COUNTS = ("evaluations_forward", "evaluations_backward", "evaluations_recomputed", "evaluations_checks")


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
@pytest.mark.parametrize(
    ("solver", "gradient", "per_iteration"),
    [
        (EULER, "backprop", (6, 0, 0, 0)),
        (EULER, "checkpoint", (6, 0, 6, 0)),
        (EULER, "adjoint", (6, 6, 0, 0)),
        (FixedStep("rk4", step=0.4), "backprop", (12, 0, 0, 0)),
        (FixedStep("rk4", step=0.4), "checkpoint", (12, 0, 12, 0)),
        (FixedStep("rk4", step=0.4), "adjoint", (12, 12, 0, 0)),
    ],
    ids=str,
)
def test_evaluations_add_up_over_the_iterations_and_tests_are_not_among_them(
    tmp_path: Path, solver: Solver, gradient: str, per_iteration: tuple[int, ...], seeds: tuple[int, ...]
) -> None:
    config = a_config(solver=solver, gradient=gradient, seeds=seeds, iterations=6, log_every=2, evaluate_every=2)
    trained(tmp_path, config)
    for iteration, *counts in columns(tmp_path, "iteration", *COUNTS):
        assert counts == [iteration * count for count in per_iteration]


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_an_adaptive_solver_is_charged_what_each_member_took_as_if_it_were_alone(tmp_path: Path, gradient: str) -> None:
    def counts(seeds: tuple[int, ...]) -> list[tuple[int, ...]]:
        path = tmp_path / str(seeds)
        solver = Adaptive("dopri54", tolerance=1e-5)
        trained(path, a_config(solver=solver, gradient=gradient, seeds=seeds, iterations=4, dtype="float64"))
        return columns(path, *COUNTS)[-len(seeds) :]

    together, alone = counts((0, 8)), [*counts((0,)), *counts((8,))]
    assert together[0][0] != together[1][0]
    for (forward, backward, recomputed, checks), expected in zip(together, alone, strict=True):
        assert (forward, backward, checks) == (expected[0], expected[1], 0)
        assert (backward > 0, recomputed > 0) == (gradient == "adjoint", gradient == "checkpoint")
        # A step that one member accepts and another rejects is recomputed for both; alone, a rejected one is not.
        assert expected[2] <= recomputed <= forward


def test_reports_say_what_the_rows_say(tmp_path: Path) -> None:
    config = a_config(seeds=(0, 1), solver=EULER, iterations=10)
    reports: list[Report] = []
    with open_run(tmp_path, config) as run:
        train(config, *some_spheres(), run, report=reports.append)
    assert [(r.iteration, r.iterations, r.precision) for r in reports] == [(i, 10, [1 / 6] * 2) for i in (5, 10)]
    assert [loss for r in reports for loss in r.loss] == [row["loss"] for row in read_metrics(tmp_path)]
    assert [r.evaluations for r in reports] == [[6.0, 6.0]] * 2
    assert reports[0].test_accuracy is None
    assert reports[1].test_accuracy == [row["test_accuracy"] for row in read_metrics(tmp_path)[2:]]


@pytest.mark.parametrize("ends", [True, False])
def test_pytorch_has_one_thread_while_points_are_trained_in_c_and_all_of_them_afterwards(
    tmp_path: Path, ends: bool
) -> None:
    needs_a_compiler()
    seen: set[int] = set()

    def report(now: Report) -> None:
        seen.add(torch.get_num_threads())
        if not ends:
            raise KeyboardInterrupt

    before, config = torch.get_num_threads(), a_config()
    torch.set_num_threads(3)
    try:
        with suppress(KeyboardInterrupt), open_run(tmp_path, config) as run:
            train(config, *some_spheres(), run, report=report)
        assert (seen, torch.get_num_threads()) == ({1}, 3)
    finally:
        torch.set_num_threads(before)


def test_the_outcome_is_the_trained_models_own_test(tmp_path: Path) -> None:
    config = a_config(seeds=(0, 1), iterations=7, dtype="float64")
    outcome = trained(tmp_path, config)
    _, (inputs, labels) = some_spheres()
    found = trained_ensemble(tmp_path)
    assert outcome.test == evaluate(found.ensemble, [config.solver] * 2, (inputs.double(), labels))
    assert outcome.test is not None
    assert outcome.test.samples == 100
    assert outcome.test.evaluations == [2, 2]
    assert [round(100 * a) / 100 for a in outcome.test.accuracy] == outcome.test.accuracy


def test_a_model_loaded_from_a_run_is_its_seeds_own_and_answers_as_the_ensemble_does(tmp_path: Path) -> None:
    config = a_config(seeds=(3, 1), iterations=7)
    with open_run(str(tmp_path), config) as run:
        train(config, *some_spheres(), run)
    found, (_, (inputs, _)) = trained_ensemble(str(tmp_path)), some_spheres()
    one, other = (load_run(str(tmp_path), seed) for seed in (1, 3))
    expected = found.ensemble(inputs.expand(2, *inputs.shape), found.solvers)
    torch.testing.assert_close(torch.stack([other(inputs), one(inputs)]), expected)
    assert ode_blocks(one)[0].solver == config.solver
    with pytest.raises(UsageError, match="has no seed 0: it was trained with 3, 1"):
        load_run(tmp_path)
    for device in ("banana", "", "cuda:77"):
        with pytest.raises(UsageError, match=rf"cannot be put on the device '{device}' \(.*\): take the cpu"):
            load_run(tmp_path, 1, device=device)


def test_a_test_set_in_many_pieces_gives_the_same_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, a_config(seeds=(0, 1)))
    ensemble, (_, test_set) = trained_ensemble(tmp_path).ensemble, some_spheres()
    whole = evaluate(ensemble, [EULER] * 2, test_set)
    monkeypatch.setattr("windermere.paper.training.evaluation.VALUES_AT_ONCE", 2 * 2 * 40 * 7)  # seven samples
    assert evaluate(ensemble, [EULER] * 2, test_set) == whole


def test_a_run_folder_holds_config_environment_metrics_checkpoint_and_model(tmp_path: Path) -> None:
    config = a_config(seeds=(0, 1))
    trained(tmp_path, config)
    assert {file.name for file in tmp_path.iterdir()} == {
        "config.json", "environment.json", "metrics.jsonl", "checkpoint.safetensors", "model.safetensors", "lock"
    }  # fmt: skip
    assert read_json(tmp_path / "config.json") == json.loads(json.dumps(config.to_dict()))
    assert {"torch", "python", "commit", "device_name"} <= read_json(tmp_path / "environment.json").keys()
    assert model(tmp_path).meta["iterations"] == checkpoint(tmp_path).meta["iteration"] == 20
    assert model(tmp_path).meta["seeds"] == [0, 1]
    assert all(len(tensor) == 2 for tensor in model(tmp_path).tensors.values())
