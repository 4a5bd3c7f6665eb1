"""Where compiled libraries are kept: in a folder of the user's own, each sealed with a digest of what it is.

A library runs with all rights of the process that loads it. So one is loaded only if nobody else can have written it:
the file is this user's own, and others may write neither it nor any folder on the way to it. And it is loaded only if
it is whole, since a damaged one would kill the process.
"""

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

FOR_OTHERS_TO_WRITE = 0o022
LARGEST = 1 << 26
"""Bytes. Ours have a thousandth of that."""
SEAL = sha256().digest_size
BEGUN = "compiling-"
"""How the folders are called in which something is compiled; who is killed there leaves one."""


def cache_folder() -> Path:
    """The user's own folder for libraries, made if need be; where there is none, an OSError says why."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # to be ignored, as the XDG specification has it
        home = os.path.join(_home(), ".cache")
    ours = [Path(os.path.realpath(os.path.join(home, *names))) for names in (["windermere"], ["windermere", "native"])]
    for folder in (*reversed(ours[-1].parents), ours[-1]):
        _make(folder)
        if folder in ours:
            _keep_others_out(folder)
        _refuse_unless_trusted(folder)
    return ours[-1]


def _home() -> Path:
    try:
        home = Path.home()
    except RuntimeError as error:
        raise FileNotFoundError("there is no home directory") from error
    if not home.is_absolute():
        raise FileNotFoundError(f"the home directory '{home}' is not an absolute path")
    return home


def _make(folder: Path) -> None:
    """Makes a folder for this user alone, whatever the umask."""
    if folder.is_dir():
        return
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        if not folder.is_dir():  # or else another process was faster
            raise
    else:
        folder.chmod(0o700)


def _keep_others_out(folder: Path) -> None:
    """Takes other users' right to write away, which a lax umask may have left on a folder that an earlier version or a
    download made."""
    found = folder.lstat()
    mode = stat.S_IMODE(found.st_mode)
    private = (mode | 0o700) & ~FOR_OTHERS_TO_WRITE
    if mode != private and _is_own(found):
        folder.chmod(private)


def _refuse_unless_trusted(folder: Path) -> None:
    """Refuses a folder unless only its owner may write there, who must be this user or the system's; or everybody may,
    but can move nothing of others (as in /tmp)."""
    if sys.platform == "win32":
        return
    found = folder.lstat()
    system = (0, os.lstat("/").st_uid)  # which is not 0 where a container shows its users under other numbers
    if found.st_uid not in (os.geteuid(), *system):
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & FOR_OTHERS_TO_WRITE and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(f"other users may write in {folder}")


def _is_own(found: os.stat_result) -> bool:
    return sys.platform == "win32" or found.st_uid == os.geteuid()


@contextmanager
def workplace(folder: Path | None = None) -> Iterator[Path]:
    """A new private folder inside this one, or among the temporary ones; gone afterwards."""
    if folder is None:
        folder = Path(os.path.realpath(tempfile.gettempdir()))
        for part in (*reversed(folder.parents), folder):
            _refuse_unless_trusted(part)
    place = Path(tempfile.mkdtemp(prefix=BEGUN, dir=folder))
    try:
        place.chmod(0o700)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sweep(folder: Path, seconds: float) -> None:
    """Removes what processes left that were killed while they compiled, longer ago than that takes."""
    for begun in folder.glob(f"{BEGUN}*"):
        try:
            is_old = time.time() - begun.lstat().st_mtime > seconds
        except FileNotFoundError:  # its process has just ended
            continue
        if is_old:
            shutil.rmtree(begun, ignore_errors=True)


def is_sound(kept: Path) -> bool:
    """Whether it is a file that only this user can have written, and whole."""
    try:
        with open(kept, "rb", opener=_opened) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > LARGEST:
                return False
            if sys.platform != "win32" and found.st_mode & FOR_OTHERS_TO_WRITE:
                return False
            content = file.read()
    except OSError:
        return False
    return content[-SEAL:] == _seal(kept.name, content[:-SEAL])


def _opened(path: str, flags: int) -> int:
    """Opens a file without following a link or waiting for a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def keep(fresh: Path, kept: Path) -> None:
    """Puts a library that was just compiled in its place, in one step. What is there goes, unless it is a folder."""
    content, sealed = fresh.read_bytes(), fresh.with_name("sealed")
    with open(sealed, "xb") as file:
        sealed.chmod(0o600)
        file.write(content + _seal(kept.name, content))  # a loader minds no bytes after the last that it knows of
        file.flush()
        os.fsync(file.fileno())
    sealed.replace(kept)


def _seal(name: str, content: bytes) -> bytes:
    """The digest that seals a library. It covers the file's name too, which says for which processor the library is."""
    return sha256(name.encode() + b"\n" + content).digest()
