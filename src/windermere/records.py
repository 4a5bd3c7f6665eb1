"""A run's files on disk: written atomically, locked while in use, and read back whole or not at all.

A run folder holds

    config.json             what was asked for; written last, so its presence makes the folder a run
    environment.json        what it ran on: versions, device, commit
    metrics.jsonl           one row a line, appended while training
    checkpoint.safetensors  all that --resume needs
    model.safetensors       the trained model
    lock                    held (flock) by the process that writes the run; contains its pid

Every file but metrics.jsonl and lock is replaced in one step, so that a process killed at any moment leaves
the old version or the new one. Rows of metrics.jsonl that are younger than the checkpoint are cut when the
run is resumed, since the iterations that wrote them are carried out again.
"""

import errno
import hashlib
import json
import math
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from windermere.errors import RunError, StorageError, UsageError

if sys.platform != "win32":
    import fcntl

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
MODEL = "model.safetensors"
LOCK = "lock"

# ---------------------------------------------------------------------------------------------------------
# One file


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces `path` by `data` in one step: a reader, or a kill, finds the old file or the new one whole."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with _storing(path, "written"):
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be written, since its contents are not plain JSON: {error}"
        ) from error
    write_atomically(path, f"{text}\n".encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    try:
        return json.loads(_read(path))
    except ValueError as error:  # not JSON, or not even text
        raise _damaged(path, str(error)) from error


@dataclass(frozen=True)
class TensorFile:
    """The contents of a safetensors file of ours."""

    tensors: dict[str, Tensor]
    """By name, contiguous, on the CPU, sharing no memory."""
    meta: dict[str, Any]
    """Whatever plain JSON was stored beside them."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Writes `tensors` and `meta` as safetensors, atomically; the same contents give the same bytes."""
    # Clones, since safetensors refuses tensors that share memory, as views of an ensemble's stack do.
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order.
    header = {"windermere": json.dumps({"meta": dict(meta), "sha256": _digest(plain, dict(meta))})}
    write_atomically(path, safetensors.torch.save(plain, header))


def read_tensors(path: Path) -> TensorFile:
    """What `write_tensors` wrote, checked against its digest."""
    data = _read(path)
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        stored = json.loads(header["__metadata__"]["windermere"])
        intact = stored["sha256"] == _digest(tensors, stored["meta"])
    except (SafetensorError, ValueError, KeyError, TypeError, AssertionError, RuntimeError) as error:
        raise _damaged(path, str(error)) from error
    if not intact:
        raise _damaged(path, "its contents do not match their checksum")
    return TensorFile(tensors, stored["meta"])


def _digest(tensors: Mapping[str, Tensor], meta: dict[str, Any]) -> str:
    """SHA-256 of all there is to read, since safetensors by itself notices no flipped bit in the data."""
    digest = hashlib.sha256(json.dumps(meta).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> bytes:
    try:
        with _storing(path, "read"):
            return path.read_bytes()
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise RunError(f"{path} is missing: name a folder that a run was written to") from error
        raise


def _damaged(path: Path, reason: str) -> RunError:
    return RunError(f"{path} is damaged ({reason}): restore it, or start the run again in another folder")


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut; some file systems (and Windows) sync no folders, which is fine."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


_REFUSALS = {
    "ENOSPC": "the disk is full: free some space, or choose another folder",
    "EDQUOT": "the disk quota is used up: free some space, or choose another folder",
    "EROFS": "the disk is read-only: choose another folder",
    "EACCES": "permission is denied: change its permissions, or choose another folder",
    "EPERM": "permission is denied: change its permissions, or choose another folder",
    "ENOTDIR": "a part of its path is a file, not a folder: choose another path",
    "EEXIST": "a part of its path is a file, not a folder: choose another path",
    "EISDIR": "a folder of that name is in its place: move it away, or choose another path",
    "ENOENT": "its folder does not exist: make it, or choose another path",
    "ENAMETOOLONG": "its name is too long: choose a shorter one",
    "EIO": "the disk failed: check it, or choose another one",
}
"""Why the system refused and what to do, by the name of its error."""


@contextmanager
def _storing(path: Path, done: str) -> Iterator[None]:
    """Turns an OSError inside into a StorageError's sentence: `path` could not be `done`, why, what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        reason = _REFUSALS.get(name, f"{error.strerror or error}: choose another folder")
        raise StorageError(f"{path} could not be {done}, because {reason}") from error


# ---------------------------------------------------------------------------------------------------------
# Where a run took place


def environment(device: str) -> dict[str, Any]:
    """What a run started now on `device` runs on, for its environment.json."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "windermere": _version(),
        **_checkout(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": device,
        "device_name": _device_name(device),
        "threads": torch.get_num_threads(),
    }


def _version() -> str:
    """The package's own version, which is right for a bare PYTHONPATH too, where nothing is installed."""
    package = sys.modules[__name__.partition(".")[0]]
    try:
        return str(getattr(package, "__version__", None) or metadata.version(package.__name__))
    except metadata.PackageNotFoundError:
        return "unknown"


def _checkout() -> dict[str, Any]:
    """The commit this code runs from and whether the package differs from it; None without a checkout."""
    # An installed copy may lie in another project's checkout (in its .venv), whose commit says nothing of us:
    # there, none of our files are tracked.
    if _git("ls-files", "--error-unmatch", ".") is None:
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", "."))}


def _git(*arguments: str) -> str | None:
    # Inside a git hook these variables point at the repository being committed to, whichever that is.
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", *arguments]
    try:
        answer = subprocess.run(
            command, cwd=Path(__file__).parent, env=surroundings, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found and device.startswith("cpu"):
            return found.group(1)
    return platform.processor() or platform.machine()


# ---------------------------------------------------------------------------------------------------------
# A run that is being written


class RunFolder:
    """One run's files, open for writing.

    Opening takes an exclusive lock, so that a second process is refused; a process that dies, even by
    SIGKILL, frees it. Where there are no such locks (Windows, some network disks) it goes on without one.
    """

    path: Path
    config: dict[str, Any]
    """As config.json has it."""

    def __init__(self, path: Path, lock: FileIO) -> None:
        """For `create` and `reopen` only, which take the lock."""
        self.path = path
        self.config = _read_config(path)
        self._lock = lock
        with _storing(path / METRICS, "opened"):
            self._metrics = FileIO(path / METRICS, "a")

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> Self:
        """Starts a run in a folder that is new or empty."""
        with _storing(path, "created"):
            path.mkdir(parents=True, exist_ok=True)
        _refuse_unless_vacant(path)  # before the lock, which would leave its file in someone else's folder
        with _locked(path) as lock:
            _refuse_unless_vacant(path)  # and after it, since another process may have been faster
            _remove_partial_files(path)
            write_json(path / ENVIRONMENT, dict(environment))
            write_json(path / CONFIG, dict(config))
            return cls(path, lock)

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Opens a run to go on with it; call `load_checkpoint` before anything is logged."""
        _refuse_unless_run(path)
        with _locked(path) as lock:
            _remove_partial_files(path)
            return cls(path, lock)

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends one row of metrics. Numbers that are not finite become null, which is all that JSON has."""
        line = json.dumps(_plain(row), allow_nan=False) + "\n"
        with _storing(self.path / METRICS, "written"):
            _append(self._metrics, line.encode())

    def save_checkpoint(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Replaces the checkpoint, which remembers how long the metrics were: what is logged later is cut."""
        with _storing(self.path / METRICS, "written"):
            os.fsync(self._metrics.fileno())
            logged = os.fstat(self._metrics.fileno()).st_size
        write_tensors(self.path / CHECKPOINT, tensors, {**meta, "metrics_bytes": logged})

    def load_checkpoint(self) -> TensorFile | None:
        """The checkpoint, None where there is none yet; metrics are cut to those it was saved with."""
        path = self.path / CHECKPOINT
        with _storing(path, "read"):
            exists = path.exists()
        checkpoint = read_tensors(path) if exists else None
        self._cut_metrics(_metrics_bytes(path, checkpoint) if checkpoint else 0)
        return checkpoint

    def save_model(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Writes the trained model."""
        write_tensors(self.path / MODEL, tensors, meta)

    def close(self) -> None:
        """Frees the lock; may be called twice."""
        self._metrics.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut_metrics(self, length: int) -> None:
        path = self.path / METRICS
        with _storing(path, "cut"):
            there = os.fstat(self._metrics.fileno()).st_size
            if there < length:  # truncating would fill it up with zeros
                raise _damaged(path, f"it has {there} bytes, and had {length} when the checkpoint was saved")
            self._metrics.truncate(length)


def _metrics_bytes(path: Path, checkpoint: TensorFile) -> int:
    length = checkpoint.meta.get("metrics_bytes")
    if not isinstance(length, int):
        raise _damaged(path, "it does not say how long the metrics were")
    return length


def _append(file: FileIO, data: bytes) -> None:
    """Appends all of `data` or, where the disk fills up on the way, nothing."""
    start = os.fstat(file.fileno()).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.truncate(start)
        raise


def _plain(value: Any) -> Any:
    """`value` in JSON's terms: arrays become lists, and floats that are not finite None."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------------------------------------------------
# Who may write it


@contextmanager
def _locked(path: Path) -> Iterator[FileIO]:
    """Holds the folder's lock, for good if the body succeeds (closing the file frees it)."""
    with _storing(path / LOCK, "written"):
        lock = FileIO(path / LOCK, "a+")
    try:
        _take(lock, path)
        with _storing(path / LOCK, "written"):
            lock.truncate(0)
            _append(lock, f"{os.getpid()}\n".encode())
        yield lock
    except BaseException:
        lock.close()
        raise


def _take(lock: FileIO, path: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = f"process {pid}" if (pid := lock.read().decode().strip()) else "another process"
        raise RunError(
            f"{path} is in use by {holder}: wait until it ends, or choose another folder"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):  # this disk knows no locks
            raise StorageError(f"{path / LOCK} could not be locked: {error.strerror}") from error


def _is_run(path: Path) -> bool:
    with _storing(path, "read"):
        return (path / CONFIG).is_file() and (path / ENVIRONMENT).is_file()


def _refuse_unless_run(path: Path) -> None:
    if not _is_run(path):
        what = "is not a run" if path.exists() else "does not exist"
        raise RunError(f"{path} {what}: name a folder that `windermere train --out` has written")


def _refuse_unless_vacant(path: Path) -> None:
    if _is_run(path):
        raise RunError(f"{path} already holds a run: go on with --resume or choose another --out")
    # A run that was killed before its config.json was there leaves a lock, perhaps an environment; hidden
    # files (.DS_Store, .gitkeep, partial ones of ours) are in nobody's way.
    with _storing(path, "read"):
        others = [entry.name for entry in path.iterdir() if entry.name not in (LOCK, ENVIRONMENT)]
    visible = sorted(name for name in others if not name.startswith("."))
    if visible:
        raise RunError(f"{path} holds other files ({visible[0]}, ...): choose a new or empty folder as --out")


def _remove_partial_files(path: Path) -> None:
    """Removes what a process killed inside `write_atomically` left; to be called under the lock."""
    names = "|".join(map(re.escape, (CONFIG, ENVIRONMENT, CHECKPOINT, MODEL)))
    partial = re.compile(rf"\.({names})\.[0-9a-f]{{8}}\.tmp")
    with _storing(path, "tidied up"):
        for entry in list(path.iterdir()):
            if partial.fullmatch(entry.name):
                entry.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------------
# A run that is only read


@dataclass(frozen=True)
class Run:
    """A run with a trained model."""

    path: Path
    config: dict[str, Any]
    model: TensorFile


def read_run(path: Path) -> Run:
    """Reads a trained run; takes no lock, since files are replaced whole."""
    _refuse_unless_run(path)
    with _storing(path / MODEL, "read"):
        trained = (path / MODEL).exists()
    if not trained:
        raise RunError(f"{path} has no trained model yet: let its training end, or go on with it by --resume")
    return Run(path, _read_config(path), read_tensors(path / MODEL))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of the run in folder `path`; a last one that a kill or a live run has cut is left out."""
    _refuse_unless_run(path)
    file = path / METRICS
    lines = _read(file).split(b"\n")
    return [_row(file, number, line) for number, line in enumerate(lines[:-1], start=1)]


def _row(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise _damaged(file, f"line {number}: {error}") from error
    if not isinstance(row, dict):
        raise _damaged(file, f"line {number} is not a row")
    return row


def _read_config(path: Path) -> dict[str, Any]:
    config = read_json(path / CONFIG)
    if not isinstance(config, dict):
        raise _damaged(path / CONFIG, "it holds no settings")
    return config
