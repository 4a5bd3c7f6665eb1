"""Attempts at a run by processes elsewhere, any of which may be cut off and come back.

    .attempts/0001-5d0c2f7a/          in the run's folder: an attempt, itself a run folder
        checkpoint-0007.safetensors   numbered and never replaced; each says which attempt wrote it

Whoever holds the lock of the run's folder hands out attempts, one after the other, and alone writes the run's own
files. A process that carries out an attempt writes to that attempt's folder only. Before the next one, the folder is
renamed: a process that was cut off, and only seemed dead, finds nothing any more where it wants to write, and stops.
"""

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from windermere.errors import RunError, StorageError
from windermere.records.atomic import read_bytes, read_json, storing, write_atomically
from windermere.records.run_files import CHECKPOINT, CONFIG, ENVIRONMENT, METRICS, MODEL
from windermere.records.run_folder import RunFolder
from windermere.records.tensors import read_tensors

ATTEMPTS, CLOSED = ".attempts", ".closed"
KEPT = 2
"""How many checkpoints an attempt keeps: the last, and the one before in case that is damaged."""


class AttemptFolder(RunFolder):
    """The folder of one attempt, open for writing."""

    @classmethod
    def begin(cls, run: Path, label: str, config: Mapping[str, Any], environment: Mapping[str, Any]) -> Self:
        """Starts an attempt that was handed out, with the run's own settings, from where the run is by now."""
        path = run / ATTEMPTS / label
        if not run.is_dir():
            raise StorageError(
                f"{run} is not there on this machine: choose a folder that all machines of the cluster see"
            )
        if not path.is_dir():
            raise StorageError(f"the attempt {label} at {run} is over: another one has taken its place")
        state = State.of(run)
        attempt = cls.create(path, config, environment)
        if state is not None:
            with attempt.or_closed():
                state.copy_to(path, path / _name(1))
                attempt.note_environment(environment)
        return attempt

    @property
    def checkpoint(self) -> Path:
        return (_numbered(self.path) or [self.path / _name(1)])[-1]

    def _next_checkpoint(self) -> Path:
        return self.path / _name(_number(self.checkpoint) + 1) if self.has_checkpoint else self.checkpoint

    def save_checkpoint(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        super().save_checkpoint(tensors, {**meta, "attempt": self.path.name})
        with storing(self.path, "tidied up"):
            for path in _numbered(self.path)[:-KEPT]:
                path.unlink(missing_ok=True)


def new_label(number: int) -> str:
    """What an attempt is called: its number, and what tells it from one of an earlier session."""
    return f"{number:04}-{secrets.token_hex(4)}"


def hand_out(run: RunFolder, label: str) -> None:
    """Makes room for an attempt. The caller holds the run's folder."""
    path = run.path / ATTEMPTS / label
    with storing(path, "created"):
        path.mkdir(parents=True)


def take_over(run: RunFolder) -> None:
    """Ends all attempts at a run, and puts what the furthest of them has reached into the run's own files. The caller
    holds the run's folder; stopped at any moment, this can be done again."""
    room = run.path / ATTEMPTS
    if not room.exists():
        return
    with storing(room, "taken over"):
        for path in [path for path in room.iterdir() if path.suffix != CLOSED]:
            path.rename(path.with_suffix(CLOSED))  # from here on its process writes nowhere
    states = [state for path in sorted(room.iterdir()) if (state := State.of(path)) is not None]
    furthest = max(states, key=lambda state: state.reached, default=None)
    if furthest is not None:
        own = State.of(run.path)
        if own is None or furthest.reached > own.reached:
            furthest.copy_to(run.path, run.path / CHECKPOINT)
            run.config = furthest.config
    shutil.rmtree(room, ignore_errors=True)  # one may be about to find out


@dataclass(frozen=True)
class State:
    """What a run, or an attempt at one, has reached: a checkpoint, and a model if it is trained to the end."""

    path: Path
    checkpoint: Path
    meta: Mapping[str, Any]

    @classmethod
    def of(cls, path: Path) -> "State | None":
        """None where there is no checkpoint yet. Of an attempt's, damaged ones are passed over."""
        if (path / CHECKPOINT).exists():
            return cls(path, path / CHECKPOINT, read_tensors(path / CHECKPOINT).meta)
        for checkpoint in reversed(_numbered(path)):
            try:
                return cls(path, checkpoint, read_tensors(checkpoint).meta)
            except RunError:
                continue
        return None

    @property
    def reached(self) -> tuple[int, bool]:
        return int(self.meta["iteration"]), (self.path / MODEL).exists()

    @property
    def config(self) -> dict[str, Any]:
        return dict(read_json(self.path / CONFIG))

    def copy_to(self, path: Path, checkpoint: Path) -> None:
        """In an order in which every prefix is a run that can go on: metrics may be longer than a checkpoint knows."""
        kept = {path / METRICS: read_bytes(self.path / METRICS)[: self.meta["metrics_bytes"]]}
        kept[path / ENVIRONMENT] = read_bytes(self.path / ENVIRONMENT)
        kept[checkpoint] = read_bytes(self.checkpoint)
        kept[path / CONFIG] = read_bytes(self.path / CONFIG)
        if (self.path / MODEL).exists():
            kept[path / MODEL] = read_bytes(self.path / MODEL)
        for target, data in kept.items():
            write_atomically(target, data)


def copy_run(run: Path, path: Path) -> None:
    """Copies what a run, or an attempt at one, has reached into a new folder, where it can go on."""
    state = State.of(run)
    if state is None:
        raise RunError(f"{run} has no checkpoint to go on from")
    with storing(path, "created"):
        path.mkdir(parents=True)
    state.copy_to(path, path / CHECKPOINT)


def reached(run: Path) -> int:
    """The iteration of a run's checkpoint."""
    path = run / CHECKPOINT
    return int(read_tensors(path).meta["iteration"]) if path.exists() else 0


def _name(number: int) -> str:
    return f"checkpoint-{number:04}.safetensors"


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def _numbered(path: Path) -> list[Path]:
    """An attempt's checkpoints, the last one last."""
    with storing(path, "read"):
        return sorted(path.glob("checkpoint-*.safetensors"), key=_number)
