"""Where answers go, standard output, and where all else goes, standard error; and the exit code of what was stopped."""

import json
import sys
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

stdout = Console(highlight=False, markup=False, emoji=False)
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False)


def exit_if_stopped(reason: str) -> None:
    """With the code of the signal that stopped a training, as a shell tells it."""
    if (code := {"interrupted": 130, "terminated": 143}.get(reason)) is not None:
        raise typer.Exit(code)


def tell(text: str, indent: int = 0) -> None:
    """An answer in words. A terminal gets it broken between words, however narrow it is; a pipe gets it as one line."""
    if stdout.is_terminal:
        stdout.print(Padding(Text(text), (0, 0, 0, indent)))
    else:
        stdout.print(f"{' ' * indent}{text}", soft_wrap=True)


def folding(*titles: str, title: str | None = None) -> Table:
    """A table whose words are broken where it does not fit: rich would cut them off."""
    return Table(*(Column(name, overflow="fold") for name in titles), title=title)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
