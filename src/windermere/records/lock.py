"""A run folder's lock: whoever writes a run holds it, and frees it by ending, even by SIGKILL."""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from windermere.errors import FolderTakenError, RunInUseError, StorageError
from windermere.records.atomic import append, open_file, storing

if sys.platform != "win32":
    import fcntl

LOCK = "lock"


@contextmanager
def not_in_use(path: Path) -> Iterator[None]:
    """Refuses a run that some process writes, and inside lets none begin to. Nothing is written there."""
    if not (path / LOCK).exists():
        yield
        return
    with open_file(path / LOCK, "r", "read") as lock:
        _take(lock, path, shared=True)
        yield


@contextmanager
def locked(path: Path) -> Iterator[FileIO]:
    """Holds the folder's lock, for good if the body succeeds (closing the file frees it)."""
    lock = open_file(path / LOCK, "a+", "written")
    try:
        _take(lock, path)
        with storing(path / LOCK, "written"):
            if holder_of(lock) is None:
                raise other_files(path, LOCK)
            lock.truncate(0)
            append(lock, f"{os.getpid()}\n".encode())
        yield lock
    except BaseException:
        lock.close()
        raise


def _take(lock: FileIO, path: Path, *, shared: bool = False) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = f"process {pid}" if (pid := holder_of(lock)) else "another process"
        raise RunInUseError(f"{path} is in use by {holder}: wait until it ends, or choose another folder") from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):  # this disk knows no locks
            raise StorageError(f"{path / LOCK} could not be locked: {error.strerror}") from error


def holder_of(lock: FileIO) -> str | None:
    """The process that has, or had, a lock of ours; "" where it does not say yet; None where it is somebody else's."""
    lock.seek(0)
    content = lock.read(100)  # which a power cut may have made zeros of
    return content.decode().strip("\0\n") if re.fullmatch(rb"[0-9\0]{0,20}\n?", content) else None


def other_files(path: Path, name: str) -> FolderTakenError:
    return FolderTakenError(f"{path} holds other files ({name}, ...): choose a new or empty folder")
