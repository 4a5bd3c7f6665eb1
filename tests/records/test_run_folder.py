"""Run folders: what they hold, and which folders are left as they are."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.records.small import CONFIG, ENVIRONMENT, a_run, names
from windermere import records
from windermere.errors import RunError, StorageError
from windermere.records import RunFolder, read_json, read_metrics, read_run


def test_a_new_run_holds_its_config_and_environment(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "fine"
    with RunFolder.create(path, CONFIG, records.environment("cpu")) as run:
        assert run.config == CONFIG
    assert names(path) == {"config.json", "environment.json", "metrics.jsonl", "lock"}
    assert read_json(path / "config.json") == CONFIG
    stored = read_json(path / "environment.json")
    assert stored["torch"] == torch.__version__
    assert stored["numpy"] == np.__version__
    assert stored["device"] == "cpu"
    assert {"started", "windermere", "commit", "dirty", "python", "platform", "device_name"} <= stored.keys()


def test_the_commit_is_not_taken_from_the_repository_of_a_git_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = records.environment("cpu")["commit"]
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert records.environment("cpu")["commit"] == expected


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert records.environment("cpu")["commit"] is None


def test_a_folder_with_a_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    a_run(tmp_path / "run").close()
    before = {name: (tmp_path / "run" / name).read_bytes() for name in names(tmp_path / "run")}
    with pytest.raises(RunError, match=r"already holds a run: go on with resume=True or choose another folder$"):
        RunFolder.create(tmp_path / "run", {"data": "mnist"}, ENVIRONMENT)
    assert {name: (tmp_path / "run" / name).read_bytes() for name in names(tmp_path / "run")} == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "thesis.tex"])
def test_a_folder_with_other_files_is_refused_and_nothing_is_added(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunError, match=f"holds other files.*{name}"):
        a_run(tmp_path)
    assert names(tmp_path) == {name}
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("lock", ["", "1234\n", "\0" * 5])
def test_an_empty_folder_may_hold_hidden_files_and_an_aborted_creation(tmp_path: Path, lock: str) -> None:
    for name in (".gitkeep", ".config.json.0a1b2c3d.tmp", ".metrics.jsonl.0a1b2c3d.tmp"):
        (tmp_path / name).write_text("")
    (tmp_path / "lock").write_text(lock)
    records.write_json(tmp_path / "environment.json", records.environment("cpu"))
    a_run(tmp_path).close()
    assert names(tmp_path) == {".gitkeep", "lock", "environment.json", "config.json", "metrics.jsonl"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("environment.json", b'{"device": "my own", "conda": "base"}'),
        ("environment.json", b"[1, 2]"),
        ("environment.json", b"\xff not JSON"),
        ("environment.json", b"[" * 100_000),
        ("environment.json", b""),
        ("lock", b"poetry's, or a note\n"),
        ("lock", b"12 34\n"),
        ("lock", b"\xff\xfe"),
    ],
)
def test_a_lock_or_environment_of_the_users_own_is_kept_byte_for_byte(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=f"holds other files .*{name}"):
        a_run(tmp_path)
    assert names(tmp_path) == {name}
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("name", ["lock", "environment.json"])
@pytest.mark.parametrize("content", ["", "1234\n"])
def test_a_link_in_the_place_of_a_lock_or_environment_is_refused_and_its_target_kept(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / "precious").write_text(content)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match=f"holds other files .*{name}"):
        a_run(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == content
    assert names(tmp_path / "run") == {name}


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_run_is_not_reopened_through_a_link_in_the_place_of_its(tmp_path: Path, name: str) -> None:
    a_run(tmp_path / "run").close()
    (tmp_path / "precious").write_text("1234\n")
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    told = f"{name} could not be .* a link of that name is in its place: move it away"
    with pytest.raises(StorageError, match=told), RunFolder.reopen(tmp_path / "run") as run:
        run.look_over()
    assert (tmp_path / "precious").read_text() == "1234\n"


def test_a_lock_that_somebody_else_has_put_into_a_run_is_not_written_over(tmp_path: Path) -> None:
    a_run(tmp_path).close()
    (tmp_path / "lock").write_text("a note\n")
    with pytest.raises(RunError, match="holds other files"):
        RunFolder.reopen(tmp_path)
    assert (tmp_path / "lock").read_text() == "a note\n"


def test_a_folder_that_is_no_run_cannot_be_reopened_or_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for reading in (RunFolder.reopen, read_run, read_metrics):
        with pytest.raises(RunError, match="is not a run"):
            reading(tmp_path)
        with pytest.raises(RunError, match="does not exist"):
            reading(tmp_path / "nowhere")
    assert names(tmp_path) == {"notes.txt"}


@pytest.mark.parametrize("contents", [b'{"da', b"[]"])
def test_a_run_with_a_damaged_config_is_refused_and_stays_unlocked(tmp_path: Path, contents: bytes) -> None:
    a_run(tmp_path).close()
    whole = (tmp_path / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(contents)
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        RunFolder.reopen(tmp_path)
    (tmp_path / "config.json").write_bytes(whole)
    RunFolder.reopen(tmp_path).close()


def test_a_trained_model_is_read_back_while_the_run_is_still_locked(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        with pytest.raises(RunError, match="has no trained model yet"):
            read_run(tmp_path)
        run.save_model({"weight": torch.arange(3)}, {"seeds": [0, 1]})
        read = read_run(tmp_path)
    assert (read.path, read.config, read.model.meta) == (tmp_path, CONFIG, {"seeds": [0, 1]})
    assert torch.equal(read.model.tensors["weight"], torch.arange(3))
