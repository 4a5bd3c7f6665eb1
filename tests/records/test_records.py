"""Run folders under real faults: SIGKILL, a full disk, a read-only one, damaged files, a second process."""

import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from tests.processes import python
from windermere import records
from windermere.errors import RunError, StorageError, UsageError
from windermere.records import RunFolder, read_json, read_metrics, read_run, read_tensors, write_tensors

CONFIG = {"data": "sphere2", "steps": 2, "lr": 1e-3}
ENVIRONMENT = {"device": "cpu"}


def a_run(path: Path) -> RunFolder:
    return RunFolder.create(path, CONFIG, ENVIRONMENT)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


# ---------------------------------------------------------------------------------------------------------
# Files


def test_tensors_of_every_kind_come_back_equal_bit_for_bit(tmp_path: Path) -> None:
    stack = torch.randn(3, 4)
    tensors = {
        "float32": stack,
        "float64": torch.randn(2, 5, dtype=torch.float64),
        "view of the stack": stack[1],
        "transposed": stack.t(),
        "requires gradient": torch.nn.Parameter(torch.randn(2)),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "bool": torch.tensor([True, False]),
        "bfloat16": torch.randn(3).bfloat16(),
        "random state": torch.get_rng_state(),
        "not finite": torch.tensor([float("nan"), float("-inf"), -0.0]),
    }
    meta = {"iteration": 50, "best": float("inf"), "precision": [0.1, 1 / 3], "nested": {"none": None}}
    write_tensors(tmp_path / "file", tensors, meta)
    read = read_tensors(tmp_path / "file")
    assert read.meta == meta
    assert read.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read.tensors[name].dtype == tensor.dtype
        assert torch.equal(read.tensors[name].nan_to_num(0.5), tensor.detach().nan_to_num(0.5)), name
    read.tensors["float32"].zero_()  # and may be written to


def test_the_same_tensors_give_the_same_bytes_whatever_their_order(tmp_path: Path) -> None:
    tensors = {name: torch.full((3,), float(ord(name))) for name in "abcdefgh"}
    write_tensors(tmp_path / "one", tensors, {"a": 1, "b": 2})
    write_tensors(tmp_path / "two", dict(reversed(tensors.items())), {"a": 1, "b": 2})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_truncated_tensor_file_is_damaged_at_any_length(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_tensors(path, {"weight": torch.randn(5, 5)}, {"iteration": 1})
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match=r"checkpoint\.safetensors is damaged"):
            read_tensors(path)


