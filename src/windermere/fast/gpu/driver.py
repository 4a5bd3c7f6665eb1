"""Kernels compiled by NVRTC when they are first needed, kept for later processes, and launched by CUDA's driver."""

import ctypes
import importlib.util
import logging
from contextlib import nullcontext, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from windermere.fast.cpu.native_cache import SEAL, cache_folder, is_sound, keep, workplace
from windermere.fast.gpu.encoding import Machine
from windermere.fast.gpu.plan import Plan, Walk

SOURCE = Path(__file__).with_name("rows.cu")
INCLUDED = tuple(
    Path(__file__).with_name(f"rows_{part}.h") for part in ("math", "program", "walk", "fixed", "adaptive")
)
KERNELS = ("there", "back", "adapt", "gather")
REALS = {torch.float32: "float", torch.float64: "double"}
THREADS, LANES = 256, 32
OLDEST = (7, 0)
"""The compute capability from which on a kernel's arguments may be read where they are."""
MOST_ON_CHIP, MOST_OF_A_BLOCK = 8, 97
"""CUDA's numbers for how much memory on chip a function may have, and a block can have."""


class UnusableError(Exception):
    """Why there are no kernels."""


class Gpu:
    """The GPUs of this machine."""

    threads, lanes = THREADS, LANES

    def processors(self, device: torch.device) -> int:
        return int(torch.cuda.get_device_properties(device).multi_processor_count)

    def chip(self, device: torch.device) -> int:
        """0 where kernels cannot be had, which is told once."""
        return _chip(_index(device))

    def together(self, plan: Plan, dtype: torch.dtype, device: torch.device) -> int:
        return _together(REALS[dtype], plan.machine.rows, plan.chip, _index(device))

    def launch(
        self, name: str, walk: Walk, machine: Machine, blocks: int, chip: int, like: Tensor, *, together: bool = False
    ) -> None:
        """Begin a kernel in PyTorch's current stream."""
        index = _index(like.device)
        with nullcontext() if torch.cuda.current_device() == index else torch.cuda.device(index):
            loaded = _loaded(REALS[like.dtype], machine.rows, index)
            function = loaded.function(name, chip)
            stream = ctypes.c_void_p(torch.cuda.current_stream(index).cuda_stream)
            parameters = (ctypes.c_void_p * 1)(ctypes.addressof(walk))
            begin = loaded.driver.cuLaunchCooperativeKernel if together else loaded.driver.cuLaunchKernel
            given: list[Any] = [blocks, 1, 1, machine.threads, 1, 1, chip, stream, parameters]
            _check(begin(function, *given, *([] if together else [None])), f"launching {name}")


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _check(code: int, doing: str) -> None:
    if code:
        raise RuntimeError(f"CUDA's driver says {code} when {doing}")


class _Loaded:
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


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _chip(index: int) -> int:
    properties = torch.cuda.get_device_properties(index)
    try:
        if (properties.major, properties.minor) < OLDEST or torch.version.hip is not None:
            raise UnusableError("the GPU is too old, or not NVIDIA's")
        _driver()
        _compiler()
        _loaded("float", 1, index)
    except (UnusableError, OSError, AttributeError, RuntimeError) as reason:
        logging.getLogger("windermere").info("no kernels for fields in one piece: %s", reason)
        return 0
    found = ctypes.c_int()
    _check(_driver().cuDeviceGetAttribute(ctypes.byref(found), MOST_OF_A_BLOCK, index), "asking for its size")
    return found.value


@cache
def _together(real: str, rows: int, chip: int, index: int) -> int:
    found, properties = ctypes.c_int(), torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        loaded = _loaded(real, rows, index)
        function = loaded.function("adapt", chip)
        asked = loaded.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        _check(asked(ctypes.byref(found), function, THREADS, ctypes.c_size_t(chip)), "asking for room")
    return found.value * int(properties.multi_processor_count)


@cache
def _loaded(real: str, rows: int, index: int) -> _Loaded:
    """The kernels for a kind of number and size of tile, on a device."""
    properties = torch.cuda.get_device_properties(index)
    image = _image(real, rows, f"sm_{properties.major}{properties.minor}")
    module = ctypes.c_void_p()
    with torch.cuda.device(index):
        torch.cuda.current_stream(index).synchronize()  # there is a context from now on
        _check(_driver().cuModuleLoadData(ctypes.byref(module), image), "loading kernels")
    return _Loaded(_driver(), module)


def _image(real: str, rows: int, architecture: str) -> bytes:
    """Machine code from the user's cache, or compiled now."""
    options = [f"--gpu-architecture={architecture}", "--std=c++17", f"-DREAL={real}", f"-DROWS={rows}"]
    options.append(f"-DTHREADS={THREADS}")
    try:
        home = cache_folder()
    except OSError:
        return _compiled(options)
    texts = [path.read_text() for path in (SOURCE, *INCLUDED)]
    made_of = "\n".join([*texts, *options, str(_version())])
    kept = home / f"rows-{sha256(made_of.encode()).hexdigest()[:16]}.cubin"
    if is_sound(kept):
        return kept.read_bytes()[:-SEAL]
    image = _compiled(options)
    with suppress(OSError), workplace(home) as folder:
        fresh = folder / "rows.cubin"
        fresh.write_bytes(image)
        keep(fresh, kept)
    return image


@cache
def _compiler() -> ctypes.CDLL:
    """NVRTC, as PyTorch brings it along, or the system's."""
    name = f"libnvrtc.so.{(torch.version.cuda or '0').split('.')[0]}"
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).glob(f"*/lib/{name}*")):
            with suppress(OSError):
                return _with_builtins(path)
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise UnusableError(f"there is no {name}") from error


def _with_builtins(path: Path) -> ctypes.CDLL:
    """A library and what it asks for by name alone when it compiles: it finds what is loaded already."""
    for other in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def _version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _compiler().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _compiled(options: list[str]) -> bytes:
    compiler, program = _compiler(), ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(INCLUDED))(*[path.read_bytes() for path in INCLUDED])
    names = (ctypes.c_char_p * len(INCLUDED))(*[path.name.encode() for path in INCLUDED])
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    made = compiler.nvrtcCreateProgram(
        ctypes.byref(program), SOURCE.read_bytes(), SOURCE.name.encode(), len(INCLUDED), texts, names
    )
    if made or compiler.nvrtcCompileProgram(program, len(options), words):
        raise UnusableError(f"NVRTC does not compile them: {_log(compiler, program)}")
    try:
        return _read(compiler, program, "CUBIN")
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _log(compiler: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    return _read(compiler, program, "ProgramLog").decode(errors="replace")[:2000]


def _read(compiler: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(compiler, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    if getattr(compiler, f"nvrtcGet{what}")(program, room):
        raise UnusableError(f"NVRTC gives no {what}")
    return room.raw
