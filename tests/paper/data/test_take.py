"""`get(name, source=folder)`: files that are already somewhere are checked and copied, and what lacks is named."""

import gzip
from pathlib import Path

import pytest

from windermere.errors import DataError
from windermere.paper.data import get

from .small import archive_catalogue, random_bytes, tar, write, zipped_catalogue

CONTENTS = {"one.bin": random_bytes(5000, seed=1), "two.bin": random_bytes(4000, seed=2)}
ARCHIVE = tar(CONTENTS)
ZIPPED, ARCHIVED = zipped_catalogue(CONTENTS), archive_catalogue(CONTENTS, ARCHIVE)


def assert_complete(root: Path) -> None:
    assert {path.name: path.read_bytes() for path in (root / "tiny").iterdir()} == CONTENTS


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "raw"])
def test_files_are_taken_plain_or_gzipped_from_the_folder_or_one_below(
    tmp_path: Path, zipped: bool, below: str
) -> None:
    write(tmp_path / "source" / below, CONTENTS, zipped=zipped)
    paths = get("tiny", root=tmp_path, source=tmp_path / "source", catalogues=[ZIPPED])
    assert paths == [tmp_path / "tiny" / name for name in CONTENTS]
    assert_complete(tmp_path)


@pytest.mark.parametrize("below", ["", "downloads"])
def test_an_archive_is_taken_from_the_folder_or_one_below(tmp_path: Path, below: str) -> None:
    write(tmp_path / "source" / below, {"tiny.tar.gz": ARCHIVE})
    get("tiny", root=tmp_path, source=tmp_path / "source", catalogues=[ARCHIVED])
    assert_complete(tmp_path)


def test_an_archive_packed_anew_will_do_since_its_members_are_checked(tmp_path: Path) -> None:
    write(tmp_path / "source", {"tiny.tar.gz": gzip.compress(gzip.decompress(ARCHIVE), 1)})
    get("tiny", root=tmp_path, source=tmp_path / "source", catalogues=[ARCHIVED])
    assert_complete(tmp_path)


def test_an_archive_in_the_data_folder_itself_can_be_unpacked_there(tmp_path: Path) -> None:
    write(tmp_path / "tiny", {"tiny.tar.gz": ARCHIVE, "one.bin": b"damaged"})
    paths = get("tiny", root=tmp_path, source=tmp_path / "tiny", catalogues=[ARCHIVED])
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())


def test_a_right_copy_is_found_behind_a_wrong_one(tmp_path: Path) -> None:
    write(tmp_path / "source", {"one.bin": b"wrong", "two.bin": CONTENTS["two.bin"]})
    write(tmp_path / "source" / "raw", CONTENTS, zipped=True)
    get("tiny", root=tmp_path, source=tmp_path / "source", catalogues=[ZIPPED])
    assert_complete(tmp_path)


def test_the_source_is_left_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "source", CONTENTS, zipped=True)
    before = {path: path.read_bytes() for path in (tmp_path / "source").iterdir()}
    get("tiny", root=tmp_path, source=tmp_path / "source", catalogues=[ZIPPED])
    assert {path: path.read_bytes() for path in (tmp_path / "source").iterdir()} == before


def test_what_is_missing_is_named_and_the_rest_is_taken(tmp_path: Path) -> None:
    source = write(tmp_path / "source", {"one.bin": CONTENTS["one.bin"]})
    with pytest.raises(DataError, match=r"source nor a folder in it has two.bin \(or tiny.tar.gz\)") as raised:
        get("tiny", root=tmp_path, source=source, catalogues=[ARCHIVED])
    assert "one.bin" not in str(raised.value)
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == ["one.bin"]
    write(source, {"two.bin": CONTENTS["two.bin"]})
    get("tiny", root=tmp_path, source=source, catalogues=[ARCHIVED])
    assert_complete(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("two.bin", CONTENTS["two.bin"][:-1]),
        ("two.bin.gz", gzip.compress(CONTENTS["two.bin"])[:-1]),
        ("two.bin.gz", gzip.compress(b"another file")),
        ("tiny.tar.gz", ARCHIVE[:6000]),
        ("tiny.tar.gz", b"no archive at all"),
    ],
    ids=["cut", "cut gzip", "other content", "cut archive", "no archive"],
)
def test_a_damaged_file_is_named_and_not_taken(tmp_path: Path, name: str, content: bytes) -> None:
    source = write(tmp_path / "source", {"one.bin": CONTENTS["one.bin"], name: content})
    with pytest.raises(DataError, match=rf"corrupted or not the published data: .*/{name}; replace .* two.bin"):
        get("tiny", root=tmp_path, source=source, catalogues=[ARCHIVED])
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == ["one.bin"]


@pytest.mark.parametrize("name", ["tiny-python.tar.gz", "tiny-py/one"])
def test_pickles_are_refused_with_the_archive_to_get(tmp_path: Path, name: str) -> None:
    path = tmp_path / "source" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match=r"tiny-py.* cannot be used: it is pickles: get tiny.tar.gz instead"):
        get("tiny", root=tmp_path, source=tmp_path / "source", catalogues=[ARCHIVED])


@pytest.mark.parametrize("kind", ["file", "absent"])
@pytest.mark.parametrize("complete", [False, True])
def test_a_source_that_is_no_folder_is_a_sentence_even_where_nothing_lacks(
    tmp_path: Path, kind: str, complete: bool
) -> None:
    (tmp_path / "file").write_text("")
    if complete:
        write(tmp_path / "tiny", CONTENTS)
    with pytest.raises(DataError, match=f"{kind} is not a folder"):
        get("tiny", root=tmp_path, source=tmp_path / kind, catalogues=[ZIPPED])
