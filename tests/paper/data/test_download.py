"""Downloads are whole and right or not there at all, and every failure is a sentence."""

import gzip
import tarfile
from pathlib import Path

import pytest

from windermere.errors import DataError, StorageError, UnknownNameError, UsageError
from windermere.paper.data import get

from .downloads import ARCHIVE, CONTENTS, ZIPPED, archived, assert_complete, no_real_name, zipped
from .server import FileServer
from .small import NOWHERE, archive_catalogue, tar, write, zipped_catalogue


def test_gzipped_files_are_downloaded_checked_and_unpacked(server: FileServer, tmp_path: Path) -> None:
    paths = get("tiny", root=tmp_path, catalogues=[zipped(server)])
    assert paths == [tmp_path / "tiny" / name for name in CONTENTS]
    assert_complete(tmp_path)


def test_an_archive_is_downloaded_checked_and_unpacked(server: FileServer, tmp_path: Path) -> None:
    get("tiny", root=tmp_path, catalogues=[archived(server)])
    assert_complete(tmp_path)
    assert server.asked == [("tiny.tar.gz", None)]


def test_files_that_are_there_and_right_are_left_alone(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "one.bin.gz").write_bytes(gzip.compress(CONTENTS["one.bin"], 1))
    paths = get("tiny", root=tmp_path, catalogues=[zipped(server)])
    assert [name for name, _ in server.asked] == ["two.bin.gz"]
    assert paths[0] == tmp_path / "tiny" / "one.bin.gz"
    get("tiny", root=tmp_path, catalogues=[zipped(server)])
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["one.bin", "one.bin.gz"])
def test_files_that_are_there_and_wrong_are_replaced(server: FileServer, tmp_path: Path, name: str) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / name).write_bytes(ZIPPED["one.bin.gz"][:1000])
    paths = get("tiny", root=tmp_path, catalogues=[zipped(server)])
    assert paths[0].read_bytes() == CONTENTS["one.bin"]


def test_the_file_that_would_be_read_is_the_one_that_must_be_right(server: FileServer, tmp_path: Path) -> None:
    write(tmp_path / "tiny", CONTENTS, zipped=True)
    write(tmp_path / "tiny", {"one.bin": b"wrong, and read before one.bin.gz"})
    paths = get("tiny", root=tmp_path, catalogues=[zipped(server)])
    assert [name for name, _ in server.asked] == ["one.bin.gz"]
    assert paths[0].read_bytes() == CONTENTS["one.bin"]


def test_progress_rises_to_the_total_over_all_files(server: FileServer, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    get("tiny", root=tmp_path, progress=lambda *now: heard.append(now), catalogues=[zipped(server)])
    total = sum(map(len, ZIPPED.values()))
    assert {whole for _, whole in heard} == {total}
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1] == (total, total)
    assert len(heard) > 5


def test_corrupted_bytes_are_deleted_and_the_next_try_starts_afresh(server: FileServer, tmp_path: Path) -> None:
    catalogue = archived(server)
    damaged = bytearray(ARCHIVE)
    damaged[250_000] ^= 1
    server.files["tiny.tar.gz"] = bytes(damaged)
    with pytest.raises(DataError, match=r"not the published file .*deleted: .* their folder with source="):
        get("tiny", root=tmp_path, catalogues=[catalogue])
    assert list((tmp_path / "tiny").iterdir()) == []
    get("tiny", root=tmp_path, catalogues=[archived(server)])
    assert_complete(tmp_path)


@pytest.mark.parametrize("started", [0, 2000])
def test_a_page_that_is_not_the_file_is_refused_before_it_is_stored(
    server: FileServer, tmp_path: Path, started: int
) -> None:
    catalogue = archived(server)
    server.files["tiny.tar.gz"] = b"<html>please log in</html>" * 100
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.tar.gz.partial").write_bytes(ARCHIVE[:started])
    with pytest.raises(DataError, match=r"is a file of 2,600 bytes, but the published one has 50\d,"):
        get("tiny", root=tmp_path, catalogues=[catalogue])
    assert (tmp_path / "tiny" / "tiny.tar.gz.partial").read_bytes() == ARCHIVE[:started]


def test_a_file_the_server_does_not_have_is_a_sentence(server: FileServer, tmp_path: Path) -> None:
    catalogue = archived(server)
    server.files.clear()
    with pytest.raises(DataError, match=r"answered 404 \(Not Found\) for http://127.*tiny.tar.gz: .* with source="):
        get("tiny", root=tmp_path, catalogues=[catalogue])


def test_no_network_is_one_sentence_with_the_address_and_the_alternative(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError) as raised:
        get("tiny", root=tmp_path, catalogues=[zipped_catalogue(CONTENTS)])
    sentence = str(raised.value)
    assert f"{NOWHERE}/one.bin.gz cannot be reached" in sentence
    assert "give their folder with source=..." in sentence
    assert "\n" not in sentence


def test_an_answer_that_is_not_http_is_a_sentence(server: FileServer, tmp_path: Path) -> None:
    server.garbage = True
    with pytest.raises(DataError, match="cannot be reached"):
        get("tiny", root=tmp_path, catalogues=[archived(server)])


def test_an_archive_writes_nothing_but_the_named_files(server: FileServer, tmp_path: Path) -> None:
    outside, link, linked = (
        tarfile.TarInfo("../../outside"),
        tarfile.TarInfo("batches/one.bin"),
        tmp_path / "linked",
    )
    link.type, link.linkname = tarfile.SYMTYPE, str(linked)
    hostile = tar(CONTENTS | {"unasked.bin": b"x"}, outside, link)
    server.files["tiny.tar.gz"] = hostile
    root = tmp_path / "a" / "root"
    get("tiny", root=root, catalogues=[archive_catalogue(CONTENTS, hostile, server.url)])
    assert_complete(root)
    assert not linked.exists()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "one.bin", "root", "tiny", "two.bin"]


def test_an_archive_without_a_named_file_is_a_sentence(server: FileServer, tmp_path: Path) -> None:
    lacking = tar({"one.bin": CONTENTS["one.bin"], "two.bin": b"other"})
    server.files["tiny.tar.gz"] = lacking
    with pytest.raises(DataError, match=r"does not hold the published two.bin"):
        get("tiny", root=tmp_path, catalogues=[archive_catalogue(CONTENTS, lacking, server.url)])
    assert not (tmp_path / "tiny" / "two.bin").exists()


def test_a_root_that_cannot_be_a_folder_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/tiny could not be made"):
        get("tiny", root=tmp_path / "file", catalogues=[zipped_catalogue(CONTENTS)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_a_storage_error(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.tar.gz.partial").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"could not be written, because the disk is full"):
        get("tiny", root=tmp_path, catalogues=[archived(server)])
    assert no_real_name(tmp_path)


def test_what_cannot_be_downloaded_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sphere2 has no files to get: the spheres are computed"):
        get("sphere2", root=tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10'"):
        get("cifar", root=tmp_path)
