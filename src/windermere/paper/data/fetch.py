"""Getting published data sets into the data folder, from the web or from another folder."""

import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from windermere.errors import DataError, UnknownNameError, UsageError
from windermere.paper.data.catalogue import OFFICIAL, Catalogue, DataFile, Remote
from windermere.paper.data.download import ELSEWHERE, bring
from windermere.paper.data.storage import (
    BROKEN,
    Readable,
    data_root,
    find,
    install,
    is_published,
    make_folder,
    open_content,
    versions,
)
from windermere.records.atomic import open_to_read, storing

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in total, over all files of a download."""


def get(
    name: str,
    *,
    root: Path | None = None,
    source: Path | None = None,
    progress: Progress | None = None,
    catalogues: Sequence[Catalogue] = OFFICIAL,
) -> list[Path]:
    """Download a data set, or take it from the folder `source`; what is there and right is left alone."""
    catalogue = _named(name, catalogues)
    folder, source = data_root(root) / name, _checked(source, catalogue)
    wanted = [file for file in catalogue.files if not _is_there(file, folder)]
    if wanted:
        make_folder(folder)
        if source is None:
            _download(catalogue, wanted, folder, progress)
        else:
            _take(catalogue, wanted, folder, source)
    return [versions(folder, file.name)[0] for file in catalogue.files]


def _named(name: str, catalogues: Sequence[Catalogue]) -> Catalogue:
    by_name = {catalogue.name: catalogue for catalogue in catalogues}
    if name.startswith("sphere"):
        raise UsageError(f"{name} has no files to get: the spheres are computed from a seed")
    if name not in by_name:
        raise UnknownNameError("data set to download", name, by_name)
    return by_name[name]


def _checked(source: Path | None, catalogue: Catalogue) -> Path | None:
    """A folder to take files from is looked for even where nothing has to be taken: its name may be a slip."""
    if source is None:
        return None
    source = source.expanduser()
    if not os.path.isdir(source):
        raise DataError(f"{source} is not a folder: give the one that the files of {catalogue.name} are in")
    return source


def _is_there(file: DataFile, folder: Path) -> bool:
    return any(is_published(path, file) for path in versions(folder, file.name)[:1])


def _download(catalogue: Catalogue, wanted: Sequence[DataFile], folder: Path, progress: Progress | None) -> None:
    packed_in = {remote: [file for file in wanted if file.name in remote.holds] for remote in catalogue.remotes}
    remotes = [remote for remote, files in packed_in.items() if files]
    total, done = sum(remote.size for remote in remotes), 0
    for remote in remotes:
        packed = bring(remote, folder, _shifted(done, total, progress))
        if left := _unpack(remote, packed, packed_in[remote], folder):
            raise DataError(f"{remote.url} does not hold the published {_list(left)}: {ELSEWHERE}")
        with storing(packed, "deleted"):
            packed.unlink(missing_ok=True)
        done += remote.size


def _shifted(done: int, total: int, progress: Progress | None) -> Callable[[int], None]:
    return lambda more: progress(done + more, total) if progress else None


def _take(catalogue: Catalogue, wanted: Sequence[DataFile], folder: Path, source: Path) -> None:
    """Every file the source has, single or in an archive; then a complaint about what it has not."""
    left = [file for file in wanted if not _take_file(file, folder, source)]
    for remote in catalogue.remotes:
        for archive in find(source, remote.name) if left and remote.is_archive else []:
            left = _unpack(remote, archive, left, folder)
    if left:
        raise DataError(_complaint(catalogue, left, source))


def _take_file(file: DataFile, folder: Path, source: Path) -> bool:
    return any(_install_from(path, file, folder) for path in versions(source, file.name))


def _install_from(path: Path, file: DataFile, folder: Path) -> bool:
    with storing(path, "read"), open_content(path) as content:
        return install(content, file, folder)


def _complaint(catalogue: Catalogue, left: Sequence[DataFile], source: Path) -> str:
    archives = [remote.name for remote in catalogue.remotes if remote.is_archive]
    damaged = [*(path for file in left for path in versions(source, file.name)), *find(source, *archives)]
    if damaged:
        names = ", ".join(str(path) for path in damaged)
        return (
            f"truncated, corrupted or not the published data: {names}; replace this and run the same command "
            f"again for {_list(left)}"
        )
    if refused := find(source, *catalogue.refused):
        return f"{refused[0]} cannot be used: {catalogue.refusal}"
    instead = f" (or {' or '.join(archives)})" if archives else ""
    return (
        f"neither {source} nor a folder in it has {_list(left)}{instead}: the other files are in place, "
        "add these and run the same command again"
    )


def _unpack(remote: Remote, packed: Path, wanted: Sequence[DataFile], folder: Path) -> list[DataFile]:
    """Install those of the wanted files that are in the packed one, and return those that are not."""
    left = {file.name: file for file in wanted}
    with storing(packed, "read"), suppress(*BROKEN):
        for name, content in _contents(remote, packed):
            if name in left and install(content, left[name], folder):
                del left[name]
    return list(left.values())


def _contents(remote: Remote, packed: Path) -> Iterator[tuple[str, Readable]]:
    """Names and contents. Members are read, not extracted: no path, link or mode of theirs gets anywhere."""
    if not remote.is_archive:
        with open_content(packed) as content:
            yield remote.holds[0], content
        return
    with open_to_read(packed) as file, tarfile.open(fileobj=file) as archive:
        for member in archive:
            if member.isreg() and (unpacked := archive.extractfile(member)):
                yield member.name.rsplit("/", 1)[-1], unpacked


def _list(files: Iterable[DataFile]) -> str:
    return ", ".join(file.name for file in files)
