"""The command line: what it answers, what it refuses and in which words, and what it leaves behind."""

import errno
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import windermere
from tests.paper.data.small import NOWHERE, cifar_contents, mnist_contents, write
from tests.paper.training.small import (
    a_config,
    assert_same_bits,
    assert_same_run,
    checkpoint,
    model,
    rows,
)
from tests.processes import surroundings
from tests.records.test_records import mount, tiny_disk  # noqa: F401
from windermere import cli
from windermere.paper import data, demo
from windermere.paper.data.catalogue import MNIST
from windermere.paper.training import RunConfig, StopSign, paper_settings
from windermere.solvers import Adaptive, FixedStep


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str


Command: TypeAlias = Callable[..., Answer]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Calls `windermere ...` in this process, through its entry point, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("WINDERMERE_DATA", str(tmp_path / "datasets"))

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["windermere", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return Answer(int(left.value.code or 0), captured.out, captured.err)

    return call


SPHERES: tuple[object, ...] = ("--data", "sphere2", "--batch-size", 16)
EULER: tuple[object, ...] = ("--solver", "euler", "--steps", 2)
SHORT: tuple[object, ...] = ("--iterations", 6, "--log-every", 2, "--checkpoint-every", 2)
QUICK = (*SPHERES, *EULER, *SHORT)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_one_sentence(answer: Answer, *words: str) -> None:
    """An error in one line, without a traceback, with these words (regular expressions) in it, and exit code 1."""
    assert answer.code == 1, answer
    (line,) = answer.err.splitlines()[-1:]
    assert answer.err.count("error: ") == 1
    assert line.startswith("error: ")
    assert "Traceback" not in answer.err
    assert answer.out == ""
    for word in words:
        assert re.search(word, line), line


# ---------------------------------------------------------------------------------------------------------
# The program


def test_an_answer_that_cannot_be_written_is_one_sentence(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert_one_sentence(
        run("data", "list", "--json"), r"the machine refused \(.*No space left on device\): make room on the disk"
    )


def test_the_version_is_the_packages(run: Command) -> None:
    assert run("--version") == Answer(0, f"windermere {windermere.__version__}\n", "")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), ["train", "evaluate", "demo", "data"]),
        (("train",), ["--out", "--data", "--solver", "--steps", "--step", "--tolerance", "--gradient", "--iterations",
                      "--lr", "--optimizer", "--batch-size", "--device", "--resume", "--seeds", "--time-limit",
                      "--json"]),
        (("evaluate",), ["run", "--solver", "--steps", "--step", "--tolerance", "--device", "--json"]),
        (("demo",), ["--out"]),
        (("data",), ["get", "list"]),
        (("data", "get"), ["name", "--from", "--json"]),
        (("data", "list"), ["--json"]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help(run: Command, command: tuple[str, ...], words: list[str], flag: str) -> None:
    answer = run(*command, flag)
    assert answer.code == 0
    for word in words:
        assert word in answer.out


def test_help_shows_no_value_for_flags_that_take_none(run: Command) -> None:
    lines = run("train", "--help").out.splitlines()
    assert not [line for line in lines if ("--resume" in line or "--json" in line) and "bool" in line.lower()]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--verison",),
        ("trian",),
        ("train", "--out", "run", "--stpes", "3"),
        ("train", *QUICK),
        ("train", "--out", "run", *QUICK, "--lr", "fast"),
        ("evaluate",),
        ("evaluate", "run", "--resume"),
        ("data", "get"),
        ("data", "list", "mnist"),
    ],
    ids=str,
)
def test_what_is_not_a_command_or_a_flag_is_told_with_exit_code_2(
    run: Command, tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert "Usage: " in answer.err
    assert "Traceback" not in answer.err
    assert files(tmp_path) == {}


def test_ctrl_c_outside_of_training_is_exit_code_130_without_a_traceback(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "load", interrupt)
    answer = run("train", *QUICK, "--out", "run")
    assert answer.code == 130
    assert "Traceback" not in answer.err


def python_m_windermere(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "windermere", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings(**environment))


def test_python_m_windermere_works_with_nothing_but_pythonpath(tmp_path: Path) -> None:
    """A copy that says another version, so that it cannot be the installed one that answers."""
    source = tmp_path / "src"
    shutil.copytree(
        Path(windermere.__file__).parent, source / "windermere", ignore=shutil.ignore_patterns("__pycache__")
    )
    init = source / "windermere" / "__init__.py"
    init.write_text(init.read_text().replace(windermere.__version__, "0.0.0.copy"))
    answer = python_m_windermere("--version", PYTHONPATH=str(source))
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "windermere 0.0.0.copy\n", "")


