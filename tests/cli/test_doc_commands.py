"""The commands of the pages: their names and flags are those of the program, their files are there."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.processes import ROOT
from windermere.cli import app

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PLAIN = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("windermere ", "make ", "python ")


def commands(page: Path) -> list[str]:
    """What blocks without a language have for a terminal; others hold its answers."""
    lines = [line for block in PLAIN.findall(page.read_text()) for line in block.splitlines()]
    return [line for line in lines if line.startswith(PROGRAMS)]


def parsed(arguments: list[str]) -> None:
    """Reads a command line and calls nothing."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("windermere", list(arguments))
    while hasattr(command, "resolve_command") and context._protected_args:
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(page):
        program, *rest = shlex.split(line, comments=True)
        if program == "windermere":
            parsed(rest)
        elif program == "make":
            assert rest[0] in targets, line
        else:
            assert (ROOT / rest[0]).exists(), line


def test_a_command_that_is_misspelt_is_noticed() -> None:
    for line in ("audit runs/fine --htlm a.html", "study rn fan"):
        with pytest.raises(Exception, match="No such"):
            parsed(line.split())
