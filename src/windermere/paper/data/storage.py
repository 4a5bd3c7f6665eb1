"""Where data files lie and how they are found, read, checked and written."""

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from windermere.errors import DataError, MissingDataError
from windermere.paper.data.catalogue import Catalogue, DataFile
from windermere.records.atomic import open_to_read, storing

CHUNK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
BROKEN = (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError)
"""What a truncated or damaged gzip or tar file raises (BadGzipFile is an OSError, so ask for these first)."""


class Readable(Protocol):
    """A stream of bytes: a file, a gzip stream, a member of an archive."""

    def read(self, size: int = -1, /) -> bytes: ...


def data_root(root: Path | None = None) -> Path:
    """The argument, else WINDERMERE_DATA, else ~/.cache/windermere/datasets."""
    chosen = root or os.environ.get("WINDERMERE_DATA") or "~/.cache/windermere/datasets"
    return Path(chosen).expanduser()


def make_folder(folder: Path) -> None:
    with storing(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)


def find(folder: Path, *names: str) -> list[Path]:
    """All that bears one of the names, in the folder itself first and then one level below it."""
    if not os.path.isdir(folder):
        return []
    with storing(folder, "read"):
        places = [folder, *sorted(entry for entry in folder.iterdir() if os.path.isdir(entry))]
    return [place / name for place in places for name in names if os.path.exists(place / name)]


def versions(folder: Path, name: str) -> list[Path]:
    """A data file as it is or gzipped; the first is the one that is read."""
    return find(folder, name, f"{name}.gz")


def locate(catalogue: Catalogue, folder: Path) -> dict[str, Path]:
    """Each of the data set's files by name; all that is missing is named at once."""
    found = {file.name: versions(folder, file.name) for file in catalogue.files}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        raise _refusal(catalogue, folder, missing)
    return {name: paths[0] for name, paths in found.items()}


def _refusal(catalogue: Catalogue, folder: Path, missing: list[str]) -> DataError:
    if refused := find(folder, *catalogue.refused):
        command = f"`windermere data get {catalogue.name}`"
        return DataError(f"{refused[0]} cannot be used: {catalogue.refusal} (or run {command})")
    absent = f"{folder} has no {', '.join(missing)}"
    if archives := find(folder, *(remote.name for remote in catalogue.remotes if remote.is_archive)):
        return MissingDataError(f"{absent}, but {archives[0].name}", catalogue.name, archives[0])
    return MissingDataError(absent, catalogue.name)


def damaged(path: Path, what: str, data_set: str) -> DataError:
    """The one sentence for a file that is there but not right."""
    return DataError(f"{path} {what}: delete it and run `windermere data get {data_set}`")


@contextmanager
def open_content(path: Path) -> Iterator[Readable]:
    """The file's content, unpacked if it is gzipped.

    Its first bytes decide, not its name: browsers unpack on the way and keep the `.gz`. No data file of ours
    starts with gzip's two bytes: idx has zeros there, CIFAR-10 a label from 0 to 9.
    """
    with open_to_read(path) as packed:
        magic = packed.read(2)
        packed.seek(0)
        if magic != GZIP_MAGIC:
            yield packed
            return
        with gzip.GzipFile(fileobj=packed) as content:
            yield content


def read_content(path: Path, data_set: str) -> bytes:
    with storing(path, "read"):
        try:
            with open_content(path) as content:
                return content.read()
        except BROKEN as error:
            raise damaged(path, f"is truncated or corrupted ({error})", data_set) from error


def matches(content: Readable, digest: str, copy_to: IO[bytes] | None = None) -> bool:
    """Whether the content has this digest; on the way it can be copied, so that it is read only once."""
    algorithm, published = digest.split(":")
    running = hashlib.new(algorithm, usedforsecurity=False)
    while chunk := content.read(CHUNK):
        running.update(chunk)
        if copy_to:
            copy_to.write(chunk)
    return running.hexdigest() == published


def is_published(path: Path, file: DataFile) -> bool:
    """Whether the file holds, byte for byte, what was published."""
    with storing(path, "read"):
        try:
            with open_content(path) as content:
                return matches(content, file.digest)
        except BROKEN:
            return False


def install(content: Readable, file: DataFile, folder: Path) -> bool:
    """Write the content under the file's name, whole and checked, or not at all.

    False means that it is not the published content. Two processes may do this at once, so each writes to a
    partial file of its own.
    """
    target = folder / file.name
    partial = folder / f"{file.name}.{os.getpid()}.partial"
    with storing(target, "written"):
        try:
            with partial.open("wb") as handle:
                right = matches(content, file.digest, copy_to=handle)
                handle.flush()
                os.fsync(handle.fileno())  # otherwise a power cut may keep the name and lose the bytes
            if right:
                partial.replace(target)
                _sweep(target)
        except BROKEN:
            right = False
        finally:
            partial.unlink(missing_ok=True)
    return right


def _sweep(target: Path) -> None:
    """Remove what killed processes left: the target is there, so nobody needs these any more."""
    for litter in target.parent.glob(f"{target.name}.[0-9]*.partial"):
        litter.unlink(missing_ok=True)