def test_a_process_that_fails_says_one_sentence_and_exits_with_1(tmp_path: Path) -> None:
    answer = python_m_windermere("train", "--data", "sphere2", *EULER, "--lr", "-1", "--out", tmp_path / "run")
    assert answer.returncode == 1
    assert answer.stderr == "error: the learning rate must be positive and finite, not -1.0\n"
    assert answer.stdout == ""
    assert files(tmp_path) == {}


# ---------------------------------------------------------------------------------------------------------
# What cannot be trained


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*SPHERES, "--solver", "euler", "--steps", 2, "--step", 0.5), "exactly one of .* but got --steps and --step"),
        ((*SPHERES, "--solver", "dopri54", "--step", 1, "--tolerance", 0.1), "but got --step and --tolerance"),
        ((*SPHERES, "--solver", "euler"), "exactly one of --steps, --step and --tolerance, but got none"),
        ((*SPHERES, "--steps", 2), "--steps needs a method: add --solver"),
        ((*SPHERES, "--step", 0.5), "--step needs a method"),
        ((*SPHERES, "--tolerance", 0.1), "--tolerance needs a method"),
        ((*SPHERES, "--control", "batch"), "--control needs a method"),
        ((*SPHERES, *EULER, "--control", "sample"), "--control .* goes with --tolerance only"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 0.1, "--control", "bacth"), "did you mean 'batch'"),
        ((*SPHERES, "--solver", "euler", "--tolerance", 0.1), "euler.*error"),
        ((*SPHERES, "--solver", "eulre", "--steps", 2), "there is no method 'eulre': did you mean 'euler'"),
        ((*SPHERES, "--solver", "euler", "--steps", 0), "a whole number of steps, at least 1, not 0"),
        ((*SPHERES, "--solver", "euler", "--step", -1), "the step must be positive and finite, not -1"),
        ((*SPHERES, "--solver", "euler", "--step", 0), "the step must be positive and finite, not 0"),
        ((*SPHERES, "--solver", "euler", "--step", "nan"), "the step must be positive and finite, not nan"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 0), "the tolerance must be positive and finite, not 0"),
        (("--data", "sphree2", *EULER), "there is no data set 'sphree2': did you mean 'sphere2'"),
        (("--data", "sphere0", *EULER), "there is no data set 'sphere0'"),
        (("--data", "sphere", *EULER), r"did you mean 'sphere2'\? known are .*sphere<d> \(of any dimension d\)"),
        (EULER, "a new run needs --data"),
        (SPHERES, "a new run needs --solver"),
        ((), "a new run needs --data"),
        ((*SPHERES, *EULER, "--optimizer", "adma"), "there is no optimizer 'adma': did you mean 'adam'"),
        ((*SPHERES, *EULER, "--gradient", "back"), "there is no gradient 'back': did you mean 'backprop'"),
        ((*SPHERES, *EULER, "--dtype", "double"), "there is no dtype 'double'"),
        ((*SPHERES, *EULER, "--arithmetic", "bf16"), "there is no arithmetic 'bf16': did you mean 'bfloat16'"),
        ((*SPHERES, *EULER, "--arithmetic", "tf32"), "tf32 is for images .*, and the data are 'sphere2': leave it out"),
        (("--data", "mnist", *EULER, "--arithmetic", "tf32", "--dtype", "float64"), "not of float64: leave one of the"),
        ((*SPHERES, *EULER, "--device", "banana"), "there is no device 'banana' here .*: use --device cpu"),
        ((*SPHERES, *EULER, "--device", ""), "there is no device '' here .*: use --device cpu"),
        ((*SPHERES, *EULER, "--device", "meta"), "there is no device 'meta' here"),
        ((*SPHERES, *EULER, "--device", "cuda:77"), "there is no device 'cuda:77' here"),
        ((*SPHERES, *EULER, "--seeds", "some"), "--seeds takes a number .* or a list like 3,7,8 .*, not 'some'"),
        ((*SPHERES, *EULER, "--seeds", "-2"), "--seeds takes a number"),
        ((*SPHERES, *EULER, "--seeds", "0"), "--seeds takes a number .*, not '0'"),
        ((*SPHERES, *EULER, "--seeds", "10000"), "--seeds takes a number up to 9999"),
        ((*SPHERES, *EULER, "--seeds", "3,3"), "seeds must be one or more different numbers"),
        ((*SPHERES, *EULER, "--seeds", "99999999999999999999,1"), r"different numbers from 0 to 2\*\*63 - 1"),
        ((*SPHERES, *EULER, "--time-limit", "soon"), "--time-limit takes seconds, minutes or hours .*, not 'soon'"),
        ((*SPHERES, *EULER, "--time-limit", "5d"), "--time-limit takes seconds"),
        ((*SPHERES, *EULER, "--iterations", 0), "iterations must be a whole number, at least 1, not 0"),
        ((*SPHERES, *EULER, "--log-every", -1), "log_every must be a whole number, at least 1"),
        ((*SPHERES, *EULER, "--batch-size", 2001), "a batch of 2001 cannot be drawn from 2000 .*: take at most 2000"),
        (("--data", "sphere99999999", *EULER), "99999999 dimensions would fill the memory: take at most 100000"),
        ((*SPHERES, *EULER, "--lr", "inf"), "the learning rate must be positive and finite, not inf"),
        ((*SPHERES, *EULER, "--data-seed", -1), "data_seed must be a whole number from 0"),
        ((*SPHERES, "--solver", "euler", "--step", 1e-9), "1e.09 steps .* are too many with .*: take a larger step"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 1e-12), "float32 cannot resolve .*1e-12.*loosen"),
        ((*SPHERES, "--solver", "dopri54", "--tolerance", 1e-20, "--dtype", "float64"), "float64 cannot resolve"),
        (("--data", "mnist", *EULER, "--data-seed", 1), "draws the points of spheres, and the data are 'mnist'"),
        (("--data", "mnist", *EULER), "datasets/mnist has no .*: run `windermere data get mnist`, or `.* --from FOLD"),
        (("--data", "cifar10", *EULER), "datasets/cifar10 has no .*: run `windermere data get cifar10`"),
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_training_is_one_sentence_and_writes_nothing(
    run: Command, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    assert_one_sentence(run("train", "--out", tmp_path / "run", *arguments), words)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_or_other_files_is_refused_and_left_as_it_is(run: Command, tmp_path: Path) -> None:
    assert run("train", *QUICK, "--out", "run").code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    before = files(tmp_path)
    assert_one_sentence(
        run("train", *QUICK, "--out", "run"),
        "run already holds a run: go on with --resume or choose another folder as --out$",
    )
    assert_one_sentence(
        run("train", *QUICK, "--out", "mine"), r"mine holds other files \(thesis\.tex, \.\.\.\): .* folder as --out$"
    )
    assert_one_sentence(run("train", "--resume", "--out", "mine"), "mine is not a run: name a folder")
    assert_one_sentence(run("train", "--resume", "--out", "nowhere"), "nowhere does not exist: name a folder")
    assert files(tmp_path) == before


# ---------------------------------------------------------------------------------------------------------
# Training


def test_a_training_writes_its_run_and_prints_the_accuracy_of_every_seed(run: Command, tmp_path: Path) -> None:
    answer = run("train", *QUICK, "--seeds", 2, "--out", "runs/small")
    assert answer.code == 0
    assert "results are in runs/small" in answer.out
    assert len(re.findall(r"[01]\.\d{4}", answer.out)) == 2
    assert [line.split("  ")[0] for line in answer.err.splitlines()] == ["sphere2 2/6", "sphere2 4/6", "sphere2 6/6"]
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


def test_a_folder_with_odd_characters_is_named_as_it_is(run: Command) -> None:
    """Brackets are markup to rich, and colons may be emoji."""
    odd = "a [red]run[/] :smile:"
    answer = run("train", *QUICK, "--time-limit", 0, "--out", odd)
    assert answer.err.splitlines()[-1].endswith(f"go on with: windermere train --out '{odd}' --resume")
    assert f"results are in {odd}" in run("train", "--resume", "--out", odd).out
    assert_one_sentence(run("train", *QUICK, "--out", odd), re.escape(f"{odd} already holds a run"))
    assert odd in run("evaluate", odd).out


# ---------------------------------------------------------------------------------------------------------
# Disks that refuse


def test_a_disk_that_fills_up_is_one_sentence_and_the_last_checkpoint_survives(
    run: Command,
    tiny_disk: Path,  # noqa: F811
) -> None:
    answer = run("train", *QUICK, "--out", tiny_disk / "run")
    assert_one_sentence(answer, r"checkpoint\.safetensors could not be written, because the disk is full: free some")
    assert checkpoint(tiny_disk / "run").meta["iteration"] == 2


def test_a_read_only_disk_is_one_sentence_and_its_runs_can_still_be_evaluated(
    run: Command,
    tiny_disk: Path,  # noqa: F811
) -> None:
    mount("-o", "remount,size=1m", str(tiny_disk))
    assert run("train", *QUICK, "--out", tiny_disk / "run").code == 0
    mount("-o", "remount,ro", str(tiny_disk))
    for flags in ((*QUICK, "--out", tiny_disk / "new"), ("--resume", "--out", tiny_disk / "run")):
        assert_one_sentence(run("train", *flags), "the disk is read-only: choose another folder")
    assert run("evaluate", tiny_disk / "run").code == 0


# ---------------------------------------------------------------------------------------------------------
# Evaluation


@pytest.fixture
def trained(run: Command, tmp_path: Path) -> Path:
    assert run("train", *QUICK, "--seeds", "7,3", "--out", "run").code == 0
    return tmp_path / "run"


def evaluated(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer.err
    results: list[dict[str, Any]] = json.loads(answer.out)["results"]
    return results


def test_a_run_evaluated_with_its_own_solver_gives_what_its_training_gave(run: Command, trained: Path) -> None:
    (own,) = evaluated(run("evaluate", trained, "--json"))
    assert (own["solver"], own["seeds"], own["samples"], own["evaluations"]) == ("euler, h = 1/2", [7, 3], 1000, [2, 2])
    assert own["accuracy"] == [row["test_accuracy"] for row in rows(trained)[-2:]]


def test_a_run_is_evaluated_with_its_own_and_with_another_solver_side_by_side(run: Command, trained: Path) -> None:
    flags = ("--solver", "rk4", "--steps", 8)
    own, other = evaluated(run("evaluate", trained, *flags, "--json"))
    assert (own["solver"], other["solver"]) == ("euler, h = 1/2", "rk4, h = 1/8")
    assert other["evaluations"] == [32, 32]
    table = run("evaluate", trained, *flags).out
    for result in (own, other):
        for accuracy in result["accuracy"]:
            assert f"{accuracy:.4f}" in table
    assert "(own)" in table


def test_naming_the_runs_own_solver_evaluates_it_once(run: Command, trained: Path) -> None:
    assert len(evaluated(run("evaluate", trained, *EULER, "--json"))) == 1


def test_an_adaptive_solver_can_be_the_other(run: Command, trained: Path) -> None:
    _, other = evaluated(run("evaluate", trained, "--solver", "dopri54", "--tolerance", 1e-3, "--json"))
    assert other["solver"] == "dopri54, tol = 0.001"
    assert all(evaluations >= 8 for evaluations in other["evaluations"])


def test_evaluation_changes_nothing(run: Command, trained: Path) -> None:
    before = files(trained)
    assert run("evaluate", trained, "--solver", "rk4", "--steps", 2).code == 0
    assert files(trained) == before


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--steps", 2), "--steps needs a method"),
        (("--solver", "rk4"), "exactly one of"),
        (("--solver", "rk4", "--tolerance", 0.1), "rk4"),
        (("--solver", "rk5", "--steps", 2), "there is no method 'rk5': did you mean 'rk4'"),
        (("--device", "banana"), "there is no device 'banana'"),
        (("--solver", "dopri54", "--tolerance", 1e-12), "float32 cannot resolve"),
    ],
    ids=str,
)
def test_an_impossible_evaluation_is_one_sentence(
    run: Command, trained: Path, flags: tuple[object, ...], words: str
) -> None:
    assert_one_sentence(run("evaluate", trained, *flags), words)


