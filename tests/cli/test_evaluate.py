"""`windermere evaluate`: a run with its own and with other solvers."""

import re
from pathlib import Path

import pytest

from tests.cli.commands import EULER, QUICK, Command, assert_one_sentence, evaluated, files
from tests.paper.training.small import (
    rows,
)


@pytest.fixture
def trained(run: Command, tmp_path: Path) -> Path:
    assert run("train", *QUICK, "--seeds", "7,3", "--out", "run").code == 0
    return tmp_path / "run"


def test_a_run_evaluated_with_its_own_solver_gives_what_its_training_gave(run: Command, trained: Path) -> None:
    (own,) = evaluated(run("evaluate", trained, "--json"))
    assert (own["solver"], own["seeds"], own["samples"], own["evaluations"]) == ("euler, h = 1/2", [7, 3], 1000, [2, 2])
    assert own["accuracy"] == [row["test_accuracy"] for row in rows(trained)[-2:]]


def test_a_run_is_evaluated_with_its_own_and_with_another_solver_side_by_side(run: Command, trained: Path) -> None:
    flags = ("--solver", "rk4", "--steps", 8)
    own, other = evaluated(run("evaluate", trained, *flags, "--json"))
    assert (own["solver"], other["solver"]) == ("euler, h = 1/2", "rk4, h = 1/8")
    assert other["evaluations"] == [32, 32]
    table = run("evaluate", trained, *flags).out
    for result in (own, other):
        for accuracy in result["accuracy"]:
            assert f"{accuracy:.4f}" in table
    assert "(own)" in table


def test_on_a_narrow_terminal_no_rows_name_is_broken(
    run: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = run("evaluate", trained, "--solver", "rk4", "--steps", 8).out
    assert "│ evaluations │" in table
    assert max(map(len, table.splitlines()[1:])) <= 40


def test_naming_the_runs_own_solver_evaluates_it_once(run: Command, trained: Path) -> None:
    assert len(evaluated(run("evaluate", trained, *EULER, "--json"))) == 1


def test_an_adaptive_solver_can_be_the_other(run: Command, trained: Path) -> None:
    _, other = evaluated(run("evaluate", trained, "--solver", "dopri54", "--tolerance", 1e-3, "--json"))
    assert other["solver"] == "dopri54, tol = 0.001"
    assert all(evaluations >= 8 for evaluations in other["evaluations"])


def test_evaluation_changes_nothing(run: Command, trained: Path) -> None:
    before = files(trained)
    assert run("evaluate", trained, "--solver", "rk4", "--steps", 2).code == 0
    assert files(trained) == before


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--steps", 2), "--steps needs a method"),
        (("--solver", "rk4"), "exactly one of"),
        (("--solver", "rk4", "--tolerance", 0.1), "rk4"),
        (("--solver", "rk5", "--steps", 2), "there is no method 'rk5': did you mean 'rk4'"),
        (("--device", "banana"), "there is no device 'banana'"),
        (("--solver", "dopri54", "--tolerance", 1e-12), "float32 cannot resolve"),
    ],
    ids=str,
)
def test_an_impossible_evaluation_is_one_sentence(
    run: Command, trained: Path, flags: tuple[object, ...], words: str
) -> None:
    assert_one_sentence(run("evaluate", trained, *flags), words)


def test_an_unfinished_run_is_told_how_to_go_on(run: Command) -> None:
    assert run("train", *QUICK, "--time-limit", 0, "--out", "run").code == 0
    assert_one_sentence(run("evaluate", "run"), "run has no trained model yet: .* go on with it by --resume")


def test_a_run_that_is_being_made_longer_is_told_how_to_go_on(run: Command, trained: Path) -> None:
    assert run("train", "--resume", "--iterations", 100, "--time-limit", 0, "--out", trained).code == 0
    assert_one_sentence(run("evaluate", trained), "100 iterations, and its model is that after 6: .* --resume")


def test_what_is_no_run_cannot_be_evaluated(run: Command, tmp_path: Path) -> None:
    assert_one_sentence(run("evaluate", "nowhere"), "nowhere does not exist: name a folder")
    assert_one_sentence(run("evaluate", tmp_path), "is not a run: name a folder")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_corrupted_file_of_a_run_is_named(run: Command, trained: Path, name: str) -> None:
    contents = bytearray((trained / name).read_bytes())
    contents[len(contents) // 2] ^= 0xFF
    (trained / name).write_bytes(contents)
    assert_one_sentence(run("evaluate", trained), f"run/{re.escape(name)} is damaged .*: restore it, or start the run")
