"""Trainings on images, from tiny files in the official formats."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import EULER, Command, assert_one_sentence, evaluated
from tests.paper.data.small import cifar_contents, mnist_contents, write
from tests.paper.training.small import (
    rows,
)


@pytest.mark.parametrize(
    ("name", "contents", "samples"),
    [("mnist", mnist_contents(train=12, test=5), 5), ("cifar10", cifar_contents(3), 3)],
    ids=["mnist", "cifar10"],
)
@pytest.mark.parametrize("solver", [("--solver", "euler", "--steps", 1), ("--solver", "fehlberg21", "--tolerance", 1)])
def test_images_are_trained_and_evaluated_from_their_files(
    run: Command, tmp_path: Path, name: str, contents: dict[str, bytes], samples: int, solver: tuple[object, ...]
) -> None:
    write(tmp_path / "datasets" / name, contents, zipped=name == "mnist")
    flags = ("--data", name, *solver, "--batch-size", 4, "--iterations", 2, "--seeds", 2)
    assert run("train", *flags, "--out", "run").code == 0
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [2, 2]
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["optimizer"] == ("sgd" if (name, solver[1]) == ("mnist", "euler") else "adam")
    own, other = evaluated(run("evaluate", "run", "--solver", "heun", "--steps", 1, "--json"))
    assert own["samples"] == other["samples"] == samples
    assert other["evaluations"] == [2, 2]


def test_a_run_in_bfloat16_is_evaluated_in_float32_unless_told_otherwise(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "datasets" / "mnist", mnist_contents(train=12, test=5))
    flags = ("--data", "mnist", *EULER, "--batch-size", 4, "--iterations", 1, "--arithmetic", "bfloat16")
    answer = run("train", *flags, "--out", "run")
    assert answer.code == 0
    assert "euler, h = 1/2 in bfloat16, 1 iterations" in " ".join(answer.out.split())
    assert json.loads((tmp_path / "run" / "config.json").read_text())["arithmetic"] == "bfloat16"
    plain, own = (run("evaluate", "run", *more).out for more in ((), ("--arithmetic", "bfloat16")))
    assert "computed in float32, and trained in bfloat16 (--arithmetic chooses)" in plain
    assert "computed in" not in own
    assert json.loads(run("evaluate", "run", "--json").out)["arithmetic"] == "float32"
    assert_one_sentence(run("evaluate", "run", "--arithmetic", "half"), "there is no arithmetic 'half'")


def test_images_whose_files_are_gone_are_told_what_to_do(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "datasets" / "mnist", mnist_contents(train=12))
    flags = ("--data", "mnist", *EULER, "--batch-size", 4, "--iterations", 1)
    assert run("train", *flags, "--out", "run").code == 0
    (tmp_path / "datasets" / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    assert_one_sentence(run("evaluate", "run"), "has no t10k-labels-idx1-ubyte: run `windermere data get mnist`")
