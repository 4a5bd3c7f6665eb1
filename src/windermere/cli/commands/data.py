"""`windermere data`."""

from pathlib import Path
from typing import Annotated

import typer

from windermere.cli.names import DOWNLOADS, completing
from windermere.cli.options import AsJson
from windermere.starting import importing

app = typer.Typer(no_args_is_help=True, help="Get and list data sets.")


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="mnist or cifar10.", autocompletion=completing(DOWNLOADS))],
    source: Annotated[Path | None, typer.Option("--from", help="Take files that are already in this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set from its official server, or take it from a folder. Its checksums are verified."""
    with importing():
        from windermere.cli.data import get_data
    get_data(name, source, as_json=as_json)


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """The data sets on this machine, checked in full."""
    with importing():
        from windermere.cli.data import list_data
    list_data(as_json=as_json)
