"""Real training processes, killed, interrupted and terminated."""

import random
import signal
from pathlib import Path

import pytest

from windermere.errors import RunError
from windermere.records import read_tensors
from windermere.training import RunConfig, open_run, resumed_config

from .small import assert_same_bits, assert_same_run, checkpoint, windermere_process

SMALL = ("--data", "sphere2", "--solver", "euler", "--steps", 2, "--batch-size", 32, "--seeds", "3,1")


def finish(*arguments: object) -> str:
    """Runs to the end, and returns what it wrote to standard error."""
    with windermere_process(*arguments) as (process, errors):
        told = errors.read()
        assert process.wait() == 0, told
    return told


def test_a_process_killed_at_random_moments_and_resumed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """Killed with SIGKILL: while it starts, between checkpoints, inside of writes, wherever it happens to be."""
    flags = (*SMALL, "--iterations", 400, "--log-every", 3, "--evaluate-every", 30, "--checkpoint-every", 7)
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    finish("train", *flags, "--out", whole)
    chance, killed = random.Random(1), 0
    for lines in (0, 1, 3, 2, 4):
        begun = (pieces / "config.json").exists()
        with windermere_process("train", "--out", pieces, *(("--resume",) if begun else flags)) as (process, errors):
            for _ in range(lines):
                errors.readline()
            for _ in range(chance.randrange(300_000)):  # a moment later
                pass
            process.kill()
            killed += process.wait() == -signal.SIGKILL
    assert killed >= 3  # the last ones may have been through before
    finish("train", "--out", pieces, "--resume")
    assert_same_run(pieces, whole)


@pytest.mark.parametrize(
    ("code", "reason", "status"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_a_signal_stops_a_process_in_good_order_and_it_can_be_resumed(
    tmp_path: Path, code: signal.Signals, reason: str, status: int
) -> None:
    run, whole = tmp_path / "a run", tmp_path / "whole"
    flags = (*SMALL, "--log-every", 1, "--evaluate-every", 1_000_000)
    with windermere_process("train", *flags, "--iterations", 1_000_000, "--out", run) as (process, errors):
        assert "sphere2 1/1000000" in errors.readline()
        with pytest.raises(RunError, match=f"is in use by process {process.pid}"):
            resumed_config(run, {})
        process.send_signal(code)
        told = errors.read()
        assert process.wait() == status
    reached = checkpoint(run).meta["iteration"]
    sentence = f"stopped ({reason}) after iteration {reached} of 1000000; "
    assert told.splitlines()[-1] == f"{sentence}go on with: windermere train --out '{run}' --resume"
    assert "Traceback" not in told
    told = finish("train", "--out", run, "--resume", "--time-limit", "0.001s")
    assert "stopped (time limit) after iteration" in told
    further = checkpoint(run)
    assert further.meta["iteration"] > reached
    finish("train", *flags, "--iterations", further.meta["iteration"], "--out", whole)
    assert_same_bits(further.tensors, checkpoint(whole).tensors)


def test_a_process_on_a_kept_run_reads_what_it_was_started_with(tmp_path: Path) -> None:
    finish("train", *SMALL, "--iterations", 3, "--lr", 0.01, "--out", tmp_path)
    with open_run(tmp_path, resumed_config(tmp_path, {}), resume=True) as run:
        config = RunConfig.from_dict(run.config)
    assert (config.seeds, config.lr, config.iterations, config.batch_size) == ((3, 1), 0.01, 3, 32)
    assert read_tensors(tmp_path / "model.safetensors").meta["seeds"] == [3, 1]
