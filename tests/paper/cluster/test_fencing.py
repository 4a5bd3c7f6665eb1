"""A process that was only cut off, a real one, writes over nothing of its successor."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.cli.commands import files
from tests.paper.cluster.pools import some_work
from tests.paper.training.small import assert_same_run
from tests.processes import ROOT, by_signals, python
from windermere.paper.cluster.work import carry_out
from windermere.paper.training import StopSign, hold_run, open_run, train
from windermere.records import hand_out, reached, read_tensors, take_over


@contextmanager
def attempt_process(run: Path, label: str) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """Writes a line for each iteration, and is some twenty ahead of its reader at most."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with python("-u", "-m", "tests.paper.cluster.pools", run, label, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        yield process, process.stdout


@by_signals
def test_a_process_that_was_stopped_and_goes_on_after_its_successor_writes_nowhere_and_says_why(tmp_path: Path) -> None:
    run, work = tmp_path / "run", some_work(tmp_path / "run")
    with hold_run(run, work.configs[0]) as held:
        hand_out(held, "0001-cut-off")
        with attempt_process(run, "0001-cut-off") as (process, lines):
            while int(lines.readline()) < 20:
                pass
            process.send_signal(signal.SIGSTOP)
            checkpoints = sorted((run / ".attempts/0001-cut-off").glob("checkpoint-*"))
            assert {read_tensors(path).meta["attempt"] for path in checkpoints} == {"0001-cut-off"}
            take_over(held)
            begun = reached(run)
            assert 16 <= begun < 60
            hand_out(held, "0002-successor")
            carry_out(work, "0002-successor", work.sets, sign=StopSign(), report=lambda *_: None)
            take_over(held)
            before = files(run)
            process.send_signal(signal.SIGCONT)
            _, told = process.communicate()
            assert process.returncode == 1
        assert "StorageError" in told
        assert "its folder does not exist" in told
        assert files(run) == before
    assert read_tensors(run / "checkpoint.safetensors").meta["attempt"] == "0002-successor"
    with open_run(tmp_path / "whole", work.configs[0]) as whole:
        train(work.configs[0], *work.sets, whole)
    assert_same_run(run, tmp_path / "whole")
