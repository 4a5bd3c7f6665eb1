"""What `windermere data` does."""

from dataclasses import asdict
from pathlib import Path

from windermere.cli.console import folding, print_json, stdout
from windermere.cli.terminal import download_progress
from windermere.paper import data as data_sets


def get_data(name: str, source: Path | None, *, as_json: bool) -> None:
    with download_progress(name) as progress:
        paths = data_sets.get(name, source=source, progress=progress)
    if as_json:
        print_json({"name": name, "files": [str(path) for path in paths]})
        return
    stdout.print(f"{name}: {len(paths)} files, complete and checked, in {data_sets.data_root() / name}", soft_wrap=True)


def list_data(*, as_json: bool) -> None:
    found = data_sets.status()
    if as_json:
        print_json([{**asdict(entry), "complete": entry.complete} for entry in found])
        return
    table = folding("data set", "state", "folder")
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
