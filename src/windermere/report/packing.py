"""Arrays as text in a page, small: rounded to a grid, differences along their first axis, deflated, in base64.

Browsers undo it by `decode.js`. Shapes: anything.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from windermere.errors import UsageError
from windermere.report.palette import Array

LEVELS = 1024
"""Grid points in a unit: scenes reach from -1 to 1 in a picture of a few hundred pixels."""
PACKED = "packed"


def pack(value: Any) -> Any:
    """The same value with each array in it as text; dicts, lists and numbers stay what they are."""
    if isinstance(value, np.ndarray):
        return _bytes(value) if value.dtype == np.uint8 else _differences(value)
    if isinstance(value, Mapping):
        return {name: pack(each) for name, each in value.items()}
    return [pack(each) for each in value] if isinstance(value, list | tuple) else value


def unpack(value: Any) -> Any:
    """What was packed; numbers are those of the grid."""
    if isinstance(value, Mapping) and PACKED in value:
        return _unpacked(value)
    if isinstance(value, Mapping):
        return {name: unpack(each) for name, each in value.items()}
    return [unpack(each) for each in value] if isinstance(value, list) else value


def _bytes(values: Array) -> dict[str, Any]:
    return {PACKED: "bytes", "shape": list(values.shape), "data": _deflated(values.tobytes())}


def _differences(values: Array) -> dict[str, Any]:
    """Low bytes first, then all high bytes, which are nearly all the same."""
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) * LEVELS >= 2**15:
        raise UsageError("an array of a scene must be finite and within 32 of zero: scale it, or leave points out")
    whole = np.round(values * LEVELS).astype(np.int64)
    steps = np.diff(whole, axis=0, prepend=np.zeros_like(whole[:1])).astype("<i2")  # wraps around, and back
    split = np.ascontiguousarray(steps.reshape(-1).view(np.uint8).reshape(-1, 2).T)
    return {PACKED: "steps", "shape": list(values.shape), "levels": LEVELS, "data": _deflated(split.tobytes())}


def _deflated(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def _unpacked(value: Mapping[str, Any]) -> Array:
    try:
        raw, shape = np.frombuffer(zlib.decompress(base64.b64decode(value["data"])), np.uint8), tuple(value["shape"])
        if value[PACKED] == "bytes":
            return raw.reshape(shape).copy()
        steps = np.ascontiguousarray(raw.reshape(2, -1).T).view("<i2").reshape(shape)
        whole: Array = np.cumsum(steps, axis=0, dtype=np.int16).astype(np.float64) / value["levels"]
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise UsageError(f"an array of the scene cannot be read ({error}): save the verdict again") from error
    return whole
