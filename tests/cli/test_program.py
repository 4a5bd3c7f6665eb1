"""The program itself: its version, its help, what it does not know, how it ends."""

import errno
import logging
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

import windermere
from tests.cli.commands import EULER, QUICK, Answer, Command, assert_one_sentence, files
from tests.processes import surroundings
from windermere.paper import data


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
    assert "docs/" not in answer.out  # who has a wheel has no page of the clone


@pytest.mark.parametrize("command", ["train", "audit"])
def test_help_shows_no_value_for_flags_that_take_none(run: Command, command: str) -> None:
    lines = [line for line in run(command, "--help").out.splitlines() if "--help" not in line]  # which is Typer's own
    assert "--json" in " ".join(lines)
    assert not [line for line in lines if "bool" in line.lower() or "list[" in line]


def test_where_nothing_can_be_kept_matplotlib_says_nothing_of_its_own(run: Command) -> None:
    run("--version")
    assert not logging.getLogger("matplotlib.font_manager").isEnabledFor(logging.WARNING)


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
