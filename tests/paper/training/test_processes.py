"""Real training processes, killed, interrupted and terminated."""

import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import by_signals
from windermere.errors import RunError
from windermere.paper.data import load
from windermere.paper.training import RunConfig, StopSign, TrainingOutcome, open_run, resumed_config, train

from .small import assert_same_bits, checkpoint, rows, windermere_process

pytestmark = by_signals
SMALL = ("--data", "sphere2", "--solver", "euler", "--steps", 2, "--batch-size", 32, "--seeds", "3,1")


def trained_here(
    path: Path, config: RunConfig, *, resume: bool = False, time_limit: float | None = None
) -> TrainingOutcome:
    """In this process, without the command line."""
    data = load("sphere2")
    with open_run(path, config, resume=resume) as run:
        return train(config, data.train, data.test, run, sign=StopSign(time_limit))


def test_a_process_killed_at_random_moments_and_resumed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """Killed with SIGKILL: while it starts, between checkpoints, inside of writes, wherever it happens to be. There are
    more iterations than it can be through with before, so in the end it is interrupted."""
    flags = (*SMALL, "--iterations", 1_000_000, "--log-every", 3, "--evaluate-every", 30, "--checkpoint-every", 7)
    pieces, whole, chance = tmp_path / "pieces", tmp_path / "whole", random.Random(1)
    for lines in (0, 1, 1):
        begun = (pieces / "config.json").exists()
        with windermere_process("train", "--out", pieces, *(("--resume",) if begun else flags)) as (process, errors):
            for _ in range(lines):
                assert errors.readline()
            for _ in range(chance.randrange(3_000_000)):  # a moment later
                pass
            process.kill()
            assert process.wait() == -signal.SIGKILL
    reached = 0
    while reached <= 3:  # each gets on by an iteration or more, and the first row that is compared is that of the third
        with windermere_process("train", "--out", pieces, "--resume") as (process, errors):
            assert errors.readline()
            process.send_signal(signal.SIGINT)
            told = errors.read()
            assert process.wait() == 130, told
        reached = checkpoint(pieces).meta["iteration"]
    trained_here(whole, replace(resumed_config(pieces, {}), iterations=reached))
    assert_same_bits(checkpoint(pieces).tensors, checkpoint(whole).tensors)
    logged = [[row for row in rows(path) if row["iteration"] < reached] for path in (pieces, whole)]
    assert logged[0] == logged[1] != []


@pytest.mark.parametrize(
    ("code", "reason", "status"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_a_signal_stops_a_process_in_good_order_and_it_can_be_resumed(
    tmp_path: Path, code: signal.Signals, reason: str, status: int
) -> None:
    run, flags = tmp_path / "a run", ("--iterations", 1_000_000, "--log-every", 1, "--evaluate-every", 1_000_000)
    with windermere_process("train", *SMALL, *flags, "--out", run) as (process, errors):
        assert "sphere2  1/1000000" in errors.readline()
        with pytest.raises(RunError, match=f"is in use by process {process.pid}"):
            resumed_config(run, {})
        process.send_signal(code)
        told = errors.read()
        assert process.wait() == status
    reached = checkpoint(run).meta["iteration"]
    sentence = f"stopped ({reason}) after iteration {reached} of 1000000; "
    assert told.splitlines()[-1] == f"{sentence}go on with: windermere train --out '{run}' --resume"
    assert "Traceback" not in told
    config = resumed_config(run, {})
    assert trained_here(run, config, resume=True, time_limit=0.0).iteration == reached + 1
    trained_here(tmp_path / "whole", replace(config, iterations=reached + 1))
    assert_same_bits(checkpoint(run).tensors, checkpoint(tmp_path / "whole").tensors)
