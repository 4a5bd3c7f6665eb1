"""Where answers go, standard output, and where all else goes, standard error; and the exit code of what was stopped."""

import json
import sys
from typing import Any

import typer
from rich.console import Console

stdout = Console(highlight=False, markup=False, emoji=False)
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False)


def exit_if_stopped(reason: str) -> None:
    """With the code of the signal that stopped a training, as a shell tells it."""
    if (code := {"interrupted": 130, "terminated": 143}.get(reason)) is not None:
        raise typer.Exit(code)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
