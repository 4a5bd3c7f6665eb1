"""`windermere train --random-steps`: what it trains, and what is refused."""

from pathlib import Path

import pytest

import windermere as wm
from tests.cli.commands import QUICK, SPHERES, Command, assert_one_sentence
from windermere.records import read_json

DRAWN = (*SPHERES, "--solver", "midpoint", "--steps", 32, "--iterations", 10, "--random-steps", 3)


def test_random_steps_are_in_the_config_and_the_model_has_its_own(run: Command, tmp_path: Path) -> None:
    answer = run("train", "--out", "run", *DRAWN, "--finish", 0.3)
    assert answer.code == 0, answer
    assert read_json(tmp_path / "run" / "config.json")["random_steps"] == {"mean": 3, "finish": 0.3, "span": 1.0}
    assert wm.load_run(tmp_path / "run")[0].solver == wm.FixedStep("midpoint", step=1 / 32)  # type: ignore[index]


def test_a_resumed_run_keeps_its_random_steps(run: Command) -> None:
    assert run("train", "--out", "run", *DRAWN).code == 0
    assert run("train", "--out", "run", "--resume", "--random-steps", 3, "--finish", 0.2).code == 0
    answer = run("train", "--out", "run", "--resume", "--random-steps", 4)
    assert_one_sentence(answer, r"run was started with --random-steps 3 \(not 4\): resume it without this")
    answer = run("train", "--out", "run", "--resume", "--finish", 0.5)
    assert_one_sentence(answer, r"run was started with --finish 0.2 \(not 0.5\): resume it without this")


def test_a_run_without_them_cannot_get_them(run: Command) -> None:
    assert run("train", "--out", "run", *QUICK).code == 0
    answer = run("train", "--out", "run", "--resume", "--random-steps", 3)
    assert_one_sentence(answer, "this run was started without random steps: leave --random-steps and --finish out")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--random-steps", 1), "--random-steps is a mean number of steps, at least 2, not 1"),
        (("--random-steps", 10**20), f"mean must be at most 5000000 steps, not {10**20}"),
        (("--random-steps", 3, "--finish", 1), "--finish is a share of all iterations"),
        (("--finish", 0.1), "--finish says how random steps end: give --random-steps, or leave it out"),
        (("--random-steps", 3, "--adapt", "paper"), "random steps are not adapted: leave --random-steps out"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Command, tmp_path: Path, flags: tuple[object, ...], words: str) -> None:
    assert_one_sentence(run("train", "--out", "run", *QUICK, *flags), words)
    assert list(tmp_path.iterdir()) == []
