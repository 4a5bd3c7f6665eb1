"""MNIST's idx files are read exactly, or refused by name with what to do."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from windermere.errors import DataError, StorageError
from windermere.paper.data import load, mnist

from .small import idx, mnist_contents, pixels, write

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def refusal(folder: Path) -> str:
    """The sentence, which must name the cure."""
    with pytest.raises(DataError) as raised:
        mnist.read(folder)
    assert "delete it and run `windermere data get mnist`" in str(raised.value)
    return str(raised.value)


def test_pixels_become_fractions_of_255_and_labels_integers(tmp_path: Path) -> None:
    data = mnist.read(write(tmp_path, mnist_contents(train=12)))
    expected = torch.from_numpy(pixels((12, 28, 28), seed=12)).float()[:, None] / 255
    assert torch.equal(data.train.inputs, expected)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert data.test.inputs.shape == (4, 1, 28, 28)
    assert (data.name, data.classes) == ("mnist", 10)
    assert (data.test.inputs.dtype, data.test.labels.dtype) == (torch.float32, torch.int64)


def test_a_patch_holds_the_means_of_its_sixteen_pixels(tmp_path: Path) -> None:
    write(tmp_path / "mnist", mnist_contents(train=3, test=1002))
    data, whole = load("mnist-patches", root=tmp_path), load("mnist", root=tmp_path)
    image = whole.train.inputs[2, 0].reshape(7, 2, 2, 7, 2, 2)  # place, row of the patch, row of the pixel; columns
    expected = image.mean(dim=(2, 5)).permute(1, 3, 0, 2).reshape(4, 7, 7)
    torch.testing.assert_close(data.train.inputs[2], expected)
    assert data.train.labels.tolist() == whole.train.labels.tolist()
    assert (data.name, data.test.inputs.shape, data.classes) == ("mnist-patches", (1000, 4, 7, 7), 10)


def test_white_is_exactly_one_and_black_exactly_zero(tmp_path: Path) -> None:
    contents = mnist_contents()
    contents[IMAGES] = idx(np.repeat(np.array([0, 255], dtype=np.uint8), 3 * 784).reshape(6, 28, 28))
    values = mnist.read(write(tmp_path, contents)).train.inputs.flatten(1)
    assert values.sum(dim=1).tolist() == [0, 0, 0, 784, 784, 784]


def test_gzipped_and_plain_files_agree(tmp_path: Path) -> None:
    plain = mnist.read(write(tmp_path / "plain", mnist_contents()))
    zipped = mnist.read(write(tmp_path / "zipped", mnist_contents(), zipped=True))
    for part in ("train", "test"):
        assert torch.equal(getattr(plain, part).inputs, getattr(zipped, part).inputs)
        assert torch.equal(getattr(plain, part).labels, getattr(zipped, part).labels)


def test_a_file_that_a_browser_unpacked_but_still_calls_gz_is_read(tmp_path: Path) -> None:
    write(tmp_path, {f"{name}.gz": content for name, content in mnist_contents().items()})
    assert len(mnist.read(tmp_path).train.labels) == 6


def test_files_one_folder_below_are_found(tmp_path: Path) -> None:
    write(tmp_path / "raw", mnist_contents())
    assert len(mnist.read(tmp_path).train.labels) == 6


def test_all_missing_files_are_named_with_what_to_do(tmp_path: Path) -> None:
    contents = mnist_contents()
    del contents[IMAGES], contents["t10k-labels-idx1-ubyte"]
    with pytest.raises(DataError) as raised:
        mnist.read(write(tmp_path, contents))
    for expected in (
        str(tmp_path),
        IMAGES,
        "t10k-labels-idx1-ubyte",
        "run `windermere data get mnist`",
        "call windermere.paper.data.get('mnist', source=...) if you have the files elsewhere",
    ):
        assert expected in str(raised.value)
    assert LABELS not in str(raised.value)


@pytest.mark.parametrize("length", [0, 3, 15, 16, 17, 16 + 6 * 784 - 1])
def test_a_truncated_idx_file_is_named_with_what_to_do(tmp_path: Path, length: int) -> None:
    write(tmp_path, mnist_contents())
    (tmp_path / IMAGES).write_bytes(mnist_contents()[IMAGES][:length])
    sentence = refusal(tmp_path)
    assert str(tmp_path / IMAGES) in sentence
    assert "truncated" in sentence


def test_an_idx_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    write(tmp_path, mnist_contents())
    (tmp_path / LABELS).write_bytes(mnist_contents()[LABELS] + b"\0")
    assert "announces 6 bytes and 7 follow" in refusal(tmp_path)


@pytest.mark.parametrize("kept", [1, 12, 100, -9, -1])
def test_a_truncated_gzip_file_is_named_with_what_to_do(tmp_path: Path, kept: int) -> None:
    write(tmp_path, mnist_contents(), zipped=True)
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:kept])
    assert str(path) in refusal(tmp_path)


@pytest.mark.parametrize("where", [2, 20, 1000, -6, -1])
def test_a_corrupted_gzip_file_is_named_with_what_to_do(tmp_path: Path, where: int) -> None:
    write(tmp_path, mnist_contents(), zipped=True)
    path = tmp_path / f"{IMAGES}.gz"
    damaged = bytearray(path.read_bytes())
    damaged[where] ^= 0xFF
    path.write_bytes(damaged)
    assert str(path) in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (IMAGES, idx(np.zeros(4704, dtype=np.uint8)), "not an idx file of 3 dimensions (magic 0x00000801)"),
        (LABELS, idx(pixels((6, 1, 1))), "not an idx file of 1 dimensions (magic 0x00000803)"),
        (IMAGES, b"<html>" * 10, "not an idx file of 3 dimensions"),
        (IMAGES, idx(pixels((6, 28, 27))), "images of 28 x 27 pixels instead of 28 x 28"),
        (IMAGES, idx(pixels((0, 28, 28))), "announces 0 x 28 x 28 bytes and 0 follow"),
        (LABELS, idx(np.array([0, 1, 2, 3, 4, 10], dtype=np.uint8)), "it has a label 10"),
        (LABELS, idx(np.zeros(5, dtype=np.uint8)), f"5 labels for the 6 images of {IMAGES}"),
    ],
    ids=["labels", "images", "web page", "narrow images", "no images", "label 10", "label missing"],
)
def test_a_file_of_another_kind_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    write(tmp_path, mnist_contents() | {name: content})
    assert str(tmp_path / name) in refusal(tmp_path)
    assert sentence in refusal(tmp_path)


def test_a_header_that_announces_more_than_memory_holds_is_only_a_sentence(tmp_path: Path) -> None:
    header = np.array([0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1], dtype=">u4").tobytes()
    write(tmp_path, mnist_contents() | {IMAGES: header})
    assert "and 0 follow" in refusal(tmp_path)


def test_a_folder_in_a_files_place_is_a_storage_error(tmp_path: Path) -> None:
    contents = mnist_contents()
    del contents[LABELS]
    write(tmp_path, contents)
    (tmp_path / LABELS).mkdir()
    with pytest.raises(StorageError, match=f"{LABELS} could not be read"):
        mnist.read(tmp_path)


def test_the_plain_file_is_preferred_to_the_gzipped_one(tmp_path: Path) -> None:
    """`windermere data get` writes plain files, so a bad gzipped one no longer matters after it."""
    write(tmp_path, mnist_contents())
    (tmp_path / f"{IMAGES}.gz").write_bytes(gzip.compress(b"bad"))
    assert len(mnist.read(tmp_path).train.labels) == 6
