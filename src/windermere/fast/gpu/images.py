"""Machine code of kernels: from the user's cache, or compiled in a process apart, while solves go another way."""

import ctypes
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import torch

from windermere.fast.cpu.native_cache import SEAL, cache_folder, is_sound, keep, workplace
from windermere.fast.gpu import compiling

SECONDS = 120
"""The most that a compilation may take."""
ELF = b"\x7fELF"
"""How machine code begins."""


class UnusableError(Exception):
    """Why there are no kernels."""


@dataclass(frozen=True)
class Source:
    """A text in CUDA C, and what it includes."""

    path: Path
    included: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Compiler:
    """An NVRTC."""

    library: str
    companions: tuple[str, ...]
    version: tuple[int, int]

    def compiled(self, source: Source, options: tuple[str, ...]) -> bytes:
        """Machine code, by a process apart: neither the end of this one nor Ctrl-C stops it half-way."""
        (own, *included) = ([path.name, path.read_text()] for path in (source.path, *source.included))
        asked: dict[str, Any] = {"library": self.library, "companions": self.companions, "options": options}
        asked |= {"source": own, "included": included}
        words, given = [sys.executable, "-I", "-S", compiling.__file__], json.dumps(asked).encode()
        try:
            done = subprocess.run(
                words, input=given, capture_output=True, timeout=SECONDS, check=False, start_new_session=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UnusableError(f"NVRTC cannot be run ({error})") from error
        if done.returncode or not done.stdout.startswith(ELF):
            raise UnusableError(f"NVRTC does not compile them: {done.stderr.decode(errors='replace')[:2000]}")
        return done.stdout


def library_name() -> str:
    """NVRTC's, of the CUDA that PyTorch was made for."""
    return f"libnvrtc.so.{(torch.version.cuda or '0').split('.')[0]}"


@cache
def installed() -> Compiler:
    """NVRTC as PyTorch brings it along, or the system's."""
    name = library_name()
    for path in _brought_along(name):
        with suppress(OSError):
            return opened(path)
    try:
        ctypes.CDLL(name)
        return opened(_place_of(name))
    except OSError as error:
        raise UnusableError(f"there is no {name}") from error


def _place_of(name: str) -> Path:
    """Where a library lies that this process has loaded: another one may not find it by its name."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        *_, place = line.split(maxsplit=5)
        if Path(place).name.startswith(name):
            return Path(place)
    raise FileNotFoundError(name)


def opened(path: Path) -> Compiler:
    """The NVRTC in this file, and what it asks for by name alone when it compiles; an OSError where it is none."""
    companions = tuple(map(str, sorted(path.parent.glob("libnvrtc-builtins.so.*"))))
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(str(path)).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return Compiler(str(path), companions, (major.value, minor.value))


def _brought_along(name: str) -> Iterator[Path]:
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        yield from sorted(Path(folder).glob(f"*/lib/{name}*"))


class Images:
    """What has been compiled, or is being compiled, in this process."""

    def __init__(self, compiler: Callable[[], Compiler] = installed) -> None:
        self.compiler, self.lock = compiler, Lock()
        self.threads: list[Thread] = []
        self.futures: dict[tuple[Source, tuple[str, ...]], Future[bytes]] = {}

    def ask(self, source: Source, options: tuple[str, ...], *, wait: bool = False) -> bytes | None:
        """Machine code; None while it is being compiled, if the caller does not wait. UnusableError where that failed,
        at every time: it is tried once."""
        with self.lock:
            future = self.futures.get((source, options))
            if future is None:
                future = self.futures[source, options] = self._begun(source, options)
        return future.result() if wait or future.done() else None

    def _begun(self, source: Source, options: tuple[str, ...]) -> Future[bytes]:
        future: Future[bytes] = Future()
        try:
            compiler, kept = self.compiler(), None
            with suppress(OSError):
                kept = _place(source, options, compiler)
            if kept is not None and is_sound(kept):
                future.set_result(kept.read_bytes()[:-SEAL])
                return future
        except Exception as error:  # noqa: BLE001 - for each who asks
            future.set_exception(error)
            return future

        def work() -> None:
            try:
                image = compiler.compiled(source, options)
            except BaseException as error:  # noqa: BLE001 - for each who asks
                future.set_exception(error)
                return
            future.set_result(image)
            if kept is not None:
                with suppress(OSError):
                    _keep(image, kept)

        # A daemon: nobody waits for it at the end of this process.
        thread = Thread(target=work, name="windermere compiles a kernel", daemon=True)
        self.threads.append(thread)
        thread.start()
        return future


def _place(source: Source, options: tuple[str, ...], compiler: Compiler) -> Path:
    """The file in the cache. Its name stands for all that it is made of."""
    texts = [path.read_text() for path in (source.path, *source.included)]
    made_of = "\n".join([*texts, *options, str(compiler.version)])
    return cache_folder() / f"{source.path.stem}-{sha256(made_of.encode()).hexdigest()[:16]}.cubin"


def _keep(image: bytes, kept: Path) -> None:
    with workplace(kept.parent) as folder:
        fresh = folder / "fresh.cubin"
        fresh.write_bytes(image)
        keep(fresh, kept)


IMAGES = Images()
