"""Run folders under other processes, and their death by SIGKILL."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import torch

from tests.processes import python
from tests.records.small import a_run, names
from windermere.errors import RunError
from windermere.records import RunFolder, read_metrics, read_tensors

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
