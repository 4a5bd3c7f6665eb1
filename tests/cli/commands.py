"""What the tests of the command line share: commands that are quick, and how answers are judged."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str


Command: TypeAlias = Callable[..., Answer]


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


def evaluated(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer.err
    results: list[dict[str, Any]] = json.loads(answer.out)["results"]
    return results
