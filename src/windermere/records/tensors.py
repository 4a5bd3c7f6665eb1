"""Named tensors and plain values in one file: safetensors with a checksum, never a pickle."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from windermere.records.atomic import damaged, read_bytes, write_atomically


@dataclass(frozen=True)
class TensorFile:
    """The contents of a safetensors file of ours."""

    tensors: dict[str, Tensor]
    """By name, contiguous, on the CPU, sharing no memory."""
    meta: dict[str, Any]
    """Whatever plain JSON was stored beside them."""


def plain(value: Any) -> Any:
    """`value` in JSON's terms: arrays become lists, and floats that are not finite None."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Writes `tensors` and `meta` as safetensors, atomically; the same contents give the same bytes."""
    # Clones, since safetensors refuses tensors that share memory, as views of an ensemble's stack do.
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order.
    header = {"windermere": json.dumps({"meta": dict(meta), "sha256": _digest(own, dict(meta))})}
    write_atomically(path, safetensors.torch.save(own, header))


def read_tensors(path: Path) -> TensorFile:
    """What `write_tensors` wrote, checked against its digest."""
    data = read_bytes(path)
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        stored = json.loads(header["__metadata__"]["windermere"])
        intact = stored["sha256"] == _digest(tensors, stored["meta"])
    except (SafetensorError, ValueError, KeyError, TypeError, AssertionError, RuntimeError) as error:
        raise damaged(path, str(error)) from error
    if not intact:
        raise damaged(path, "its contents do not match their checksum")
    return TensorFile(tensors, stored["meta"])


def _digest(tensors: Mapping[str, Tensor], meta: dict[str, Any]) -> str:
    """SHA-256 of all there is to read, since safetensors by itself notices no flipped bit in the data."""
    digest = hashlib.sha256(json.dumps(meta).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
