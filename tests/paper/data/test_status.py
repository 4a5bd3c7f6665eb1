"""What is on the machine is told apart by full checksums: present, missing, corrupt."""

import gzip
from pathlib import Path

from windermere.paper.data import status

from .small import mnist_contents, random_bytes, write, zipped_catalogue

CONTENTS = {f"{name}.bin": random_bytes(500, seed) for seed, name in enumerate(("one", "two", "three", "four"))}
CATALOGUE = zipped_catalogue(CONTENTS)


def test_present_missing_and_corrupt_files_are_told_apart(tmp_path: Path) -> None:
    folder = write(tmp_path / "tiny", {"one.bin": CONTENTS["one.bin"], "two.bin": CONTENTS["two.bin"][::-1]})
    (folder / "three.bin.gz").write_bytes(gzip.compress(CONTENTS["three.bin"], 1))
    (record,) = status(tmp_path, catalogues=[CATALOGUE])
    assert (record.name, record.folder) == ("tiny", folder)
    assert record.present == (folder / "one.bin", folder / "three.bin.gz")
    assert record.corrupt == (folder / "two.bin",)
    assert record.missing == ("four.bin",)
    assert not record.complete


def test_a_truncated_gzip_file_is_corrupt(tmp_path: Path) -> None:
    write(tmp_path / "tiny", {"one.bin.gz": gzip.compress(CONTENTS["one.bin"])[:-3]})
    (record,) = status(tmp_path, catalogues=[CATALOGUE])
    assert record.corrupt == (tmp_path / "tiny" / "one.bin.gz",)


def test_a_whole_data_set_is_complete(tmp_path: Path) -> None:
    write(tmp_path / "tiny", CONTENTS)
    (record,) = status(tmp_path, catalogues=[CATALOGUE])
    assert record.complete


def test_the_official_sets_are_listed_and_small_imitations_are_not_taken_for_them(tmp_path: Path) -> None:
    write(tmp_path / "mnist", mnist_contents())
    mnist, cifar10 = status(tmp_path)
    assert (mnist.name, len(mnist.corrupt), len(mnist.missing)) == ("mnist", 4, 0)
    assert (cifar10.name, len(cifar10.corrupt), len(cifar10.missing)) == ("cifar10", 0, 6)
