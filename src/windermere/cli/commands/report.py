"""`windermere report`."""

from pathlib import Path
from typing import Annotated

import typer

from windermere.starting import importing


def report_command(
    verdict: Annotated[
        Path, typer.Argument(help="A saved verdict, or the answer of `windermere audit --json`, as a .json file.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write. Default: the same name with .html.")
    ] = None,
) -> None:
    """Make the page of a saved verdict again: one file to open in a browser and to send.

    Example: windermere report verdict.json -o audit.html
    """
    with importing():
        from windermere.cli.report import write_report
    write_report(verdict, out)
