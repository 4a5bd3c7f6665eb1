"""A run's files on disk: written atomically, locked while in use, and read back whole or not at all.

A run folder holds

    config.json             what was asked for; written last, so its presence makes the folder a run
    environment.json        what it ran on: versions, device, commit
    metrics.jsonl           one row a line, appended while training
    checkpoint.safetensors  all that is needed to go on with it
    model.safetensors       the trained model
    lock                    held (flock) by the process that writes the run; contains its pid

Every file but metrics.jsonl and lock is replaced in one step, so that a process killed at any moment leaves
the old version or the new one. Rows of metrics.jsonl that are younger than the checkpoint are cut when the
run is resumed, since the iterations that wrote them are carried out again.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from torch import Tensor

from windermere.errors import FolderTakenError, RunError, is_out_of_memory
from windermere.records.atomic import (
    append,
    damaged,
    in_the_way,
    open_file,
    read_json,
    refuse_unless_file,
    storing,
    write_json,
)
from windermere.records.environment import is_environment
from windermere.records.integrity import CONFIGS, check_config, config_digest, digest_of_file
from windermere.records.lock import LOCK, holder_of, locked, not_in_use, other_files
from windermere.records.run_files import (
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    MODEL,
    is_run,
    read_config,
    read_environment,
    refuse_unless_run,
)
from windermere.records.tensors import TensorFile, plain, read_tensors, write_tensors

Check: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Refuses a checkpoint, by the plain values that are stored in it, where it is not the run's."""


class RunFolder:
    """One run's files, open for writing.

    Opening takes an exclusive lock, so that a second process is refused; a process that dies, even by
    SIGKILL, frees it. Where there are no such locks (Windows, some network disks) it goes on without one.
    """

    path: Path
    config: dict[str, Any]
    """As config.json has it."""

    def __init__(self, path: Path, lock: FileIO | None) -> None:
        """For `create`, `reopen` and `glance` only."""
        self.path = path
        self.config = read_config(path)
        self._lock = lock

    @cached_property
    def _metrics(self) -> FileIO:
        return open_file(self.path / METRICS, "a", "opened")

    @cached_property
    def _rows(self) -> "hashlib._Hash":
        """The digest of all metrics so far."""
        return digest_of_file(self.path / METRICS, os.fstat(self._metrics.fileno()).st_size)

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> Self:
        """Starts a run in a folder that is new or empty."""
        with storing(path, "created"):
            path.mkdir(parents=True, exist_ok=True)
        _refuse_unless_vacant(path)  # before the lock, which would leave its file in someone else's folder
        with locked(path) as lock:
            _refuse_unless_vacant(path)  # and after it, since another process may have been faster
            _remove_partial_files(path)
            write_json(path / ENVIRONMENT, {**environment, CONFIGS: [config_digest(config)]})
            write_json(path / CONFIG, dict(config))
            with storing(path / METRICS, "written"):
                (path / METRICS).touch()
            return cls(path, lock)

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Opens a run to go on with it; call `load_checkpoint` before anything is logged."""
        refuse_unless_run(path)
        with locked(path) as lock:
            _remove_partial_files(path)
            return cls(path, lock)

    @classmethod
    @contextmanager
    def glance(cls, path: Path) -> Iterator[Self]:
        """A run that nobody writes, to look at: none of its files is touched, not even the lock's."""
        refuse_unless_run(path)
        with not_in_use(path):
            yield cls(path, None)

    @contextmanager
    def or_closed(self) -> Iterator[None]:
        """Closes the folder where what is done inside fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def look_over(self, check: Check = lambda meta: None) -> None:
        """Refuses a run that cannot go on, because a file is damaged, missing or not its own; nothing is written."""
        check_config(self.path, self.config, read_environment(self.path))
        for path in (self.path / METRICS, self.checkpoint, self.path / MODEL):
            refuse_unless_file(path, "written")
        self._read_checkpoint(check)

    def note_environment(self, environment: Mapping[str, Any]) -> None:
        """Adds to environment.json where the run goes on, if that is elsewhere, or with other code, than before."""
        noted = read_environment(self.path)
        before = noted.get("resumed", [])
        last = [noted, *before][-1]
        if any(last.get(name) != value for name, value in environment.items() if name != "started"):
            write_json(self.path / ENVIRONMENT, {**noted, "resumed": [*before, dict(environment)]})

    def rewrite_config(self, config: Mapping[str, Any]) -> None:
        """Replaces config.json, where a run is to go on for longer than it was started for."""
        noted = read_environment(self.path)
        check_config(self.path, self.config, noted)
        known = noted.get(CONFIGS, [config_digest(self.config)])
        write_json(self.path / ENVIRONMENT, {**noted, CONFIGS: [*known, config_digest(config)]})
        write_json(self.path / CONFIG, dict(config))
        self.config = read_config(self.path)

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends one row of metrics. Numbers that are not finite become null, which is all that JSON has."""
        line, rows = (json.dumps(plain(row), allow_nan=False) + "\n").encode(), self._rows
        with storing(self.path / METRICS, "written"):
            append(self._metrics, line)
        rows.update(line)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Replaces the checkpoint, which remembers how long the metrics were: what is logged later is cut."""
        with storing(self.path / METRICS, "written"):
            os.fsync(self._metrics.fileno())
            logged = os.fstat(self._metrics.fileno()).st_size
        metrics = {"metrics_bytes": logged, "metrics_sha256": self._rows.hexdigest()}
        write_tensors(self._next_checkpoint(), tensors, {**meta, **metrics})

    @property
    def checkpoint(self) -> Path:
        """The file of the last checkpoint, or the place for the first one."""
        return self.path / CHECKPOINT

    def _next_checkpoint(self) -> Path:
        return self.checkpoint

    @property
    def has_checkpoint(self) -> bool:
        return self.checkpoint.exists()

    def load_checkpoint(self, check: Check = lambda meta: None) -> TensorFile | None:
        """The checkpoint, None where there is none yet; metrics are cut to those it was saved with."""
        checkpoint, length = self._read_checkpoint(check)
        with storing(self.path / METRICS, "cut"):
            self._metrics.truncate(length)
        vars(self).pop("_rows", None)
        return checkpoint

    def save_model(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Writes the trained model."""
        write_tensors(self.path / MODEL, tensors, meta)

    def close(self) -> None:
        """Frees the lock; may be called twice."""
        if "_metrics" in vars(self):
            self._metrics.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is not None and is_out_of_memory(error) and self._is_blank():
            self._remove()

    def _is_blank(self) -> bool:
        """Whether there is nothing but what `create` wrote."""
        blank = {CONFIG, ENVIRONMENT, METRICS, LOCK}
        return {entry.name for entry in self.path.iterdir()} == blank and not (self.path / METRICS).stat().st_size

    def _remove(self) -> None:
        """A run that did not fit into the memory never began, and would be in the way of a smaller one."""
        with storing(self.path, "removed"):
            for name in (CONFIG, ENVIRONMENT, METRICS, LOCK):  # first what makes it a run
                (self.path / name).unlink()
            self.path.rmdir()

    def _read_checkpoint(self, check: Check) -> tuple[TensorFile | None, int]:
        """The checkpoint, None where there is none yet, and how long the metrics were, which are no shorter now."""
        path, metrics = self.checkpoint, self.path / METRICS
        with storing(path, "read"):
            exists, trained = path.exists(), (self.path / MODEL).exists()
        if trained and not exists:  # going on would train over it from the start
            raise RunError(
                f"{self.path} has a trained model, but no {CHECKPOINT} to go on from: put that back, "
                "or start a new run in another folder"
            )
        checkpoint = read_tensors(path) if exists else None
        if checkpoint is not None:
            check(checkpoint.meta)
        length = _metrics_bytes(path, checkpoint) if checkpoint else 0
        with storing(metrics, "read"):
            there = metrics.stat().st_size if metrics.exists() else 0
        if there < length:  # truncating would fill it up with zeros
            raise damaged(metrics, f"it has {there} bytes, and had {length} when the checkpoint was saved")
        if checkpoint is not None:
            _check_rows(metrics, length, checkpoint.meta.get("metrics_sha256"))
        return checkpoint, length


