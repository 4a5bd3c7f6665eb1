"""Processes that solve in C, a compiler for them, and a sound library."""

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMPILER = """
echo >> {folder}/calls
for word; do [ "$before" = -o ] && target=$word; before=$word; done
[ -e {folder}/made ] || {real} "$@" -o {folder}/made
cat {folder}/made > "$target"
"""
"""Compiles once, and from then on gives the same again: the tests are quick, and can tell how often it was called."""
ANOTHER = 54321
"""A user who is neither root nor anybody else here."""
PAGE = 4096
TOO_SLOW = "did not compile the C code in"


@dataclass(frozen=True)
class Answer:
    """What became of a process that solves, in the words of solving.py."""

    code: int
    values: tuple[str, ...] = ()
    in_c: bool = False
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workshop:
    """Processes that solve, and a compiler for them."""

    asked: "subprocess.Popen[str]"
    folder: Path

    @property
    def compiler(self) -> str:
        """As the variable CC has it."""
        return shlex.join(["sh", str(self.folder / "compiler")])

    @property
    def calls(self) -> int:
        """Of the compiler, so far."""
        return len((self.folder / "calls").read_text())

    def solve(self, cache: Path, **given: Any) -> Answer:
        return self.solve_at_once([self.asking(cache, **given)])[0]

    def asking(self, cache: Path, **given: Any) -> dict[str, Any]:
        variables = {"XDG_CACHE_HOME": str(cache), "CC": self.compiler, **given.pop("variables", {})}
        return {"variables": variables, **given}

    def solve_at_once(self, asked: list[dict[str, Any]]) -> list[Answer]:
        assert self.asked.stdin is not None
        assert self.asked.stdout is not None
        print(json.dumps(asked), file=self.asked.stdin, flush=True)
        return [
            Answer(found["code"], tuple(found.get("values", ())), found.get("in_c", False), tuple(found.get("log", ())))
            for found in json.loads(self.asked.stdout.readline())
        ]


@dataclass(frozen=True)
class Sound:
    """An undamaged library, and what it computes."""

    name: str
    content: bytes
    values: tuple[str, ...]

    def put_into(self, cache: Path) -> Path:
        kept = libraries(cache) / self.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(self.content)
        kept.chmod(0o600)
        return kept


def libraries(cache: Path) -> Path:
    return cache / "windermere" / "native"


def given_away(kept: Path, whole: bytes) -> None:
    try:
        os.chown(kept, ANOTHER, ANOTHER)
    except PermissionError:
        pytest.skip("only root gives files away")