def test_an_unfinished_run_is_told_how_to_go_on(run: Command) -> None:
    assert run("train", *QUICK, "--time-limit", 0, "--out", "run").code == 0
    assert_one_sentence(run("evaluate", "run"), "run has no trained model yet: .* go on with it by --resume")


def test_a_run_that_is_being_made_longer_is_told_how_to_go_on(run: Command, trained: Path) -> None:
    assert run("train", "--resume", "--iterations", 100, "--time-limit", 0, "--out", trained).code == 0
    assert_one_sentence(run("evaluate", trained), "100 iterations, and its model is that after 6: .* --resume")


def test_what_is_no_run_cannot_be_evaluated(run: Command, tmp_path: Path) -> None:
    assert_one_sentence(run("evaluate", "nowhere"), "nowhere does not exist: name a folder")
    assert_one_sentence(run("evaluate", tmp_path), "is not a run: name a folder")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_corrupted_file_of_a_run_is_named(run: Command, trained: Path, name: str) -> None:
    contents = bytearray((trained / name).read_bytes())
    contents[len(contents) // 2] ^= 0xFF
    (trained / name).write_bytes(contents)
    assert_one_sentence(run("evaluate", trained), f"run/{re.escape(name)} is damaged .*: restore it, or start the run")


# ---------------------------------------------------------------------------------------------------------
# Images, from tiny files in the official formats


@pytest.mark.parametrize(
    ("name", "contents", "samples"),
    [("mnist", mnist_contents(train=12, test=5), 5), ("cifar10", cifar_contents(3), 3)],
    ids=["mnist", "cifar10"],
)
@pytest.mark.parametrize("solver", [("--solver", "euler", "--steps", 1), ("--solver", "fehlberg21", "--tolerance", 1)])
def test_images_are_trained_and_evaluated_from_their_files(
    run: Command, tmp_path: Path, name: str, contents: dict[str, bytes], samples: int, solver: tuple[object, ...]
) -> None:
    write(tmp_path / "datasets" / name, contents, zipped=name == "mnist")
    flags = ("--data", name, *solver, "--batch-size", 4, "--iterations", 2, "--seeds", 2)
    assert run("train", *flags, "--out", "run").code == 0
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [2, 2]
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["optimizer"] == ("sgd" if (name, solver[1]) == ("mnist", "euler") else "adam")
    own, other = evaluated(run("evaluate", "run", "--solver", "heun", "--steps", 1, "--json"))
    assert own["samples"] == other["samples"] == samples
    assert other["evaluations"] == [2, 2]


def test_a_run_in_bfloat16_is_evaluated_in_float32_unless_told_otherwise(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "datasets" / "mnist", mnist_contents(train=12, test=5))
    flags = ("--data", "mnist", *EULER, "--batch-size", 4, "--iterations", 1, "--arithmetic", "bfloat16")
    answer = run("train", *flags, "--out", "run")
    assert answer.code == 0
    assert "euler, h = 1/2 in bfloat16, 1 iterations" in " ".join(answer.out.split())
    assert json.loads((tmp_path / "run" / "config.json").read_text())["arithmetic"] == "bfloat16"
    plain, own = (run("evaluate", "run", *more).out for more in ((), ("--arithmetic", "bfloat16")))
    assert "computed in float32, and trained in bfloat16 (--arithmetic chooses)" in plain
    assert "computed in" not in own
    assert json.loads(run("evaluate", "run", "--json").out)["arithmetic"] == "float32"
    assert_one_sentence(run("evaluate", "run", "--arithmetic", "half"), "there is no arithmetic 'half'")


def test_images_whose_files_are_gone_are_told_what_to_do(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "datasets" / "mnist", mnist_contents(train=12))
    flags = ("--data", "mnist", *EULER, "--batch-size", 4, "--iterations", 1)
    assert run("train", *flags, "--out", "run").code == 0
    (tmp_path / "datasets" / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    assert_one_sentence(run("evaluate", "run"), "has no t10k-labels-idx1-ubyte: run `windermere data get mnist`")


# ---------------------------------------------------------------------------------------------------------
# Data


def test_data_that_a_folder_lacks_is_named(run: Command, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    answer = run("data", "get", "mnist", "--from", "downloads")
    assert_one_sentence(answer, "neither downloads nor a folder in it has train-images-idx3-ubyte")
    assert_one_sentence(run("data", "get", "mnist", "--from", "nowhere"), "nowhere is not a folder")


def test_an_archive_in_the_data_folder_is_answered_with_the_command_that_unpacks_it(run: Command) -> None:
    folder = write(Path("datasets/cifar10").absolute(), {"cifar-10-binary.tar.gz": b"..."})
    words = rf"but cifar-10-binary\.tar\.gz: run `windermere data get cifar10 --from {folder}` to unpack it$"
    assert_one_sentence(run("train", "--data", "cifar10", *EULER, "--out", "run"), words)


def test_a_download_that_fails_is_answered_with_the_flag_for_files_that_are_here(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = replace(MNIST, remotes=tuple(replace(remote, url=NOWHERE) for remote in MNIST.remotes))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(data, "get", partial(data.get, catalogues=[nowhere]))
    assert_one_sentence(run("data", "get", "mnist"), "cannot be reached .* give their folder with --from FOLDER$")


def test_an_imitation_is_not_taken_for_the_data(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "downloads", mnist_contents())
    answer = run("data", "get", "mnist", "--from", "downloads")
    assert_one_sentence(answer, "truncated, corrupted or not the published data: downloads/train-images-idx3-ubyte")


@pytest.mark.parametrize(
    ("name", "words"), [("sphere2", "no files to get"), ("minst", "did you mean 'mnist'"), ("imagenet", "known are")]
)
def test_only_what_has_files_can_be_got(run: Command, name: str, words: str) -> None:
    assert_one_sentence(run("data", "get", name), words)


def test_data_that_was_got_is_listed_with_its_files(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "datasets" / "mnist" / "train-images-idx3-ubyte"]
    monkeypatch.setattr(data, "get", lambda name, source, progress: paths)
    assert json.loads(run("data", "get", "mnist", "--json").out) == {"name": "mnist", "files": [str(paths[0])]}
    answer = run("data", "get", "mnist").out
    assert answer == f"mnist: 1 files, complete and checked, in {tmp_path / 'datasets' / 'mnist'}\n"


def test_the_list_says_what_is_there_in_the_folder_that_the_environment_names(run: Command, tmp_path: Path) -> None:
    write(tmp_path / "datasets" / "mnist", {"train-labels-idx1-ubyte": b"not what was published"})
    mnist, cifar10 = json.loads(run("data", "list", "--json").out)
    assert (mnist["name"], mnist["complete"], len(mnist["missing"])) == ("mnist", False, 3)
    assert mnist["folder"] == str(tmp_path / "datasets" / "mnist")
    assert mnist["corrupt"] == [str(tmp_path / "datasets" / "mnist" / "train-labels-idx1-ubyte")]
    assert (cifar10["name"], cifar10["complete"], len(cifar10["missing"])) == ("cifar10", False, 6)
    table = run("data", "list").out
    for word in ("mnist", "cifar10", "missing", "corrupt", "sphere<d>", "computed from a seed"):
        assert word in table


# ---------------------------------------------------------------------------------------------------------
# The demo


def test_the_demo_shows_both_models_and_says_where_its_figure_is(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {name: a_config(solver=FixedStep.of("euler", steps=n), iterations=3) for name, n in (("a", 2), ("b", 4))}
    monkeypatch.setattr(demo, "configs", lambda: small)
    answer = run("demo", "--out", "demo")
    assert answer.code == 0
    assert "euler, h = 1/2" in answer.out
    assert "figure: demo/trajectories.png" in answer.out
    assert all(f"run: demo/{name}" in answer.out for name in small)
    assert (tmp_path / "demo" / "trajectories.png").exists()


@pytest.mark.parametrize(("reason", "code"), [("interrupted", 130), ("terminated", 143)])
def test_a_demo_that_is_stopped_ends_with_the_code_of_its_signal(
    run: Command, monkeypatch: pytest.MonkeyPatch, reason: Any, code: int
) -> None:
    monkeypatch.setattr(demo, "configs", lambda: {"a": a_config(iterations=3)})
    monkeypatch.setattr(demo, "stop_sign", lambda: nullcontext(StopSign(reason=reason)))
    answer = run("demo", "--out", "demo")
    assert answer.code == code
    assert f"the demo was {reason}: run it again to go on from iteration 1" in answer.err
