"""The command line in this process, without fixtures, which live longer than an example; and what it may do."""

import io
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cli.commands import Answer
from windermere import cli
from windermere.records import read_json, read_tensors

SURROUNDINGS = {"COLUMNS": "200", "WINDERMERE_DATA": "no such folder"}


@contextmanager
def a_folder() -> Iterator[Path]:
    """A new folder to work in, with surroundings that say nothing of this machine."""
    before, kept = Path.cwd(), {name: os.environ.get(name) for name in SURROUNDINGS}
    with TemporaryDirectory() as name:
        os.chdir(name)
        os.environ.update(SURROUNDINGS)
        try:
            yield Path(name)
        finally:
            os.chdir(before)
            for variable, value in kept.items():
                os.environ.pop(variable) if value is None else os.environ.update({variable: value})


def asked(*arguments: object) -> Answer:
    """What `windermere ARGUMENTS` answers; an exception that is none of leaving fails the test."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["windermere", *map(str, arguments)]
    code: object = None
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            cli.main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.argv = before
    return Answer(int(str(code or 0)), out.getvalue(), err.getvalue())


ANSWERS = (0, 10, 11, 12, 13)
"""How commands end that did what they were asked for."""


def assert_an_answer(answer: Answer) -> None:
    """What was asked for, or one sentence and a code that is not 0; typer's own refusals come in a box."""
    assert "Traceback" not in answer.err + answer.out, answer
    if answer.code in ANSWERS:
        assert "error:" not in answer.err, answer
        return
    if answer.code == 2:
        assert re.search(r"Usage: ", answer.err), answer
        return
    assert answer.code == 1, answer
    assert answer.err.count("error: ") == 1, answer
    (line,) = answer.err.splitlines()[-1:]
    assert line.startswith("error: "), answer
    assert 20 < len(line) < 1500, answer


def assert_nothing_half_written(folder: Path) -> None:
    """Every file that is there is whole."""
    for path in folder.rglob("*"):
        assert not path.name.endswith(".tmp"), path
        if path.suffix == ".json":
            read_json(path)
        if path.suffix == ".safetensors":
            read_tensors(path)
        if path.suffix == ".jsonl":
            for line in path.read_text().splitlines():
                json.loads(line)
        if path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")


def written(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.rglob("*")):
        with suppress(IsADirectoryError):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found
