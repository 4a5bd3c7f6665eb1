"""Metrics and checkpoints go together, also after a kill."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.records.small import CONFIG, a_run
from windermere.errors import RunError
from windermere.records import RunFolder, read_metrics, write_tensors


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
