"""Kernels that were compiled by NVRTC (images.py), launched by CUDA's driver."""

import ctypes
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from windermere._torch_private import stream_of
from windermere.fast.gpu.encoding import Machine
from windermere.fast.gpu.images import IMAGES, Images, Source, UnusableError, installed
from windermere.fast.gpu.plan import Plan, Walk

HERE = Path(__file__).parent
ROWS = Source(
    HERE / "rows.cu", tuple(HERE / f"rows_{part}.h" for part in ("math", "program", "walk", "fixed", "adaptive"))
)
KERNELS = ("there", "back", "adapt", "gather")
REALS = {torch.float32: "float", torch.float64: "double"}
THREADS, LANES = 256, 32
OLDEST = (7, 0)
"""The compute capability from which on a kernel's arguments may be read where they are."""
MOST_ON_CHIP, MOST_OF_A_BLOCK = 8, 97
"""CUDA's numbers for how much memory on chip a function may have, and a block can have."""


class Gpu:
    """The GPUs of this machine."""

    threads, lanes = THREADS, LANES

    def __init__(self, images: Images = IMAGES, *, waits: bool = False) -> None:
        """`waits` for kernels that are being compiled: otherwise others solve meanwhile."""
        self.images, self.waits, self.lock = images, waits, Lock()
        self.loaded: dict[tuple[str, int, int], Loaded | None] = {}
        """Kernels by kind of number, size of tile and device; None where there are none."""

    def processors(self, device: torch.device) -> int:
        return _processors(_index(device))

    def chip(self, device: torch.device) -> int:
        """0 where kernels cannot be had, which is told once."""
        return _chip(_index(device))

    def ready(self, machine: Machine, dtype: torch.dtype, device: torch.device) -> bool:
        key = REALS[dtype], machine.rows, _index(device)
        with self.lock:
            if key not in self.loaded:
                try:
                    found = self._load(*key)
                except Exception as reason:  # noqa: BLE001 - others solve then
                    _say(f"no kernels for fields in one piece: {reason}")
                    self.loaded[key] = None
                else:
                    if found is None:
                        _say("kernels for fields in one piece are being compiled; until then solves go another way")
                        return False
                    self.loaded[key] = found
            return self.loaded[key] is not None

    def _load(self, real: str, rows: int, index: int) -> "Loaded | None":
        """The kernels; None while they are being compiled."""
        image = self.images.ask(ROWS, _options(real, rows, index), wait=self.waits)
        return None if image is None else load(image, index)

    def together(self, plan: Plan, dtype: torch.dtype, device: torch.device) -> int:
        index = _index(device)
        return _together(self._kernels(dtype, plan.machine, index), plan.chip, index)

    def _kernels(self, dtype: torch.dtype, machine: Machine, index: int) -> "Loaded":
        loaded = self.loaded[REALS[dtype], machine.rows, index]
        assert loaded is not None
        return loaded

    def launch(
        self, name: str, walk: Walk, machine: Machine, blocks: int, chip: int, like: Tensor, *, together: bool = False
    ) -> None:
        """Begin a kernel in PyTorch's current stream."""
        index = _index(like.device)
        with on_device(index):
            loaded = self._kernels(like.dtype, machine, index)
            sizes, given = (blocks, 1, 1, machine.threads, 1, 1, chip), [ctypes.addressof(walk)]
            loaded.begin(name, sizes, ctypes.c_void_p(stream_of(index)), given, together=together)


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _check(code: int, doing: str) -> None:
    if code:
        raise RuntimeError(f"CUDA's driver says {code} when {doing}")


class Loaded:
    """Kernels on one device."""

    def __init__(self, driver: ctypes.CDLL, module: ctypes.c_void_p) -> None:
        self.driver, self.module = driver, module
        self.functions: dict[str, tuple[ctypes.c_void_p, int]] = {}

    def function(self, name: str, chip: int) -> ctypes.c_void_p:
        """A kernel that may have so much memory on chip."""
        function, allowed = self.functions.get(name, (ctypes.c_void_p(), -1))
        if allowed < 0:
            _check(self.driver.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()), "looking it up")
        if chip > allowed:
            _check(self.driver.cuFuncSetAttribute(function, MOST_ON_CHIP, chip), "asking for memory on chip")
            self.functions[name] = function, chip
        return function

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Any], index: int) -> None:
        """Begin a kernel with these arguments in PyTorch's current stream of this device."""
        with on_device(index):
            sizes, given = (blocks, 1, 1, threads, 1, 1, 0), [ctypes.addressof(x) for x in arguments]
            self.begin(name, sizes, ctypes.c_void_p(stream_of(index)), given)

    def begin(
        self, name: str, sizes: Sequence[int], stream: ctypes.c_void_p, given: list[int], *, together: bool = False
    ) -> None:
        """Begin a kernel: `sizes` are blocks and threads in each of three directions, and its memory on chip."""
        function, arguments = self.function(name, sizes[-1]), (ctypes.c_void_p * len(given))(*given)
        if together:
            code = self.driver.cuLaunchCooperativeKernel(function, *sizes, stream, arguments)
        else:
            code = self.driver.cuLaunchKernel(function, *sizes, stream, arguments, None)
        if code:
            _check(code, f"launching {name}")


def on_device(index: int) -> AbstractContextManager[Any]:
    return nullcontext() if torch.cuda.current_device() == index else torch.cuda.device(index)


@cache
def _processors(index: int) -> int:
    return int(torch.cuda.get_device_properties(index).multi_processor_count)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _say(what: str) -> None:
    logging.getLogger("windermere").info(what)


@cache
def _chip(index: int) -> int:
    properties, found = torch.cuda.get_device_properties(index), ctypes.c_int()
    try:
        if (properties.major, properties.minor) < OLDEST or torch.version.hip is not None:
            raise UnusableError("the GPU is too old, or not NVIDIA's")
        installed()
        _check(_driver().cuDeviceGetAttribute(ctypes.byref(found), MOST_OF_A_BLOCK, index), "asking for its size")
    except (UnusableError, OSError, AttributeError, RuntimeError) as reason:
        _say(f"no kernels for fields in one piece: {reason}")
        return 0
    return found.value


@cache
def _together(loaded: Loaded, chip: int, index: int) -> int:
    found = ctypes.c_int()
    with torch.cuda.device(index):
        function = loaded.function("adapt", chip)
        asked = loaded.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        _check(asked(ctypes.byref(found), function, THREADS, ctypes.c_size_t(chip)), "asking for room")
    return found.value * _processors(index)


def load(image: bytes, index: int) -> Loaded:
    """The kernels of an image, on a device."""
    module = ctypes.c_void_p()
    with torch.cuda.device(index):
        torch.cuda.current_stream(index).synchronize()  # there is a context from now on
        _check(_driver().cuModuleLoadData(ctypes.byref(module), image), "loading kernels")
    return Loaded(_driver(), module)


def _options(real: str, rows: int, index: int) -> tuple[str, ...]:
    return (architecture(index), "--std=c++17", f"-DREAL={real}", f"-DROWS={rows}", f"-DTHREADS={THREADS}")


def architecture(index: int) -> str:
    """The option that names a device's."""
    properties = torch.cuda.get_device_properties(index)
    return f"--gpu-architecture=sm_{properties.major}{properties.minor}"
