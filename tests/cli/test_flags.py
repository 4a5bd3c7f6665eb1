"""Flags are the command line's: the library speaks of arguments, and `cli.advice` turns these into flags."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import windermere
from windermere.cli.advice import FLAGS, in_flags, sentence_of
from windermere.errors import RunError, StartedOtherwiseError

SOURCE = Path(windermere.__path__[0])
ABOVE = ("cli", "pytest_plugin.py")
"""Where flags are made: those of the program, and one of pytest's."""
BELOW = sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ABOVE)
GIT = {"--error-unmatch", "--no-optional-locks", "--porcelain"}
"""What `records/environment.py` gives to git."""
NVRTC = {"--gpu-architecture", "--std"}
"""What `fast/gpu/driver.py` gives to NVIDIA's compiler."""
RAY = {"--head", "--num-cpus", "--memory"}
"""What sentences of `paper/cluster` advise to give to `ray start`, a program of its own."""


def strings(tree: ast.AST) -> Iterator[str]:
    """Every string of a module, docstrings too; what is put into one stands as `x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def flags_in(text: str) -> set[str]:
    return {flag for string in strings(ast.parse(text)) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", string)}


def test_no_module_below_the_command_line_holds_a_flag_in_a_string() -> None:
    assert len(BELOW) > 100
    found = {str(path.relative_to(SOURCE)): flags_in(path.read_text()) - GIT - NVRTC - RAY for path in BELOW}
    assert {name: flags for name, flags in found.items() if flags} == {}


@pytest.mark.parametrize("line", ["f'go on with --resume, {x}'", "f'--{name}'", "def f():\n    'All of --resume.'"])
def test_a_flag_in_a_string_is_seen(line: str) -> None:
    assert flags_in(line)
    assert not flags_in("draw(linestyle='--')  # --resume")


@pytest.mark.parametrize("flag", FLAGS.values())
def test_every_flag_that_is_advised_is_one_of_the_command_lines(flag: str) -> None:
    names = {name.replace("_", "-") for path in (SOURCE / "cli").rglob("*.py") for name in options(path)}
    assert flag.removeprefix("--") in names


def options(path: Path) -> Iterator[str]:
    """The arguments of a module's commands, and the flags that are named otherwise."""
    tree = ast.parse(path.read_text())
    yield from (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and "Option" in ast.unparse(node.func))
    yield from (text.removeprefix("--") for call in calls for text in strings(call) if text.startswith("--"))


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ("give shared=(1,)", "give --shared 1"),
        ("give shared=('my times',); or", "give --shared 'my times'; or"),
        ("shared=... names all of the inputs", "--shared names all of the inputs"),
        ("batch_axis=-2 is not the samples' axis", "--batch-axis -2 is not the samples' axis"),
        ("give samples=None, which takes all", "give --all, which takes all"),
        ("with source=...", "with --from FOLDER"),
        ("say arithmetic='tf32', or", "say --arithmetic tf32, or"),
        ("runs/quick=True and quick=True/one are folders", "runs/quick=True and quick=True/one are folders"),
        ("take metric='mse', and say by threshold=... how far", "take --metric mse, and say by --threshold how far"),
        ("log_every must be a whole number", "--log-every must be a whole number"),
        ("a path/log_every must be", "a path/log_every must be"),
        ("give candidates=... in Python", "give candidates=... in Python"),
    ],
)
def test_arguments_become_flags_and_nothing_else_does(python: str, flags: str) -> None:
    assert in_flags(python) == flags


def test_settings_are_told_as_flags_on_the_command_line_and_by_name_in_python() -> None:
    error = StartedOtherwiseError(Path("run"), {"seeds": ((0,), (0, 1)), "batch_size": (16, 8)}, "resume it as it was")
    assert str(error) == (
        "run was started with seeds = (0,) (not (0, 1)) and batch_size = 16 (not 8): resume it as it was"
    )
    assert sentence_of(error) == (
        "run was started with --seeds 0, (not 0,1) and --batch-size 16 (not 8): resume it as it was"
    )


def test_an_error_that_needs_no_flag_stays_as_it_is() -> None:
    assert sentence_of(RunError("the run is damaged")) == "the run is damaged"
