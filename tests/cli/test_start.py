"""What the command line answers without PyTorch, whose import takes seconds: its version, its help, and Tab."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.processes import installed_script, surroundings
from windermere.cli import names
from windermere.paper.data import NAMES
from windermere.paper.data.catalogue import OFFICIAL
from windermere.paper.studies.registry import STUDIES
from windermere.solvers import METHODS

HEAVY = ("torch", "numpy", "matplotlib", "safetensors")
REPORT = f"""
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from windermere.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["windermere", *arguments]
    code, out = None, StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(StringIO()):
            main()
    except SystemExit as left:
        code = left.code
    print(json.dumps([code, out.getvalue(), [name for name in {HEAVY} if name in sys.modules]]))
"""
HELP = [
    ["--help"], [],
    *([name, "--help"] for name in ("train", "audit", "evaluate", "demo", "data", "study")),
    *(["data", name, "--help"] for name in ("get", "list")),
    *(["study", name, "-h"] for name in ("list", "run", "draw", "merge", "summary")),
]  # fmt: skip


REFUSED = [["train"], ["audit"], ["study", "rnu"], ["evaluate", "--stepz", "2"]]
Told: TypeAlias = tuple[int | None, str, list[str]]


@pytest.fixture(scope="module")
def told() -> dict[str, Told]:
    """Of each command the exit code, the output, and what had been imported until then, all in one fresh process."""
    commands = [["--version"], *HELP, *REFUSED]
    script = [sys.executable, "-c", REPORT, json.dumps(commands)]
    done = subprocess.run(script, env=surroundings(COLUMNS="200"), capture_output=True, text=True, check=True)
    lines = map(json.loads, done.stdout.splitlines())
    return {" ".join(command): tuple(line) for command, line in zip(commands, lines, strict=True)}


def test_the_version_is_told_without_pytorch(told: dict[str, Told]) -> None:
    assert told["--version"] == (0, "windermere 0.1.0\n", [])


@pytest.mark.parametrize("command", [*map(" ".join, HELP)])
def test_help_is_shown_without_pytorch(command: str, told: dict[str, Told]) -> None:
    _, shown, loaded = told[command]
    assert "Usage:" in shown
    assert loaded == []


@pytest.mark.parametrize("command", [*map(" ".join, REFUSED)])
def test_flags_that_are_not_there_are_refused_without_pytorch(command: str, told: dict[str, Told]) -> None:
    assert told[command] == (2, "", [])


# ---------------------------------------------------------------------------------------------------------
# Tab


def test_tab_knows_the_names_that_there_are() -> None:
    assert tuple(METHODS) == names.METHODS
    assert names.DATA == NAMES
    assert tuple(catalogue.name for catalogue in OFFICIAL) == names.DOWNLOADS
    assert tuple(STUDIES) == names.STUDIES


def completed(tmp_path: Path, line: str, shell: str = "bash") -> list[str]:
    """What a shell is told when Tab is pressed at the end of a line, by a program that has no PyTorch."""
    for name in HEAVY:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this was not to be imported')")
    script = installed_script(tmp_path / "bin")
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    words["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    there = surroundings(_WINDERMERE_COMPLETE=f"complete_{shell}", **words)
    there["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{there['PYTHONPATH']}"
    told = subprocess.run([sys.executable, str(script)], env=there, capture_output=True, text=True, check=False)
    assert told.stderr == ""
    return told.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("windermere tr", ["train"]),
        ("windermere study m", ["merge"]),
        ("windermere train --solver ", list(METHODS)),
        ("windermere train --solver rk", ["rk4", "rk4_38"]),
        ("windermere train --check b", ["bosh32"]),
        ("windermere train --data ", list(NAMES)),
        ("windermere train --data sphere9", ["sphere900"]),
        ("windermere evaluate runs/fine --solver ts", ["tsit54"]),
        ("windermere data get c", ["cifar10"]),
        ("windermere study run ", [*STUDIES, *names.FIGURES]),
        ("windermere study draw table", ["table1"]),
        ("windermere study merge step-adaptation-m", ["step-adaptation-mnist"]),
    ],
)
def test_tab_completes_commands_studies_data_sets_and_methods(tmp_path: Path, line: str, words: list[str]) -> None:
    assert completed(tmp_path, line) == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_same(tmp_path: Path, shell: str) -> None:
    told = " ".join(completed(tmp_path, "windermere study run sphere900", shell))
    assert "sphere900-fixed" in told
    assert "table1" not in told
