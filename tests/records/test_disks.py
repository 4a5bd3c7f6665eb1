"""Disks that are full or read-only, and what is in the place of a file."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.disks import KINDS, a_socket, mount
from tests.records.small import a_run, names
from windermere import records
from windermere.errors import StorageError
from windermere.records import RunFolder, read_json, read_metrics, read_run, read_tensors, write_tensors


def test_a_full_disk_is_a_sentence_and_the_old_file_survives(tiny_disk: Path) -> None:
    path = tiny_disk / "checkpoint.safetensors"
    write_tensors(path, {"weight": torch.ones(10)}, {})
    with pytest.raises(StorageError, match=r"checkpoint\.safetensors .* the disk is full: free some space"):
        write_tensors(path, {"weight": torch.ones(100_000)}, {})
    assert torch.equal(read_tensors(path).tensors["weight"], torch.ones(10))
    assert names(tiny_disk) == {"checkpoint.safetensors"}


def test_metrics_on_a_full_disk_stay_whole_and_the_run_can_be_closed_and_reopened(tiny_disk: Path) -> None:
    def fill(run: RunFolder) -> None:
        for iteration in range(1000):
            run.log({"iteration": iteration, "filling": "x" * 1000})

    with a_run(tiny_disk / "run") as run:
        with pytest.raises(StorageError, match=r"metrics\.jsonl .* the disk is full"):
            fill(run)
        assert (tiny_disk / "run" / "metrics.jsonl").read_bytes().endswith(b"\n")
    assert len(read_metrics(tiny_disk / "run")) > 10
    with RunFolder.reopen(tiny_disk / "run") as run:
        run.load_checkpoint()  # which frees the metrics' space
        run.save_checkpoint({"weight": torch.ones(10)}, {})


def test_a_read_only_disk_is_a_sentence_and_can_still_be_read(tiny_disk: Path) -> None:
    with a_run(tiny_disk / "run") as run:
        run.log({"iteration": 1})
        run.save_model({"weight": torch.ones(2)}, {})
    mount("-o", "remount,ro", str(tiny_disk))
    for writing in (
        lambda: records.write_atomically(tiny_disk / "file", b""),
        lambda: a_run(tiny_disk / "other"),
        lambda: RunFolder.reopen(tiny_disk / "run"),
    ):
        with pytest.raises(StorageError, match="the disk is read-only: choose another folder"):
            writing()
    assert torch.equal(read_run(tiny_disk / "run").model.tensors["weight"], torch.ones(2))
    assert read_metrics(tiny_disk / "run") == [{"iteration": 1}]


def test_a_path_below_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / "file" / "deep" / "run"):
        with pytest.raises(StorageError, match="is a file, not a folder"):
            a_run(path)
    with pytest.raises(StorageError, match="is a file, not a folder"):
        records.write_atomically(tmp_path / "file" / "below", b"")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_is_a_sentence_and_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(StorageError, match="a folder of that name is in its place"):
        records.write_json(tmp_path / "config.json", {})
    with pytest.raises(StorageError, match="could not be read, because a folder"):
        read_json(tmp_path / "config.json")
    assert names(tmp_path) == {"config.json"}


@dataclass(frozen=True)
class _Row:
    a: int


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files on Windows")
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_only_files_are_replaced_or_opened(tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    make(path := tmp_path / "page.md")
    before = path.lstat()
    for writing in (
        lambda: records.write_atomically(path, b"new"),
        lambda: records.write_rows(path, _Row, [_Row(a=1)]),
        lambda: write_tensors(path, {}, {}),
        lambda: records.open_file(path, "a", "opened"),
    ):
        with pytest.raises(
            StorageError, match=rf"page\.md could not be .* because {kind} of that name is in its place"
        ):
            writing()
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert names(tmp_path) <= {"page.md", "target"}
    assert all(entry.read_text() == "mine" for entry in tmp_path.glob("target"))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files on Windows")
def test_a_socket_that_is_to_be_read_is_called_one(tmp_path: Path) -> None:
    a_socket(tmp_path / "page.json")
    with pytest.raises(StorageError, match="could not be read, because a socket of that name is in its place: move it"):
        records.read_json(tmp_path / "page.json")


def test_a_missing_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="its folder does not exist"):
        records.write_atomically(tmp_path / "nowhere" / "file", json.dumps({}).encode())
