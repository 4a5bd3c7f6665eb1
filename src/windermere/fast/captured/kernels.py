"""The kernels of steps.cu on a device, compiled by NVRTC."""

import ctypes
import logging
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from windermere.fast.gpu.driver import Loaded, architecture, load
from windermere.fast.gpu.images import IMAGES, Source
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY

STEPS = Source(Path(__file__).with_name("steps.cu"))
NAMES = ("move", "fetch", "aim", "measure", "decide", "commit")
BLOCK, THREADS, MOST_TERMS = 1024, 256, 7
MEANINGS = tuple(
    f"-D{name}={value!r}"
    for name, value in (
        *(("BLOCK", BLOCK), ("SAFETY", SAFETY)),
        *(("MOST_GROWTH", MOST_GROWTH), ("MOST_SHRINKING", MOST_SHRINKING)),
    )
)


class Terms(ctypes.Structure):
    """A sum of tensors with weights, as in steps.cu."""

    _fields_ = (("k", ctypes.c_void_p * MOST_TERMS), ("w", ctypes.c_float * MOST_TERMS), ("count", ctypes.c_int))


class Kernels(Protocol):
    """Whoever runs them: a GPU, or in tests a CPU."""

    def launch(self, name: str, blocks: int, *given: Any) -> None:
        """Begin a kernel. What it only holds, and does not name, comes as lists of tensors."""


class OnGpu:
    """A device's."""

    def __init__(self, loaded: Loaded, index: int) -> None:
        self.loaded, self.index = loaded, index

    def launch(self, name: str, blocks: int, *given: Any) -> None:
        self.loaded.launch(name, blocks, THREADS, arguments(given), self.index)


def arguments(given: tuple[Any, ...]) -> list[Any]:
    """A kernel's arguments as C has them."""
    return [_argument(x) for x in given if not isinstance(x, list)]


def _argument(x: Any) -> Any:
    if x is None or isinstance(x, Tensor):
        return ctypes.c_void_p(None if x is None else x.data_ptr())
    return ctypes.c_int(x) if isinstance(x, int) else x


def kernels_of(device: torch.device) -> Kernels | None:
    """None where there are none, which is told once."""
    if device.type != "cuda":
        return None
    return _on_gpu(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _on_gpu(index: int) -> OnGpu | None:
    options = (architecture(index), "--std=c++17", f"-DTHREADS={THREADS}", *MEANINGS)
    try:
        image = IMAGES.ask(STEPS, options, wait=True)
        assert image is not None
        return OnGpu(load(image, index), index)
    except Exception as reason:  # noqa: BLE001 - PyTorch's operations do it then
        logging.getLogger("windermere").info("captured steps without kernels of their own: %s", reason)
        return None
