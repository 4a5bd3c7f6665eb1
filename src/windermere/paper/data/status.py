"""What is already on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windermere.paper.data.catalogue import OFFICIAL, Catalogue
from windermere.paper.data.storage import data_root, is_published, versions


@dataclass(frozen=True, kw_only=True)
class DataStatus:
    """What there is of a data set on this machine, by full checksums."""

    name: str
    folder: Path
    present: tuple[Path, ...]
    """Files that are, byte for byte, the published ones."""
    missing: tuple[str, ...]
    corrupt: tuple[Path, ...]
    """Files that are there and differ from the published ones."""

    @property
    def complete(self) -> bool:
        return not self.missing and not self.corrupt


def status(root: Path | None = None, *, catalogues: Sequence[Catalogue] = OFFICIAL) -> list[DataStatus]:
    """Every data set that has files, and how complete it is."""
    return [_status(catalogue, data_root(root) / catalogue.name) for catalogue in catalogues]


def _status(catalogue: Catalogue, folder: Path) -> DataStatus:
    found = {file: versions(folder, file.name) for file in catalogue.files}
    right = {file: is_published(paths[0], file) for file, paths in found.items() if paths}
    return DataStatus(
        name=catalogue.name,
        folder=folder,
        present=tuple(found[file][0] for file in right if right[file]),
        missing=tuple(file.name for file, paths in found.items() if not paths),
        corrupt=tuple(found[file][0] for file in right if not right[file]),
    )
