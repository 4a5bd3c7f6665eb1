"""SIGKILL, for real: whenever it hits a training, going on ends as if it had not."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.sittings import CONFIGS, result, sit, uninterrupted
from tests.processes import by_forks, python

pytestmark = by_forks
KILLS = 100


@pytest.fixture(scope="module")
def trainer() -> Iterator["subprocess.Popen[str]"]:
    """A process that has PyTorch and forks trainings; see `killing.py`."""
    with python("-m", "tests.fuzz.killing", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as process:
        yield process


def killed(trainer: "subprocess.Popen[str]", **asked: object) -> int:
    """Lets a training run until it is killed or ends; returns the signal that ended it, or 0."""
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    trainer.stdin.write(json.dumps({name: str(value) for name, value in asked.items()}) + "\n")
    trainer.stdin.flush()
    return int(trainer.stdout.readline())


def assert_ends_alike(folder: Path, number: int) -> None:
    assert sit(folder, CONFIGS[number])
    assert result(folder) == uninterrupted(number)


@pytest.mark.parametrize("moment", [1, 12, 27])
def test_a_training_that_is_killed_inside_of_a_write_ends_alike(
    trainer: "subprocess.Popen[str]", tmp_path: Path, moment: int
) -> None:
    assert killed(trainer, folder=tmp_path / "run", number=0, moment=moment, begun="") == 9
    assert_ends_alike(tmp_path / "run", 0)


@pytest.mark.thorough
def test_a_hundred_trainings_that_are_killed_end_alike(trainer: "subprocess.Popen[str]", tmp_path: Path) -> None:
    """Half of them in an operation on a file, half after a random time; nearly all have two kills, or three."""
    chance, outcomes = Random(0), list[int]()
    while sum(outcomes) < KILLS:
        attempt = len(outcomes)
        folder, number = tmp_path / str(attempt), chance.randrange(len(CONFIGS))
        hits = 0
        for _ in range(chance.choice([1, 2, 3])):
            begun = "yes" if (folder / "config.json").exists() else ""
            when = {"moment": chance.randrange(60)} if attempt % 2 else {"seconds": chance.uniform(0, 0.3)}
            hits += killed(trainer, folder=folder, number=number, begun=begun, **when) == 9
        assert_ends_alike(folder, number)
        outcomes.append(hits)
    print(f"{sum(outcomes)} kills in {len(outcomes)} trainings, {len(outcomes)} of {len(outcomes)} ended bit-identical")