def test_no_corrupted_byte_of_a_tensor_file_is_read_as_something_else(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_tensors(path, {"weight": torch.randn(3, 2), "bias": torch.randn(4)}, {"iteration": 1})
    whole, intact = path.read_bytes(), read_tensors(path)
    for position in range(len(whole)):
        corrupted = bytearray(whole)
        corrupted[position] ^= 1 << (position % 8)
        path.write_bytes(corrupted)
        with suppress(RunError):  # the header's padding may change, and nothing is lost
            read = read_tensors(path)
            assert read.meta == intact.meta
            assert all(torch.equal(read.tensors[name], intact.tensors[name]) for name in intact.tensors)


def test_a_safetensors_file_of_someone_else_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(RunError, match="is damaged"):
        read_tensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize("read", [read_json, read_tensors])
def test_a_missing_file_is_named(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(RunError, match=r"config\.json is missing"):
        read(tmp_path / "config.json")


@pytest.mark.parametrize("contents", [b"", b'{"data": "sph', b"\xff\xfe\x00", b"config"])
def test_damaged_json_is_named(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "config.json").write_bytes(contents)
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize("value", [{"lr": float("nan")}, {"path": Path("x")}])
def test_what_json_cannot_hold_is_refused_and_leaves_the_old_file(tmp_path: Path, value: Any) -> None:
    records.write_json(tmp_path / "config.json", CONFIG)
    with pytest.raises(UsageError, match="not plain JSON"):
        records.write_json(tmp_path / "config.json", value)
    assert read_json(tmp_path / "config.json") == CONFIG


def test_a_file_written_has_the_permissions_that_any_new_file_has(tmp_path: Path) -> None:
    records.write_atomically(tmp_path / "atomic", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


# ---------------------------------------------------------------------------------------------------------
# Run folders


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
    for name in (".gitkeep", ".config.json.0a1b2c3d.tmp"):
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


# ---------------------------------------------------------------------------------------------------------
# Metrics and checkpoints


def test_rows_are_read_back_with_null_for_what_is_not_finite(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        run.log({"iteration": 1, "loss": [0.5, float("nan")], "step": torch.tensor(0.5)})
        run.log({"iteration": np.int64(2), "loss": np.array([1.5, np.inf]), "nested": {"x": -np.inf}})
    assert read_metrics(tmp_path) == [
        {"iteration": 1, "loss": [0.5, None], "step": 0.5},
        {"iteration": 2, "loss": [1.5, None], "nested": {"x": None}},
    ]


def test_a_row_can_be_read_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        run.log({"iteration": 1})
        assert read_metrics(tmp_path) == [{"iteration": 1}]


def test_a_last_row_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        run.log({"iteration": 1})
        run.log({"iteration": 2})
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    for length in range(len(whole) // 2, len(whole)):
        (tmp_path / "metrics.jsonl").write_bytes(whole[:length])
        assert read_metrics(tmp_path) == [{"iteration": 1}]


@pytest.mark.parametrize("line", ['{"iterat', "17"])
def test_a_damaged_row_in_the_middle_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    a_run(tmp_path).close()
    (tmp_path / "metrics.jsonl").write_text(f'{{"iteration": 1}}\n{line}\n{{"iteration": 3}}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged.*line 2"):
        read_metrics(tmp_path)


def test_rows_logged_after_the_checkpoint_are_cut_when_it_is_loaded(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        run.log({"iteration": 1})
        run.save_checkpoint({"weight": torch.ones(2)}, {"iteration": 1})
        run.log({"iteration": 2})
    with RunFolder.reopen(tmp_path) as run:
        assert run.config == CONFIG
        checkpoint = run.load_checkpoint()
        assert checkpoint is not None
        assert checkpoint.meta["iteration"] == 1
        assert torch.equal(checkpoint.tensors["weight"], torch.ones(2))
        run.log({"iteration": 2, "again": True})
    assert read_metrics(tmp_path) == [{"iteration": 1}, {"iteration": 2, "again": True}]


def test_without_a_checkpoint_all_rows_are_cut(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        run.log({"iteration": 1})
    with RunFolder.reopen(tmp_path) as run:
        assert run.load_checkpoint() is None
    assert read_metrics(tmp_path) == []


def test_metrics_shorter_than_their_checkpoint_says_are_damaged(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        run.log({"iteration": 1})
        run.save_checkpoint({}, {})
    (tmp_path / "metrics.jsonl").write_text("")
    with RunFolder.reopen(tmp_path) as run, pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
        run.load_checkpoint()


def test_a_checkpoint_that_does_not_know_its_metrics_is_damaged(tmp_path: Path) -> None:
    with a_run(tmp_path) as run:
        write_tensors(tmp_path / "checkpoint.safetensors", {}, {})
        with pytest.raises(RunError, match=r"checkpoint\.safetensors is damaged"):
            run.load_checkpoint()


# ---------------------------------------------------------------------------------------------------------
# Other processes, and their death

WRITE_WITHOUT_END = """
import itertools, sys, torch
from pathlib import Path
from windermere.records import RunFolder
run = RunFolder.create(Path(sys.argv[1]), {}, {})
for iteration in itertools.count(1):
    run.log({"iteration": iteration})
    run.save_checkpoint({"weight": torch.full((100_000,), float(iteration))}, {"iteration": iteration})
    print(iteration, flush=True)
"""

KILL_WRITERS = """
import itertools, os, random, sys
from pathlib import Path
from windermere.records import write_atomically

path, chance = Path(sys.argv[1]), random.Random(0)
os.fsync = lambda descriptor: None  # so that the time goes into writing, and the kills fall there

def write_without_end(written):
    for count in itertools.count():
        write_atomically(path, bytes([count % 256]) * 4_000_000)
        os.write(written, b".")

for attempt in range(20):
    read, written = os.pipe()
    writer = os.fork()
    if writer == 0:
        write_without_end(written)
    os.read(read, 1)
    for _ in range(chance.randrange(200_000)):  # a moment later, anywhere in the next writes
        pass
    os.kill(writer, 9)
    os.waitpid(writer, 0)
    data = path.read_bytes()
    print(len(data), data.count(data[:1]))
"""

HOLD_THE_LOCK = """
import sys
from pathlib import Path
from windermere.records import RunFolder
run = RunFolder.create(Path(sys.argv[1]), {}, {})
print("locked", flush=True)
sys.stdin.read()
"""

DIE_WHILE_WRITING = """
import os, signal, sys, torch
from pathlib import Path
from windermere.records import RunFolder
run = RunFolder.create(Path(sys.argv[1]), {}, {})
run.save_checkpoint({}, {"version": "old"})
real = getattr(os, sys.argv[2])
def die(first, *rest):
    if sys.argv[2] != "fsync" or ".tmp" in os.readlink(f"/proc/self/fd/{first}"):
        os.kill(os.getpid(), 9)
    return real(first, *rest)
setattr(os, sys.argv[2], die)
run.save_checkpoint({}, {"version": "new"})
"""


@contextmanager
def child(script: str, *arguments: object) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """A process that runs `script`, and its output; killed at the latest when the body is left."""
    with python("-c", script, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, process.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    with child(KILL_WRITERS, tmp_path / "file") as (process, output):
        assert output.read().splitlines() == ["4000000 4000000"] * 20
        assert process.wait() == 0


def test_a_run_killed_at_a_random_moment_resumes_from_a_whole_checkpoint(tmp_path: Path) -> None:
    chance = random.Random(0)
    for attempt in range(4):
        path = tmp_path / str(attempt)
        written = chance.randint(1, 30)
        with child(WRITE_WITHOUT_END, path) as (process, output):
            for _ in range(written):
                assert output.readline()
            for _ in range(chance.randrange(100_000)):  # a moment later, anywhere in the next write
                pass
            process.kill()
        assert process.returncode == -signal.SIGKILL
        with RunFolder.reopen(path) as run:
            checkpoint = run.load_checkpoint()
            assert checkpoint is not None
            reached = checkpoint.meta["iteration"]
            assert reached >= written
            assert torch.equal(checkpoint.tensors["weight"], torch.full((100_000,), float(reached)))
        assert [row["iteration"] for row in read_metrics(path)] == list(range(1, reached + 1))
        assert not [name for name in names(path) if name.endswith(".tmp")]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.skipif(sys.platform != "linux", reason="looks up file names in /proc")
def test_a_kill_inside_the_write_leaves_the_old_file_and_a_partial_one_that_reopening_removes(
    tmp_path: Path, call: str
) -> None:
    path = tmp_path / "run"
    with child(DIE_WHILE_WRITING, path, call) as (process, output):
        assert output.read() == ""
        assert process.wait() == -signal.SIGKILL
    assert [name for name in names(path) if name.startswith(".checkpoint.safetensors.")]
    assert read_tensors(path / "checkpoint.safetensors").meta["version"] == "old"
    RunFolder.reopen(path).close()
    assert names(path) == {
        "config.json", "environment.json", "metrics.jsonl", "checkpoint.safetensors", "lock"
    }  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks on Windows")
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with child(HOLD_THE_LOCK, path) as (process, output):
        assert output.readline() == "locked\n"
        with pytest.raises(RunError, match=f"is in use by process {process.pid}"):
            RunFolder.reopen(path)
        with pytest.raises(RunError, match="already holds a run"):
            a_run(path)
        process.kill()
        process.wait()
        RunFolder.reopen(path).close()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks on Windows")
def test_a_second_opening_in_one_process_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    with a_run(tmp_path), pytest.raises(RunError, match=f"is in use by process {os.getpid()}"):
        RunFolder.reopen(tmp_path)
    RunFolder.reopen(tmp_path).close()


# ---------------------------------------------------------------------------------------------------------
# Disks that refuse


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a tmpfs is not permitted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


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


def a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def a_socket(path: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/socket")  # whose path may not be long
        os.rename(f"{short}/socket", path)


def a_link_to_a_file(path: Path) -> None:
    path.with_name("target").write_text("mine")
    path.symlink_to(path.with_name("target"))


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


KINDS = [
    pytest.param(a_device, "a device", id="device"),
    pytest.param(lambda path: os.mkfifo(path), "a pipe", id="pipe"),
    pytest.param(a_socket, "a socket", id="socket"),
    pytest.param(a_link_to_a_file, "a link", id="link"),
    pytest.param(a_link_to_nothing, "a link", id="link to nothing"),
    pytest.param(a_link_to_itself, "a link", id="link to itself"),
]


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
