"""A run that was stopped and resumed is the same, bit for bit, as one that was not."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from windermere.adaptation import SteadySteps, StepAdaptation
from windermere.errors import RunError, UsageError
from windermere.paper.training import leave_behind, loop, open_run, resumed_config, runs, train, trained_ensemble
from windermere.records import read_json, read_metrics, write_tensors
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

from .small import a_config, assert_same_bits, assert_same_run, checkpoint, model, rows, some_spheres, trained

SOLVERS: list[Solver] = [
    FixedStep.of("euler", steps=3),
    OnGrid("rk4", (0.0, 0.3, 1.0)),
    Adaptive("dopri54", tolerance=1e-4),
    Adaptive("fehlberg21", tolerance=1e-2, control="sample"),
]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_a_run_stopped_twice_and_resumed_equals_one_that_was_not(
    tmp_path: Path, solver: Solver, gradient: str, optimizer: str
) -> None:
    config = a_config(
        solver=solver,
        seeds=(4, 1),
        gradient=gradient,
        optimizer=optimizer,
        iterations=12,
        log_every=1,
        checkpoint_every=4,
    )
    trained(tmp_path / "whole", config)
    for resume, stop_at in ((False, 3), (True, 7), (True, None)):
        outcome = trained(tmp_path / "pieces", config, resume=resume, stop_at=stop_at)
        assert (outcome.finished, outcome.iteration) == (stop_at is None, stop_at or 12)
        assert outcome.reason == ("finished" if stop_at is None else "interrupted")
    assert_same_run(tmp_path / "pieces", tmp_path / "whole")


def test_a_run_that_goes_on_elsewhere_notes_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each change: sittings at the same one, with the same code, are not told apart."""
    for name in ("here", "there", "there", "here"):
        monkeypatch.setattr(runs, "environment", lambda device, name=name: {"started": 0, "device_name": name})
        open_run(tmp_path, a_config(), resume=(tmp_path / "config.json").exists()).close()
    noted = read_json(tmp_path / "environment.json")
    assert (noted["device_name"], [sitting["device_name"] for sitting in noted["resumed"]]) == (
        "here",
        ["there", "here"],
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stopping_between_checkpoints_writes_one(tmp_path: Path, dtype: str) -> None:
    config = a_config(dtype=dtype, checkpoint_every=100, log_every=1)
    trained(tmp_path, config, stop_at=3)
    assert checkpoint(tmp_path).meta["iteration"] == 3
    assert not (tmp_path / "model.safetensors").exists()


def test_a_sign_in_the_last_iteration_lets_the_run_finish(tmp_path: Path) -> None:
    outcome = trained(tmp_path, a_config(iterations=5), stop_at=5)
    assert (outcome.finished, outcome.reason) == (True, "finished")
    assert (tmp_path / "model.safetensors").exists()


def test_a_resumed_run_counts_its_evaluations_and_seconds_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, clock = a_config(iterations=10, log_every=1), count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))  # a second an iteration
    trained(tmp_path, config, stop_at=4)
    before = checkpoint(tmp_path).meta
    assert (before["evaluations"]["forward"], before["seconds"]) == ([8], 4.0)
    trained(tmp_path, config, resume=True)
    after = checkpoint(tmp_path).meta
    assert (after["evaluations"]["forward"], after["seconds"]) == ([20], 10.0)
    assert [row["seconds"] for row in read_metrics(tmp_path)] == [float(n) for n in range(1, 11)]


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    config = a_config()
    open_run(tmp_path / "pieces", config).close()
    trained(tmp_path / "pieces", config, resume=True)
    trained(tmp_path / "whole", config)
    assert_same_run(tmp_path / "pieces", tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    config = a_config()
    first = trained(tmp_path, config)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    again = trained(tmp_path, config, resume=True)
    assert again == first
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_run_resumed_with_more_iterations_equals_one_that_had_them_from_the_start(tmp_path: Path) -> None:
    trained(tmp_path / "longer", a_config(iterations=20))
    trained(tmp_path / "longer", a_config(iterations=40), resume=True)
    trained(tmp_path / "long", a_config(iterations=40))
    assert_same_run(tmp_path / "longer", tmp_path / "long")
    assert read_json(tmp_path / "longer" / "config.json") == read_json(tmp_path / "long" / "config.json")


def test_a_longer_run_keeps_the_rows_of_the_end_it_once_had(tmp_path: Path) -> None:
    trained(tmp_path / "longer", a_config(iterations=13))
    trained(tmp_path / "longer", a_config(iterations=20), resume=True)
    trained(tmp_path / "long", a_config(iterations=20))
    assert_same_bits(model(tmp_path / "longer").tensors, model(tmp_path / "long").tensors)
    assert [row for row in rows(tmp_path / "longer") if row["iteration"] != 13] == rows(tmp_path / "long")


def test_the_model_of_a_run_that_is_to_be_longer_is_not_taken_for_its_end(tmp_path: Path) -> None:
    trained(tmp_path, a_config(iterations=10))
    open_run(tmp_path, a_config(iterations=20), resume=True).close()
    with pytest.raises(
        RunError, match=r"is to be trained for 20 iterations, and its model is that after 10: .*, or go on with it$"
    ):
        trained_ensemble(tmp_path)
    trained(tmp_path, a_config(iterations=20), resume=True)
    assert trained_ensemble(tmp_path).config.iterations == 20


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lr": 0.5}, r"lr = 0\.001 \(not 0\.5\)"),
        ({"batch_size": 8}, r"batch_size = 16 \(not 8\)"),
        ({"solver": FixedStep.of("euler", steps=4)}, r"solver = euler, h = 1/2 \(not euler, h = 1/4\)"),
        ({"seeds": (0, 1)}, r"seeds = \(0,\) \(not \(0, 1\)\)"),
        ({"optimizer": "sgd", "dtype": "float64"}, r"optimizer = adam \(not sgd\) and dtype = float32 \(not float64\)"),
        ({"data": "sphere3", "iterations": 99}, r"data = sphere2 \(not sphere3\)"),
        ({"iterations": 19}, r"iterations = 20 \(not 19\): resumed, it may have more iterations, but not fewer"),
    ],
    ids=str,
)
def test_a_contradiction_is_refused_by_its_name_and_leaves_the_run_as_it_was(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    trained(tmp_path, a_config(), stop_at=5)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RunError, match=told):
        open_run(tmp_path, a_config(**change), resume=True)
    with pytest.raises(RunError, match=told):
        resumed_config(tmp_path, change)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    open_run(tmp_path, a_config(), resume=True).close()  # and it is not locked


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("checkpoint.safetensors", b"nothing"),
        ("checkpoint.safetensors", None),
        ("metrics.jsonl", b"{}"),
        ("environment.json", b"{"),
        ("environment.json", b"[]"),
    ],
)
def test_a_finished_run_that_cannot_go_on_for_longer_stays_as_good_as_it_was(
    tmp_path: Path, name: str, damage: bytes | None
) -> None:
    trained(tmp_path, a_config(iterations=10))
    if damage is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(damage)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(RunError, match=f"{name} (is damaged|to go on from: put that back)"):
        trained(tmp_path, a_config(iterations=20), resume=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert trained_ensemble(tmp_path).config.iterations == 10


def test_what_a_run_was_started_with_need_not_be_said_again(tmp_path: Path) -> None:
    config = a_config(seeds=(2, 3))
    open_run(tmp_path, config).close()
    assert resumed_config(tmp_path, {}) == config
    assert resumed_config(tmp_path, {"lr": config.lr, "iterations": 50}) == a_config(seeds=(2, 3), iterations=50)


def test_a_run_with_a_damaged_config_is_refused_and_not_locked(tmp_path: Path) -> None:
    open_run(tmp_path, a_config()).close()
    whole = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(whole.replace('"adam"', '"adamant"'))
    with pytest.raises(RunError, match=r"config\.json is not a complete run: there is no optimizer 'adamant'"):
        open_run(tmp_path, a_config(), resume=True)
    (tmp_path / "config.json").write_text(whole)
    open_run(tmp_path, a_config(), resume=True).close()


ADAPTED = {"controller": StepAdaptation(train="euler", check="midpoint", every=5)}
OTHERWISE = {"controller": StepAdaptation(train="euler", check="midpoint", every=5, threshold=0.2)}
STEADY = {"controller": SteadySteps(train="euler", check="midpoint", every=5)}


@pytest.mark.parametrize(
    ("own", "other", "why"),
    [
        ({}, {"data": "sphere3"}, "other settings"),
        ({}, {"seeds": (1, 2)}, r"it has seeds \[1, 2\], not \[0\]"),
        ({}, ADAPTED, "other settings"),
        (ADAPTED, {}, "other settings"),
        (ADAPTED, OTHERWISE, "other settings"),
        ({}, {"solver": FixedStep.of("euler", steps=4)}, "other settings"),
        ({}, {"lr": 1e-2}, "other settings"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused_and_every_file_stays_as_it_is(
    tmp_path: Path, own: dict[str, Any], other: dict[str, Any], why: str
) -> None:
    points = 3 if "data" in other else 2
    with open_run(tmp_path / "other", a_config(**other)) as run:
        train(a_config(**other), *some_spheres(points), run)
    folder = tmp_path / "one"
    trained(folder, a_config(**own), stop_at=5)
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write("{}\n")  # younger than the checkpoint: cut where a run goes on
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(RunError, match=f"the checkpoint in .*one does not belong to this run, since .*{why}: put"):
        trained(folder, a_config(**own, iterations=40), resume=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_run_is_not_trained_by_the_config_of_another(tmp_path: Path) -> None:
    """Where a folder was opened as what it is, and then trained as something else."""
    trained(tmp_path, a_config(), stop_at=5)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with open_run(tmp_path, a_config(), resume=True) as run, pytest.raises(RunError, match="other settings"):
        train(a_config(**ADAPTED), *some_spheres(), run)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_checkpoint_that_does_not_name_its_run_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, a_config(), stop_at=5)
    saved = checkpoint(tmp_path)
    nameless = {name: value for name, value in saved.meta.items() if name != "config"}
    write_tensors(tmp_path / "checkpoint.safetensors", saved.tensors, nameless)
    with pytest.raises(RunError, match="does not belong to this run, since it does not say which run saved it"):
        trained(tmp_path, a_config(), resume=True)


def test_a_digest_tells_settings_apart_but_not_their_spelling_nor_what_may_change() -> None:
    config = a_config(lr=1.0, **ADAPTED)
    assert config.digest == replace(config, lr=1).digest
    assert config.digest == replace(config, iterations=99, device="cuda", seeds=(7, 8)).digest
    for change in ({"lr": 1.1}, {"data_seed": 1}, OTHERWISE, STEADY, {"dtype": "float64"}):
        assert replace(config, **change).digest != config.digest, change


@pytest.mark.parametrize("adapted", [{}, ADAPTED], ids=["as it is", "adapted"])
def test_members_that_go_on_without_the_others_train_as_if_alone(tmp_path: Path, adapted: dict[str, Any]) -> None:
    config = a_config(seeds=(3, 4, 5), **adapted, dtype="float64")
    trained(tmp_path / "all", config, stop_at=10)
    left = leave_behind(tmp_path / "all", [4])
    assert left == replace(config, seeds=(3, 5))
    outcome = trained(tmp_path / "all", left, resume=True)
    trained(tmp_path / "alone", left)
    assert outcome.test is not None
    assert len(outcome.test.accuracy) == 2
    for name, tensor in model(tmp_path / "all").tensors.items():
        torch.testing.assert_close(tensor, model(tmp_path / "alone").tensors[name], rtol=1e-12, atol=1e-12)


def test_a_run_whose_last_seed_would_be_left_behind_stays_as_it_is(tmp_path: Path) -> None:
    trained(tmp_path, a_config(), stop_at=5)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(UsageError, match="seeds must be one or more"):
        leave_behind(tmp_path, [0])
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_trained_model_is_read_back_with_its_parameters(tmp_path: Path) -> None:
    trained(tmp_path, a_config(seeds=(0, 5), dtype="float64"))
    found = trained_ensemble(tmp_path)
    assert found.config == a_config(seeds=(0, 5), dtype="float64")
    assert_same_bits({name: t.detach() for name, t in found.ensemble.tensors.items()}, model(tmp_path).tensors)


def test_a_model_of_another_architecture_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, a_config())
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace("sphere2", "sphere3"))
    with pytest.raises(RunError, match="the model's parameters are not those of a 'sphere3' model"):
        trained_ensemble(tmp_path)
