"""`windermere data`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from windermere.cli.options import AsJson, print_json, stdout
from windermere.cli.terminal import download_progress
from windermere.paper import data as data_sets

app = typer.Typer(no_args_is_help=True, help="Get and list data sets.")


@app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    source: Annotated[Path | None, typer.Option("--from", help="Take files that are already in this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set from its official server, or take it from a folder. Its checksums are verified."""
    with download_progress(name) as progress:
        paths = data_sets.get(name, source=source, progress=progress)
    if as_json:
        print_json({"name": name, "files": [str(path) for path in paths]})
        return
    stdout.print(f"{name}: {len(paths)} files, complete and checked, in {data_sets.data_root() / name}", soft_wrap=True)


@app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """The data sets on this machine, checked in full."""
    found = data_sets.status()
    if as_json:
        print_json([{**asdict(entry), "complete": entry.complete} for entry in found])
        return
    table = Table("data set", "state", "folder")
    for entry in found:
        missing, corrupt = ", ".join(entry.missing), ", ".join(path.name for path in entry.corrupt)
        state = (
            "complete"
            if entry.complete
            else "; ".join(f"{word}: {names}" for word, names in (("missing", missing), ("corrupt", corrupt)) if names)
        )
        table.add_row(entry.name, state, str(entry.folder))
    table.add_row("sphere<d>", "computed from a seed", "-")
    stdout.print(table)
