"""A study that carries out its own runs: seed by seed, stopped or killed at any of them, with the same tables."""

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.paper.studies.own import NAMES, OWN, SQUARES, do, ran
from tests.processes import ROOT, by_signals, python
from windermere.errors import DivergedError, UsageError
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.runner import Progress
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import OwnRun, Place
from windermere.paper.training import StopSign
from windermere.records import read_json

EVERY = [(name, seed) for name in NAMES for seed in (0, 1, 2)]


def assert_same_tables(one: Path, other: Path) -> None:
    for name in ("table.csv", "powers.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_runs_are_in_the_studys_order_with_one_provenance_for_all(tmp_path: Path) -> None:
    ended = ran(tmp_path)
    assert (ended.reason, ended.idle, ended.left) == ("finished", False, [])
    assert [row.key for row in SQUARES.read(tmp_path)] == EVERY
    assert (tmp_path / "drawn.txt").read_text() == "6 rows"
    made = read_json(tmp_path / "provenance.json")
    assert list(made) == ["own"]
    assert {"commit", "torch", "device_name", "finished", "seconds"} <= made["own"].keys()
    assert ran(tmp_path).idle


@pytest.mark.parametrize("after", range(6))
def test_one_that_is_stopped_names_what_is_left_and_goes_on_to_the_same_tables(tmp_path: Path, after: int) -> None:
    ran(tmp_path / "whole")
    sign, told = StopSign(), list[float]()

    def stop(now: Progress) -> None:
        told.append(now.share)
        if len(told) > after:
            sign.reason = "interrupted"

    ended = run_study(OWN, tmp_path / "parts", Choice(), sign=sign, report=stop)
    assert [row.key for row in SQUARES.read(tmp_path / "parts")] == sorted(
        [(name, seed) for seed in (0, 1, 2) for name in NAMES][: after + 1], key=EVERY.index
    )
    assert ended.reason == ("interrupted" if ended.left else "finished")
    assert bool(ended.left) == (after < 5)
    ran(tmp_path / "parts")
    assert_same_tables(tmp_path / "parts", tmp_path / "whole")


@by_signals
def test_one_that_is_killed_goes_on_to_the_same_tables(tmp_path: Path) -> None:
    ran(tmp_path / "whole")
    there = tmp_path / "killed"
    with python("-u", "-m", "tests.paper.studies.own", there, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert 2 <= len(SQUARES.read(there)) < 6
    ran(there)
    assert_same_tables(there, tmp_path / "whole")


def test_a_seed_that_diverges_is_told_and_the_others_go_on_without_it(tmp_path: Path) -> None:
    def diverging(seed: int, place: Place) -> Tables:
        if seed == 1:
            raise DivergedError("the loss is not finite in iteration 3", iteration=3)
        return do("a-name", seed, place)

    study = replace(OWN, own_runs=lambda quick: {"a-name": OwnRun(seeds=(0, 1, 2), do=diverging)})
    ended = run_study(study, tmp_path, Choice())
    assert (ended.reason, ended.left, ended.diverged) == ("finished", [], {"a-name": [1]})
    assert [row.key for row in SQUARES.read(tmp_path)] == [("a-name", 0), ("a-name", 2)]


def test_runs_and_seeds_may_be_chosen_and_others_are_named(tmp_path: Path) -> None:
    ran(tmp_path, only="a-*", seeds=(7,))
    assert [row.key for row in SQUARES.read(tmp_path)] == [("a-name", 7)]
    with pytest.raises(UsageError, match="no run of 'own' is called 'b': there are later-name, a-name"):
        ran(tmp_path, only="b")
