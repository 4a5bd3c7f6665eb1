"""Disks that fill up or refuse while a run is trained on them."""

from pathlib import Path

import pytest

from tests.disks import mount
from windermere.errors import StorageError
from windermere.paper.training import trained_ensemble

from .small import a_config, assert_same_run, checkpoint, rows, trained


def test_a_disk_that_fills_up_is_a_sentence_and_the_last_checkpoint_survives(tiny_disk: Path) -> None:
    """64 KiB hold one checkpoint of 40 KiB, but not a second one beside it, which writing needs."""
    config = a_config()
    with pytest.raises(StorageError, match=r"checkpoint\.safetensors .* the disk is full: free some space"):
        trained(tiny_disk / "run", config)
    assert checkpoint(tiny_disk / "run").meta["iteration"] == 5
    assert [row["iteration"] for row in rows(tiny_disk / "run")] == [5, 10]


def test_a_run_goes_on_bit_for_bit_once_the_disk_has_space(tiny_disk: Path, tmp_path: Path) -> None:
    config = a_config()
    with pytest.raises(StorageError, match="the disk is full"):
        trained(tiny_disk / "run", config)
    mount("-o", "remount,size=1m", str(tiny_disk))
    trained(tiny_disk / "run", config, resume=True)
    trained(tmp_path / "whole", config)
    assert_same_run(tiny_disk / "run", tmp_path / "whole")


def test_a_read_only_disk_is_a_sentence_and_its_runs_can_still_be_asked(tiny_disk: Path) -> None:
    mount("-o", "remount,size=1m", str(tiny_disk))
    trained(tiny_disk / "run", a_config())
    mount("-o", "remount,ro", str(tiny_disk))
    for path, resume in ((tiny_disk / "run", True), (tiny_disk / "new", False)):
        with pytest.raises(StorageError, match="the disk is read-only: choose another folder"):
            trained(path, a_config(), resume=resume)
    assert trained_ensemble(tiny_disk / "run").config == a_config()
