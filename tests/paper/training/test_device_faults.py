"""A GPU that is lost, or full, in the middle of a training: one sentence, the last checkpoint as it was, and a run that
goes on from there ends bit for bit as the one that nothing happened to."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.paper.training.faults import FULL, LOST, Replayed, captured_as_written, failing
from tests.processes import surroundings
from windermere import _torch_private
from windermere.errors import DeviceError, is_device_failure, is_out_of_memory
from windermere.paper.training import RunConfig, iteration, trainer
from windermere.paper.training.adapting import Adapting
from windermere.paper.training.captured import CapturedSteps

from .small import a_config, adapted_config, assert_same_run, checkpoint, trained

FAULTS = [*LOST, *FULL]
SHORT: dict[str, Any] = {"seeds": (2, 3), "iterations": 20, "checkpoint_every": 10}


@pytest.fixture(autouse=True)
def _captures_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CapturedSteps, "_capture", captured_as_written)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("metrics.jsonl", "lock")}


def assert_kept_and_gone_on_with(
    folder: Path, config: RunConfig, fault: BaseException, places: list[tuple[Any, str, int, bool]], capture: bool
) -> None:
    """Before each fault the run is brought to iteration 10, a checkpoint; afterwards it is the same run."""
    trained(folder / "whole", config, capture=capture)
    for n, (owner, name, call, after) in enumerate(places):
        run = folder / str(n)
        trained(run, config, stop_at=10, capture=capture)
        before = files(run)
        with (
            failing(owner, name, call, fault, after=after),
            pytest.raises(
                DeviceError, match=r"the (device|memory) .*; the last checkpoint is kept as it was in "
            ) as told,
        ):
            trained(run, config, resume=True, capture=capture)
        assert "\n" not in str(told.value)
        assert files(run) == before, name
        trained(run, config, resume=True, capture=capture)
        assert_same_run(run, folder / "whole")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{type(fault).__name__}: {str(fault)[:30]}")
@pytest.mark.parametrize("capture", [False, True], ids=["step by step", "captured"])
def test_a_fault_in_a_step_leaves_the_last_checkpoint_to_go_on_from(
    tmp_path: Path, fault: BaseException, capture: bool
) -> None:
    """In a solve's launch, in the launch of the optimizer's kernel or right after it, in an evaluation, where a
    checkpoint is copied to the host, and inside of a replay."""
    fused: Any = (torch, "_fused_adam_") if capture else (_torch_private, "_fused_adam")
    stepped: Any = (CapturedSteps, "step") if capture else (iteration, "classify_and_differentiate")
    replayed = [(Replayed, "replay", 3, False), (Replayed, "replay", 3, True)] if capture else []
    places = [
        (*stepped, 6, False),
        (*fused, 5, False),
        (*fused, 5, True),
        (trainer, "evaluate", 1, False),
        (trainer, "pack", 1, False),
        *replayed,
    ]
    assert_kept_and_gone_on_with(tmp_path, a_config(**SHORT), fault, places, capture)


@pytest.mark.parametrize("fault", FAULTS[::3], ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("capture", [False, True], ids=["step by step", "captured"])
def test_a_fault_in_a_review_decides_nothing(tmp_path: Path, fault: BaseException, capture: bool) -> None:
    config = adapted_config("steady", rule={"every": 4, "target": 1e-3}, **SHORT)
    places = [(Adapting, "review", 1, False), (Adapting, "review", 1, True), (Adapting, "decisions", 1, True)]
    assert_kept_and_gone_on_with(tmp_path, config, fault, places, capture)


def test_a_capture_that_breaks_off_inside_of_an_update_trains_as_if_it_had_not_been_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer had counted the step already, and would have corrected its moments for one that was not there."""

    def capture(steps: CapturedSteps) -> None:
        with failing(torch, "_fused_adam_", 2, FULL[0]):
            captured_as_written(steps)

    config = a_config(**SHORT)
    monkeypatch.setattr(CapturedSteps, "_capture", lambda steps: None)
    trained(tmp_path / "plain", config, capture=True)
    trained(tmp_path / "begun", config, stop_at=10, capture=True)
    monkeypatch.setattr(CapturedSteps, "_capture", capture)
    for name in ("new", "begun"):  # without and with an optimizer that has counted before
        with pytest.warns(UserWarning, match="taken one by one: CUDA out of memory"):
            trained(tmp_path / name, config, resume=name == "begun", capture=True)
        assert_same_run(tmp_path / name, tmp_path / "plain")


