"""`windermere train`: what it answers and leaves behind, and how it goes on."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import EULER, QUICK, Command, assert_one_sentence, files
from tests.paper.training.small import (
    assert_same_bits,
    assert_same_run,
    checkpoint,
    model,
)
from windermere.paper.training import RunConfig, paper_settings
from windermere.solvers import Adaptive, FixedStep


def test_a_training_writes_its_run_and_prints_the_accuracy_of_every_seed(run: Command, tmp_path: Path) -> None:
    answer = run("train", *QUICK, "--seeds", 2, "--out", "runs/small")
    assert answer.code == 0
    assert "results are in runs/small" in answer.out
    assert len(re.findall(r"[01]\.\d{4}", answer.out)) == 2
    begun = [line.split("  ")[:2] for line in answer.err.splitlines()]
    assert begun == [["sphere2", "2/6"], ["sphere2", "4/6"], ["sphere2", "6/6"]]
    assert "\x1b" not in answer.out + answer.err
    assert model(tmp_path / "runs" / "small").meta["seeds"] == [0, 1]


def test_a_training_tells_a_script_in_json(run: Command) -> None:
    answer = run("train", *QUICK, "--seeds", "7,3", "--json", "--out", "run")
    told = json.loads(answer.out)
    assert (told["run"], told["seeds"], told["finished"], told["iteration"]) == ("run", [7, 3], True, 6)
    assert len(told["test"]["accuracy"]) == 2
    assert told["test"]["samples"] == 1000


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("1", [0]), ("5,", [5]), ("4,0,9", [4, 0, 9])])
def test_seeds_are_a_number_of_them_or_a_list(run: Command, tmp_path: Path, text: str, seeds: list[int]) -> None:
    assert run("train", *QUICK, "--iterations", 1, "--seeds", text, "--out", "run").code == 0
    assert model(tmp_path / "run").meta["seeds"] == seeds


@pytest.mark.parametrize(
    ("flags", "solver"),
    [
        (("--solver", "rk4", "--steps", 3), FixedStep.of("rk4", steps=3)),
        (("--solver", "midpoint", "--step", 0.3), FixedStep("midpoint", step=0.3)),
        (("--solver", "dopri54", "--tolerance", 0.01), Adaptive("dopri54", tolerance=0.01)),
        (
            ("--solver", "fehlberg21", "--tolerance", 0.1, "--control", "sample"),
            Adaptive("fehlberg21", tolerance=0.1, control="sample"),
        ),
    ],
    ids=str,
)
def test_every_flag_ends_up_in_the_runs_config(
    run: Command, tmp_path: Path, flags: tuple[object, ...], solver: FixedStep | Adaptive
) -> None:
    others = ("--data", "sphere3", "--seeds", "2,5", "--iterations", 2, "--lr", 0.01, "--optimizer", "sgd",
              "--batch-size", 7, "--gradient", "checkpoint", "--device", "cpu", "--dtype", "float64", "--data-seed", 4,
              "--log-every", 3, "--evaluate-every", 4, "--checkpoint-every", 5)  # fmt: skip
    assert run("train", *flags, *others, "--out", "run").code == 0
    assert RunConfig.from_dict(json.loads((tmp_path / "run" / "config.json").read_text())) == RunConfig(
        data="sphere3", solver=solver, seeds=(2, 5), iterations=2, batch_size=7, optimizer="sgd", lr=0.01,
        gradient="checkpoint", device="cpu", dtype="float64", data_seed=4, log_every=3, evaluate_every=4,
        checkpoint_every=5,
    )  # fmt: skip


def test_what_is_not_said_is_the_papers(run: Command, tmp_path: Path) -> None:
    assert run("train", "--data", "sphere2", *EULER, "--time-limit", "0.000001s", "--out", "run").code == 0
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert paper_settings("sphere2", FixedStep.of("euler", steps=2)).items() <= stored.items()
    assert (stored["seeds"], stored["gradient"], stored["dtype"], stored["device"]) == (
        [0],
        "backprop",
        "float32",
        "cpu",
    )


@pytest.mark.parametrize("limit", ["0", "0.000001", "0.0001s", "0.000001m", "0.00000001h", "0 s"])
def test_a_time_limit_stops_in_good_order_and_the_run_can_be_resumed(run: Command, tmp_path: Path, limit: str) -> None:
    answer = run("train", *QUICK, "--time-limit", limit, "--out", "pieces")
    assert answer.code == 0
    assert answer.err.splitlines()[-1] == (
        "stopped (time limit) after iteration 1 of 6; go on with: windermere train --out pieces --resume"
    )
    assert checkpoint(tmp_path / "pieces").meta["iteration"] == 1
    assert run("train", "--resume", "--out", "pieces").code == 0
    assert run("train", *QUICK, "--out", "whole").code == 0
    assert_same_run(tmp_path / "pieces", tmp_path / "whole")


def test_a_training_that_was_stopped_says_so_in_json_too(run: Command) -> None:
    answer = run("train", *QUICK, "--time-limit", 0, "--json", "--out", "run")
    told = json.loads(answer.out)
    assert (told["finished"], told["reason"], told["iteration"], told["test"]) == (False, "time limit", 1, None)


def test_a_run_is_resumed_with_the_same_flags_or_none_and_with_more_iterations(run: Command, tmp_path: Path) -> None:
    assert run("train", *QUICK, "--out", "run").code == 0
    before = files(tmp_path / "run")
    for flags in ((), QUICK):
        assert run("train", *flags, "--resume", "--out", "run").code == 0
        assert files(tmp_path / "run") == {**before, "lock": (tmp_path / "run" / "lock").read_bytes()}
    assert run("train", "--resume", "--iterations", 10, "--out", "run").code == 0
    assert run("train", *QUICK, "--iterations", 10, "--out", "whole").code == 0
    assert_same_bits(model(tmp_path / "run").tensors, model(tmp_path / "whole").tensors)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--lr", 0.5), r"--lr 0\.0001 \(not 0\.5\)"),
        (("--batch-size", 8), r"--batch-size 16 \(not 8\)"),
        (("--solver", "euler", "--steps", 4), r"--solver euler, h = 1/2 \(not euler, h = 1/4\)"),
        (("--data", "mnist"), r"--data sphere2 \(not mnist\)"),
        (("--seeds", "2"), r"--seeds 0, \(not 0,1\)"),
        (("--iterations", 5), r"--iterations 6 \(not 5\): resumed, it may have more iterations, but not fewer"),
    ],
    ids=str,
)
def test_a_flag_that_contradicts_the_run_is_named_and_the_run_is_left_as_it_was(
    run: Command, tmp_path: Path, flags: tuple[object, ...], words: str
) -> None:
    assert run("train", *QUICK, "--time-limit", 0, "--out", "run").code == 0
    before = files(tmp_path)
    assert_one_sentence(run("train", "--resume", "--out", "run", *flags), "run was started with .*", words)
    assert files(tmp_path) == before


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_that_diverges_is_one_sentence_and_keeps_the_last_good_state(
    run: Command, tmp_path: Path, optimizer: str
) -> None:
    answer = run("train", *QUICK, "--optimizer", optimizer, "--lr", 1e20, "--seeds", "4,", "--out", "run")
    assert_one_sentence(answer, "training stopped in iteration 2: for seed 4, .* not finite", "is kept in run")
    kept = checkpoint(tmp_path / "run")
    assert kept.meta["iteration"] == 1
    assert all(tensor.isfinite().all() for tensor in kept.tensors.values())


def test_resuming_a_finished_run_says_that_nothing_was_left_to_do(run: Command) -> None:
    words = "nothing was left to do: all 6 iterations had been trained before; for more of them, resume with a larger"
    assert words not in run("train", *QUICK, "--out", "run").err
    again = run("train", "--resume", "--out", "run")
    assert words in again.err
    assert "results are in run" in again.out
    assert json.loads(run("train", "--resume", "--out", "run", "--json").out)["idle"] is True
    assert words not in run("train", "--resume", "--iterations", 7, "--out", "run").err


def test_a_folder_with_odd_characters_is_named_as_it_is(run: Command) -> None:
    """Brackets are markup to rich, and colons may be emoji."""
    odd = "a [red]run[/] :smile:"
    answer = run("train", *QUICK, "--time-limit", 0, "--out", odd)
    assert answer.err.splitlines()[-1].endswith(f"go on with: windermere train --out '{odd}' --resume")
    assert f"results are in {odd}" in run("train", "--resume", "--out", odd).out
    assert_one_sentence(run("train", *QUICK, "--out", odd), re.escape(f"{odd} already holds a run"))
    assert odd in run("evaluate", odd).out
