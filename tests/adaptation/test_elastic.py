"""Several processes under PyTorch's elastic agent, over gloo: one decision for all ranks, and after a rank was killed
the decisions that there would have been without it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adaptation.kit import INSTALLED
from tests.adaptation.test_distributed import meets
from tests.processes import ROOT, by_signals, surroundings

HERE = Path(__file__).parent
EXAMPLE = ROOT / "examples" / "ddp_adaptation.py"
pytestmark = [by_signals, meets]
LINE = re.compile(r" *(\d+)  rank (\d)  (.*)")


def torchrun(ranks: int, *program: object, dies: tuple[int, int] | None = None) -> list[tuple[int, int, str]]:
    """What all ranks have told, by iteration and rank. With `dies`, that rank is killed after so many updates."""
    agent = ("torch.distributed.run", "--standalone", "--nproc-per-node", ranks, "--max-restarts", 1)
    rank, after = dies or (-1, 0)
    command = [sys.executable, "-m", *agent, HERE / "dying.py", rank, after, *program]
    # PyTorch 2.13's agent keeps its store for the next attempt, whose ranks may look for those of the one before.
    here = surroundings(GLOO_SOCKET_IFNAME="lo", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    here["PYTHONPATH"] = f"{here['PYTHONPATH']}:{ROOT}"
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, env=here)
    assert done.returncode == 0, done.stderr
    found = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    return [(int(line[1]), int(line[2]), line[3]) for line in found if line]


def assert_all_ranks_say_the_same(told: list[tuple[int, int, str]], ranks: int) -> dict[int, str]:
    """What was said of each iteration, however often it was reached."""
    said = {iteration: {words for i, _, words in told if i == iteration} for iteration, _, _ in told}
    assert {iteration: words for iteration, words in said.items() if len(words) > 1} == {}
    assert all({rank for i, rank, _ in told if i == iteration} == set(range(ranks)) for iteration in said)
    return {iteration: words.pop() for iteration, words in said.items()}


def test_a_rank_of_a_loop_is_killed_and_both_go_on_from_the_saved_decision(tmp_path: Path) -> None:
    """Reviews are at 6, 12, 18 and 24, and so are checkpoints: after the kill at 16, 13 comes again."""
    told = torchrun(2, EXAMPLE, "--out", tmp_path, "--iterations", 24, "--every", 6, dies=(1, 15))
    said = assert_all_ranks_say_the_same(told, 2)
    assert list(said) == [6, 12, 18, 24]
    assert len(told) == 8  # no review was carried out again
    assert len(set(said.values())) > 1


@pytest.mark.thorough
def test_four_ranks_of_a_loop_end_as_if_none_had_been_killed(tmp_path: Path) -> None:
    def run(name: str, dies: tuple[int, int] | None) -> dict[int, str]:
        flags = ("--out", tmp_path / name, "--iterations", 100, "--every", 10)
        return assert_all_ranks_say_the_same(torchrun(4, EXAMPLE, *flags, dies=dies), 4)

    whole = run("whole", None)
    assert list(whole) == list(range(10, 101, 10))
    assert run("first", (0, 37)) == whole
    assert run("last", (3, 69)) == whole


@pytest.mark.thorough
@pytest.mark.skipif(not INSTALLED, reason="needs Lightning")
def test_four_ranks_of_lightning_end_as_if_none_had_been_killed(tmp_path: Path) -> None:
    """Reviews are at every fourth batch, checkpoints at every fifth: batches 11 to 13 come again, with a review."""

    def run(name: str, dies: tuple[int, int] | None) -> dict[int, str]:
        return assert_all_ranks_say_the_same(torchrun(4, HERE / "lightning_ranks.py", tmp_path / name, dies=dies), 4)

    whole = run("whole", None)
    assert len(set(whole.values())) > 2
    assert run("killed", (2, 13)) == whole
