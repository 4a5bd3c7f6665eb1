"""Files of tensors and of JSON come back as they went, or are called damaged."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.records.small import CONFIG
from windermere import records
from windermere.errors import RunError, UsageError
from windermere.records import read_json, read_tensors, write_tensors


def test_tensors_of_every_kind_come_back_equal_bit_for_bit(tmp_path: Path) -> None:
    stack = torch.randn(3, 4)
    tensors = {
        "float32": stack,
        "float64": torch.randn(2, 5, dtype=torch.float64),
        "view of the stack": stack[1],
        "transposed": stack.t(),
        "requires gradient": torch.nn.Parameter(torch.randn(2)),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "bool": torch.tensor([True, False]),
        "bfloat16": torch.randn(3).bfloat16(),
        "random state": torch.get_rng_state(),
        "not finite": torch.tensor([float("nan"), float("-inf"), -0.0]),
    }
    meta = {"iteration": 50, "best": float("inf"), "precision": [0.1, 1 / 3], "nested": {"none": None}}
    write_tensors(tmp_path / "file", tensors, meta)
    read = read_tensors(tmp_path / "file")
    assert read.meta == meta
    assert read.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read.tensors[name].dtype == tensor.dtype
        assert torch.equal(read.tensors[name].nan_to_num(0.5), tensor.detach().nan_to_num(0.5)), name
    read.tensors["float32"].zero_()  # and may be written to


def test_the_same_tensors_give_the_same_bytes_whatever_their_order(tmp_path: Path) -> None:
    tensors = {name: torch.full((3,), float(ord(name))) for name in "abcdefgh"}
    write_tensors(tmp_path / "one", tensors, {"a": 1, "b": 2})
    write_tensors(tmp_path / "two", dict(reversed(tensors.items())), {"a": 1, "b": 2})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_truncated_tensor_file_is_damaged_at_any_length(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_tensors(path, {"weight": torch.randn(5, 5)}, {"iteration": 1})
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match=r"checkpoint\.safetensors is damaged"):
            read_tensors(path)


def test_no_corrupted_byte_of_a_tensor_file_is_read_as_something_else(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_tensors(path, {"weight": torch.randn(3, 2), "bias": torch.randn(4)}, {"iteration": 1})
    whole, intact = path.read_bytes(), read_tensors(path)
    for position in range(len(whole)):
        corrupted = bytearray(whole)
        corrupted[position] ^= 1 << (position % 8)
        path.write_bytes(corrupted)
        with suppress(RunError):  # the header's padding may change, and nothing is lost
            read = read_tensors(path)
            assert read.meta == intact.meta
            assert all(torch.equal(read.tensors[name], intact.tensors[name]) for name in intact.tensors)


def test_a_safetensors_file_of_someone_else_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(RunError, match="is damaged"):
        read_tensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize("read", [read_json, read_tensors])
def test_a_missing_file_is_named(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(RunError, match=r"config\.json is missing"):
        read(tmp_path / "config.json")


@pytest.mark.parametrize("contents", [b"", b'{"data": "sph', b"\xff\xfe\x00", b"config"])
def test_damaged_json_is_named(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "config.json").write_bytes(contents)
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize("value", [{"lr": float("nan")}, {"path": Path("x")}])
def test_what_json_cannot_hold_is_refused_and_leaves_the_old_file(tmp_path: Path, value: Any) -> None:
    records.write_json(tmp_path / "config.json", CONFIG)
    with pytest.raises(UsageError, match="not plain JSON"):
        records.write_json(tmp_path / "config.json", value)
    assert read_json(tmp_path / "config.json") == CONFIG


def test_a_file_written_has_the_permissions_that_any_new_file_has(tmp_path: Path) -> None:
    records.write_atomically(tmp_path / "atomic", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode
