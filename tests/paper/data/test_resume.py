"""Downloads that are interrupted, cut off or killed go on where they stopped."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import by_signals, surroundings
from windermere.errors import DataError
from windermere.paper.data import Progress, get

from .downloads import ARCHIVE, CONTENTS, archived, assert_complete, no_real_name
from .server import FileServer
from .small import archive_catalogue


def interrupt_after(size: int) -> Progress:
    def progress(done: int, total: int) -> None:
        if done >= size:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_download_goes_on_where_it_stopped(server: FileServer, tmp_path: Path) -> None:
    catalogue = archived(server)
    with pytest.raises(KeyboardInterrupt):
        get("tiny", root=tmp_path, progress=interrupt_after(150_000), catalogues=[catalogue])
    assert no_real_name(tmp_path)
    kept = (tmp_path / "tiny" / "tiny.tar.gz.partial").stat().st_size
    assert 150_000 <= kept < len(ARCHIVE)
    heard: list[int] = []
    get("tiny", root=tmp_path, progress=lambda done, _: heard.append(done), catalogues=[catalogue])
    assert server.asked == [("tiny.tar.gz", None), ("tiny.tar.gz", f"bytes={kept}-")]
    assert heard[0] == kept
    assert_complete(tmp_path)


def test_a_server_that_ignores_ranges_starts_over(server: FileServer, tmp_path: Path) -> None:
    catalogue = archived(server)
    server.knows_ranges = False
    with pytest.raises(KeyboardInterrupt):
        get("tiny", root=tmp_path, progress=interrupt_after(150_000), catalogues=[catalogue])
    heard: list[int] = []
    get("tiny", root=tmp_path, progress=lambda done, _: heard.append(done), catalogues=[catalogue])
    assert server.asked[1][1] is not None
    assert heard[0] == 0
    assert_complete(tmp_path)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_connection_that_breaks_is_taken_up_again(server: FileServer, tmp_path: Path, chunked: bool) -> None:
    server.cut_after, server.chunked = 100_000, chunked
    get("tiny", root=tmp_path, catalogues=[archived(server)])
    starts = [wanted for _, wanted in server.asked]
    assert starts == [None, *(f"bytes={n}00000-" for n in range(1, 6))]
    assert_complete(tmp_path)


def test_a_connection_that_brings_nothing_is_a_sentence_and_what_came_is_kept(
    server: FileServer, tmp_path: Path
) -> None:
    server.cut_after, server.knows_ranges = 100_000, False
    with pytest.raises(DataError, match=r"tiny.tar.gz broke off after 100,000 of 50\d,\d+ bytes: run the same"):
        get("tiny", root=tmp_path, catalogues=[archived(server)])
    assert no_real_name(tmp_path)
    server.cut_after, server.knows_ranges = None, True
    get("tiny", root=tmp_path, catalogues=[archived(server)])
    assert server.asked[-1] == ("tiny.tar.gz", "bytes=100000-")
    assert_complete(tmp_path)


def test_a_whole_but_wrong_partial_file_is_not_trusted(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.tar.gz.partial").write_bytes(bytes(len(ARCHIVE) + 5))
    get("tiny", root=tmp_path, catalogues=[archived(server)])
    assert_complete(tmp_path)


def test_a_whole_and_right_partial_file_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.tar.gz.partial").write_bytes(ARCHIVE)
    get("tiny", root=tmp_path, catalogues=[archive_catalogue(CONTENTS, ARCHIVE)])
    assert_complete(tmp_path)


def test_a_range_past_the_servers_end_drops_the_partial_file(server: FileServer, tmp_path: Path) -> None:
    catalogue = archived(server)
    server.files["tiny.tar.gz"] = b"short"
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.tar.gz.partial").write_bytes(ARCHIVE[:2000])
    with pytest.raises(DataError, match="answered 416"):
        get("tiny", root=tmp_path, catalogues=[catalogue])
    assert list((tmp_path / "tiny").iterdir()) == []


DIE = "import os, signal; die = lambda: os.kill(os.getpid(), signal.SIGKILL)"
KILLED_WHILE_DOWNLOADING = """
from pathlib import Path
from windermere.paper.data import get
from windermere.paper.data.catalogue import Catalogue, DataFile, Remote
catalogue = {catalogue!r}
get("tiny", root=Path({root!r}), progress=lambda done, _: done > 150_000 and die(), catalogues=[catalogue])
"""
KILLED_WHILE_INSTALLING = """
from pathlib import Path
from windermere.paper.data.catalogue import DataFile
from windermere.paper.data.storage import install
class Stream:
    def __init__(self): self.parts = [b"some", None]
    def read(self, size): return self.parts.pop(0) or die()
install(Stream(), DataFile(name="one.bin", digest="md5:0"), Path({root!r}) / "tiny")
"""


@by_signals
@pytest.mark.parametrize("script", [KILLED_WHILE_DOWNLOADING, KILLED_WHILE_INSTALLING])
def test_a_killed_process_leaves_no_half_file_and_the_next_one_finishes(
    server: FileServer, tmp_path: Path, script: str
) -> None:
    catalogue = archived(server)
    (tmp_path / "tiny").mkdir()
    code = f"{DIE}\n{script.format(catalogue=catalogue, root=str(tmp_path))}"
    killed = subprocess.run([sys.executable, "-c", code], env=surroundings(), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert no_real_name(tmp_path)
    assert len(list((tmp_path / "tiny").iterdir())) == 1
    get("tiny", root=tmp_path, catalogues=[catalogue])
    assert_complete(tmp_path)
