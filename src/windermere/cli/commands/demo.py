"""`windermere demo`."""

from pathlib import Path
from typing import Annotated

import typer

from windermere.starting import importing


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the demo's runs, figure and page.")] = Path("runs/demo"),
) -> None:
    """Train one model with too few steps and one that adapts its steps, and audit both. Half a minute."""
    with importing():
        from windermere.cli.demo import show_demo
    show_demo(out)
