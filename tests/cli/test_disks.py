"""Disks that refuse, under `windermere train` and `evaluate`."""

from pathlib import Path

from tests.cli.commands import QUICK, Command, assert_one_sentence
from tests.disks import mount
from tests.paper.training.small import (
    checkpoint,
)


def test_a_disk_that_fills_up_is_one_sentence_and_the_last_checkpoint_survives(run: Command, tiny_disk: Path) -> None:
    answer = run("train", *QUICK, "--out", tiny_disk / "run")
    assert_one_sentence(answer, r"checkpoint\.safetensors could not be written, because the disk is full: free some")
    assert checkpoint(tiny_disk / "run").meta["iteration"] == 2


def test_a_read_only_disk_is_one_sentence_and_its_runs_can_still_be_evaluated(run: Command, tiny_disk: Path) -> None:
    mount("-o", "remount,size=1m", str(tiny_disk))
    assert run("train", *QUICK, "--out", tiny_disk / "run").code == 0
    mount("-o", "remount,ro", str(tiny_disk))
    for flags in ((*QUICK, "--out", tiny_disk / "new"), ("--resume", "--out", tiny_disk / "run")):
        assert_one_sentence(run("train", *flags), "the disk is read-only: choose another folder")
    assert run("evaluate", tiny_disk / "run").code == 0
