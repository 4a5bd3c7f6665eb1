"""The files of a run, as they are read back: its settings, where it was made, its metrics and its model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windermere.errors import RunError, UnfinishedRunError
from windermere.records.atomic import damaged, read_bytes, read_json, storing
from windermere.records.tensors import TensorFile, read_tensors

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
MODEL = "model.safetensors"


def is_run(path: Path) -> bool:
    with storing(path, "read"):
        return (path / CONFIG).is_file() and (path / ENVIRONMENT).is_file()


def refuse_unless_run(path: Path) -> None:
    if not is_run(path):
        what = "is not a run" if path.exists() else "does not exist"
        raise RunError(f"{path} {what}: name a folder that `windermere train` has written")


@dataclass(frozen=True)
class Run:
    """A run with a trained model."""

    path: Path
    config: dict[str, Any]
    model: TensorFile


def read_run(path: Path) -> Run:
    """Reads a trained run; takes no lock, since files are replaced whole."""
    refuse_unless_run(path)
    with storing(path / MODEL, "read"):
        trained = (path / MODEL).exists()
    if not trained:
        raise UnfinishedRunError(f"{path} has no trained model yet")
    return Run(path, read_config(path), read_tensors(path / MODEL))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of the run in folder `path`; a last one that a kill or a live run has cut is left out."""
    refuse_unless_run(path)
    file = path / METRICS
    lines = read_bytes(file).split(b"\n")
    return [_row(file, number, line) for number, line in enumerate(lines[:-1], start=1)]


def _row(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"line {number}: {error}") from error
    if not isinstance(row, dict):
        raise damaged(file, f"line {number} is not a row")
    return row


def read_environment(path: Path) -> dict[str, Any]:
    noted = read_json(path / ENVIRONMENT)
    if not isinstance(noted, dict):
        raise damaged(path / ENVIRONMENT, "it says nothing about where the run was made")
    return noted


def read_config(path: Path) -> dict[str, Any]:
    config = read_json(path / CONFIG)
    if not isinstance(config, dict):
        raise damaged(path / CONFIG, "it holds no settings")
    return config
