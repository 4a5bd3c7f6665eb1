"""CIFAR-10's binary batches are read exactly, or refused by name; its pickles are never opened."""

from pathlib import Path

import numpy as np
import pytest
import torch

from windermere.errors import DataError
from windermere.paper.data import cifar10

from .small import CIFAR_NAMES, cifar_batch, cifar_contents, pixels, write

RECORD = 3073


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as raised:
        cifar10.read(folder)
    assert "windermere data get cifar10" in str(raised.value)
    return str(raised.value)


def test_batches_are_joined_in_order_as_channels_rows_and_columns(tmp_path: Path) -> None:
    data = cifar10.read(write(tmp_path, cifar_contents(n=2)))
    expected = torch.cat([torch.from_numpy(pixels((2, 3, 32, 32), seed=i)) for i in range(1, 6)]).float() / 255
    assert torch.equal(data.train.inputs, expected)
    assert data.train.labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert data.test.labels.tolist() == [6, 6]
    assert torch.equal(data.test.inputs[0, 2, 31, 30] * 255, torch.tensor(pixels((2, 3, 32, 32), 6)[0, 2, 31, 30]))
    assert (data.name, data.classes) == ("cifar10", 10)
    assert (data.train.inputs.dtype, data.train.labels.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
@pytest.mark.parametrize("zipped", [False, True])
def test_batches_are_found_plain_or_gzipped_and_one_folder_below(tmp_path: Path, below: str, zipped: bool) -> None:
    write(tmp_path / below, cifar_contents(), zipped=zipped)
    assert len(cifar10.read(tmp_path).train.labels) == 15


@pytest.mark.parametrize("length", [0, 1, RECORD - 1, 3 * RECORD - 1, 3 * RECORD + 1])
def test_a_batch_that_is_no_whole_number_of_records_is_named(tmp_path: Path, length: int) -> None:
    write(tmp_path, cifar_contents())
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes((cifar_contents()["data_batch_3.bin"] * 2)[:length])
    assert f"{path} is truncated or corrupted: {length} bytes" in refusal(tmp_path)
    assert "delete it" in refusal(tmp_path)


def test_a_batch_cut_between_two_records_is_named(tmp_path: Path) -> None:
    write(tmp_path, cifar_contents())
    path = tmp_path / "data_batch_4.bin"
    path.write_bytes(path.read_bytes()[: 2 * RECORD])
    assert f"{path} is truncated: it has 2 images, another batch has 3" in refusal(tmp_path)


def test_a_label_over_nine_is_named(tmp_path: Path) -> None:
    batch = cifar_batch(pixels((3, 3, 32, 32)), np.array([0, 10, 1], dtype=np.uint8))
    write(tmp_path, cifar_contents() | {"test_batch.bin": batch})
    assert "test_batch.bin is corrupted: it has a label 10" in refusal(tmp_path)


@pytest.mark.parametrize(
    "name", ["data_batch_1", "test_batch", "cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1"]
)
def test_python_batches_are_refused_with_the_archive_to_get(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x80\x04.")
    sentence = refusal(tmp_path)
    assert "pickles" in sentence
    assert "cifar-10-binary.tar.gz" in sentence


def test_python_batches_beside_binary_ones_do_no_harm(tmp_path: Path) -> None:
    write(tmp_path, cifar_contents() | {"data_batch_1": b"\x80\x04."})
    assert len(cifar10.read(tmp_path).test.labels) == 3


def test_an_archive_in_the_folder_is_answered_with_how_to_unpack_it(tmp_path: Path) -> None:
    write(tmp_path, {"cifar-10-binary.tar.gz": b"..."})
    assert f"call windermere.paper.data.get('cifar10', source='{tmp_path}') to unpack it" in refusal(tmp_path)


def test_all_missing_batches_are_named(tmp_path: Path) -> None:
    sentence = refusal(tmp_path / "nothing")
    assert all(name in sentence for name in CIFAR_NAMES)
    assert "source=...) if you have the files elsewhere" in sentence
