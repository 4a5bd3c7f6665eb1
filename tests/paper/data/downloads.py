"""What the tests of downloads serve, and what a finished one looks like."""

import gzip
from pathlib import Path

from windermere.paper.data.catalogue import Catalogue

from .server import FileServer
from .small import archive_catalogue, random_bytes, tar, zipped_catalogue

CONTENTS = {"one.bin": random_bytes(300_000, seed=1), "two.bin": random_bytes(200_000, seed=2)}
ZIPPED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}
ARCHIVE = tar(CONTENTS)


def zipped(server: FileServer) -> Catalogue:
    server.files |= ZIPPED
    return zipped_catalogue(CONTENTS, server.url)


def archived(server: FileServer) -> Catalogue:
    server.files["tiny.tar.gz"] = ARCHIVE
    return archive_catalogue(CONTENTS, ARCHIVE, server.url)


def assert_complete(root: Path) -> None:
    """All files, right, and nothing else: no partial file, no archive."""
    found = {path.name: path.read_bytes() for path in (root / "tiny").iterdir()}
    assert found == CONTENTS


def no_real_name(root: Path) -> bool:
    return all(path.name.endswith(".partial") for path in (root / "tiny").iterdir())