def _metrics_bytes(path: Path, checkpoint: TensorFile) -> int:
    length = checkpoint.meta.get("metrics_bytes")
    if not isinstance(length, int):
        raise damaged(path, "it does not say how long the metrics were")
    return length


def _check_rows(metrics: Path, length: int, digest: str | None) -> None:
    """Checkpoints of earlier versions have no digest of the rows."""
    if digest is not None and digest_of_file(metrics, length).hexdigest() != digest:
        raise damaged(metrics, "its rows are not those that were there when the checkpoint was saved")


def _refuse_unless_vacant(path: Path) -> None:
    if is_run(path):
        raise FolderTakenError(f"{path} already holds a run: go on with resume=True or choose another folder")
    with storing(path, "read"):
        others = sorted(entry.name for entry in path.iterdir() if not _is_left_over(entry))
    if others:
        raise other_files(path, others[0])


def _is_left_over(entry: Path) -> bool:
    """A run that was killed before its config.json was there leaves a lock, perhaps an environment; hidden files
    (.DS_Store, .gitkeep, partial ones of ours) are in nobody's way."""
    if entry.name not in (LOCK, ENVIRONMENT):
        return entry.name.startswith(".")
    if in_the_way(entry):
        return False
    if entry.name == LOCK:
        with open_file(entry, "r", "read") as lock:
            return holder_of(lock) is not None
    try:
        return is_environment(read_json(entry))
    except (RunError, RecursionError):
        return False


def _remove_partial_files(path: Path) -> None:
    """Removes what a process killed inside `write_atomically` left; to be called under the lock."""
    names = "|".join(map(re.escape, (CONFIG, ENVIRONMENT, METRICS, CHECKPOINT, MODEL)))
    partial = re.compile(rf"\.({names})\.[0-9a-f]{{8}}\.tmp")
    with storing(path, "tidied up"):
        for entry in list(path.iterdir()):
            if partial.fullmatch(entry.name):
                entry.unlink(missing_ok=True)
