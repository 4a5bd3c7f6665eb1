"""Where answers go, standard output, and where all else goes, standard error; and the exit code of what was stopped."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

WIDE = 1000
"""Letters: as wide as a table may want to be."""
stdout = Console(highlight=False, markup=False, emoji=False)
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False)


def exit_if_stopped(reason: str) -> None:
    """With the code of the signal that stopped a training, as a shell tells it."""
    if (code := {"interrupted": 130, "terminated": 143}.get(reason)) is not None:
        raise typer.Exit(code)


def tell(text: str, indent: int = 0, style: str = "", console: Console | None = None) -> None:
    """An answer in words. A terminal gets it broken between words, however narrow it is; a pipe gets it as one line."""
    out = console or stdout
    if out.is_terminal:
        out.print(Padding(Text(text, style), (0, 0, 0, indent)))
    else:
        out.print(f"{' ' * indent}{text}", style=style, soft_wrap=True)


def folding(*titles: str) -> Table:
    """A table whose words are broken where it does not fit: rich would cut them off."""
    return Table(*(Column(name, overflow="fold") for name in titles))


def to_go(
    columns: Sequence[str], console: Console, table: Callable[[Sequence[str]], Table], room: int = 0
) -> Sequence[str]:
    """The first of these columns: as few as a table is made without to be as narrow as the console, with some room."""

    def width(without: Sequence[str]) -> int:
        return room + console.measure(table(without), options=console.options.update(width=WIDE)).maximum

    fewer = (columns[:n] for n in range(len(columns)))
    return next((each for each in fewer if width(each) <= console.width), columns)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