def test_a_device_that_is_lost_in_a_capture_is_not_taken_for_one_that_cannot_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(steps: CapturedSteps) -> None:
        raise LOST[0]

    monkeypatch.setattr(CapturedSteps, "_capture", capture)
    with pytest.raises(DeviceError, match=r"'cpu' failed after iteration 0 .*; there is no checkpoint yet"):
        trained(tmp_path / "run", a_config(**SHORT), capture=True)


def test_what_does_not_fit_from_the_start_is_told_as_ever_and_leaves_no_run(tmp_path: Path) -> None:
    with failing(trainer.Training, "check_finite", 1, FULL[0]), pytest.raises(torch.cuda.OutOfMemoryError):
        trained(tmp_path / "run", a_config(**SHORT))
    assert not (tmp_path / "run").exists()


def test_a_full_memory_is_no_lost_device_and_a_bug_is_neither() -> None:
    assert [is_device_failure(error) for error in FAULTS] == [True] * 3 + [False] * 3
    assert [is_out_of_memory(error) for error in FAULTS] == [False] * 3 + [True] * 3
    assert not is_device_failure(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


# ---------------------------------------------------------------------------------------------------------
# On a GPU

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


DIES = """
import sys, torch
from windermere import cli
from windermere.paper.training.captured import CapturedSteps

real, done, how = CapturedSteps.run, 0, sys.argv.pop(1)

def run(self, iteration, most):
    if iteration >= 40 and how == "lost":
        torch.zeros(1, device="cuda")[torch.tensor([7], device="cuda")]  # an index that is not there: a kernel asserts
    if iteration >= 40 and how == "full":
        torch.empty(2 * torch.cuda.mem_get_info()[1], dtype=torch.uint8, device="cuda")
    if iteration >= 40 and how == "killed":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, iteration, most)

CapturedSteps.run = run
sys.exit(cli.main())
"""
ON_CUDA = ("--data", "sphere2", "--solver", "euler", "--steps", 4, "--seeds", 2, "--iterations", 80, "--device", "cuda")
EVERY = ("--log-every", 10, "--evaluate-every", 40, "--checkpoint-every", 20)


@on_a_gpu
@pytest.mark.parametrize(("how", "words"), [("lost", "the device"), ("full", "the memory of"), ("killed", None)])
def test_a_captured_training_on_a_gpu_that_fails_goes_on_from_its_checkpoint(
    tmp_path: Path, how: str, words: str | None
) -> None:
    """Each in a process of its own, since nothing works on a lost device. Kernels that add in any order may round."""

    def windermere(*arguments: object, dies: str = "never") -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", DIES, dies, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings())

    assert windermere("train", *ON_CUDA, *EVERY, "--out", tmp_path / "whole").returncode == 0
    failed = windermere("train", *ON_CUDA, *EVERY, "--out", tmp_path / "run", dies=how)
    assert failed.returncode == (-9 if words is None else 1), failed.stderr
    assert "Traceback" not in failed.stderr
    if words is not None:
        assert f"error: {words}" in failed.stderr.splitlines()[-1]
        assert "go on from there with --resume" in failed.stderr.splitlines()[-1]
    assert checkpoint(tmp_path / "run").meta["iteration"] == 40
    assert windermere("train", "--resume", "--out", tmp_path / "run").returncode == 0
    for name, tensor in checkpoint(tmp_path / "whole").tensors.items():
        torch.testing.assert_close(checkpoint(tmp_path / "run").tensors[name], tensor, rtol=1e-3, atol=1e-4)
