"""A small run folder, and what lies in a folder."""

from pathlib import Path

from windermere.records import RunFolder

CONFIG = {"data": "sphere2", "steps": 2, "lr": 1e-3}
ENVIRONMENT = {"device": "cpu"}


def a_run(path: Path) -> RunFolder:
    return RunFolder.create(path, CONFIG, ENVIRONMENT)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}
