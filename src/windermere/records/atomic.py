"""One file: written whole or not at all, and an OSError turned into a sentence."""

import errno
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from windermere.errors import RunError, StorageError, UsageError


def write_atomically(path: Path, data: bytes) -> os.stat_result:
    """Replaces `path` by `data` in one step: a reader, or a kill, finds the old file or the new one whole. Returns what
    the system says of the new one."""
    refuse_unless_file(path, "written")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with storing(path, "written"):
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                written = os.fstat(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    return written


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def in_the_way(path: Path) -> str | None:
    """What is in the place of a file, so that none may be written there; None for a file, or nothing. A link is not
    followed: a file in its place would be a surprise, and one at its other end another."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if kind == stat.S_IFREG else _KINDS.get(kind, "something else")


def refuse_unless_file(path: Path, done: str) -> None:
    """Says what else than a file, which may be missing, is in its place."""
    with storing(path, done):
        if what := in_the_way(path):
            raise StorageError(f"{path} could not be {done}, because {what} {_IN_ITS_PLACE}")


def open_file(path: Path, mode: str, done: str) -> FileIO:
    """A file that is read or added to where it is; no link is followed, and no pipe waited for."""
    refuse_unless_file(path, done)
    with storing(path, done):
        return FileIO(path, mode, opener=lambda name, flags: os.open(name, flags | _NO_LINK, 0o666))


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    try:
        text = json.dumps(value, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path} cannot be written, since its contents are not plain JSON: {error}") from error
    write_atomically(path, f"{text}\n".encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:  # not JSON, not even text, or brackets without end
        raise damaged(path, str(error)) from error


def read_bytes(path: Path) -> bytes:
    try:
        with storing(path, "read"), open_to_read(path) as file:
            return file.read()
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise RunError(f"{path} is missing: name a folder that a run was written to") from error
        raise


@contextmanager
def open_to_read(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open to be read: a pipe would wait for its writer for ever, and some devices have no end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _not_a_file(path, "read")
        yield file


def _not_a_file(path: Path, done: str) -> StorageError:
    reason = "it is a pipe or a device, not a file: move it away, or choose another path"
    return StorageError(f"{path} could not be {done}, because {reason}")


def damaged(path: Path, reason: str) -> RunError:
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


_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_IN_ITS_PLACE = "of that name is in its place: move it away, or choose another path"
_REFUSALS = {
    "ENOSPC": "the disk is full: free some space, or choose another folder",
    "EDQUOT": "the disk quota is used up: free some space, or choose another folder",
    "EROFS": "the disk is read-only: choose another folder",
    "EACCES": "permission is denied: change its permissions, or choose another folder",
    "EPERM": "permission is denied: change its permissions, or choose another folder",
    "ENOTDIR": "a part of its path is a file, not a folder: choose another path",
    "EEXIST": "a part of its path is a file, not a folder: choose another path",
    "EISDIR": f"a folder {_IN_ITS_PLACE}",
    "ELOOP": f"a link {_IN_ITS_PLACE}",
    "ENXIO": f"a socket {_IN_ITS_PLACE}",
    "ENOENT": "its folder does not exist: make it, or choose another path",
    "ENAMETOOLONG": "its name is too long: choose a shorter one",
    "EIO": "the disk failed: check it, or choose another one",
}
"""Why the system refused and what to do, by the name of its error."""


@contextmanager
def storing(path: Path, done: str) -> Iterator[None]:
    """Turns an OSError inside into a StorageError's sentence: `path` could not be `done`, why, what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        reason = _REFUSALS.get(name, f"{error.strerror or error}: choose another folder")
        raise StorageError(f"{path} could not be {done}, because {reason}") from error


def append(file: FileIO, data: bytes) -> None:
    """Appends all of `data` or, where the disk fills up on the way, nothing."""
    start = os.fstat(file.fileno()).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.truncate(start)
        raise
