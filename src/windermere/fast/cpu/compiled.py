"""C code compiled by the machine's own compiler when it is first needed, and kept for later processes."""

import ctypes
import logging
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from windermere.fast.cpu.native_cache import cache_folder, is_sound, keep, sweep, workplace

SOURCE = Path(__file__).with_name("native.c")
PARTS = ("vectors", "sphere", "table", "math", "rows", "adaptive", "samples", "classifier")
INCLUDED = tuple(Path(__file__).with_name(f"native_{part}.h") for part in PARTS)
OPTIONS = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread")
LIBRARIES = ("-lm",)
FUNCTIONS = ("there", "back", "adapt", "adjoin")
OF_ROWS = ("adapt_samples",)
"""What a row program's library has beside these."""
SECONDS = 120.0
"""How long a compiler may take, in seconds. Most take one or two."""
_TOO_SLOW: list[list[str]] = []
"""Compilers that took longer than that: this process does not try them again."""
_APART: dict[str, Any] = {} if sys.platform == "win32" else {"start_new_session": True, "umask": 0o077}
"""How a compiler is started: so that it can be ended with all its children, and only this user can read its files."""
INSTEAD = "PyTorch operations do its work, more slowly; WINDERMERE_NATIVE=0 asks for that without this line"


@cache
def library(real: str, field: str) -> ctypes.CDLL | None:
    """The library compiled from native.c, now or by an earlier process, for float or double and a kind of field; None
    where there is no compiler or it fails."""
    if os.environ.get("WINDERMERE_NATIVE") == "0" or (compiler := _compiler()) is None or compiler in _TOO_SLOW:
        return None
    try:
        own = OF_ROWS if field == "rows" else ()
        return _typed(_loaded([*compiler, *OPTIONS, f"-DREAL={real}", f'-DFIELD="native_{field}.h"']), own)
    except subprocess.TimeoutExpired:
        _TOO_SLOW.append(compiler)
        _say(f"{compiler[0]} did not compile the C code in {SECONDS:g} seconds: {INSTEAD}")
    except subprocess.SubprocessError as error:
        _say(f"{compiler[0]} cannot compile the C code ({error}): {INSTEAD}")
    except (OSError, AttributeError, ValueError) as error:
        _say(f"the C code cannot be used ({error}): {INSTEAD}")
    return None


@cache
def vector_bytes(real: str, field: str) -> int:
    """The bytes of one vector of the compiled code, as many as the processor's have; 0 without compiled code."""
    loaded = library(real, field)
    return 0 if loaded is None else ctypes.c_long.in_dll(loaded, "vector_bytes").value


@cache
def _say(what: str) -> None:
    """Logs one line as a warning; the same line only once in a process."""
    logging.getLogger("windermere").warning(" ".join(what.split()))


def _compiler() -> list[str] | None:
    command: list[str] = []
    with suppress(ValueError):  # quotes that do not close
        command = shlex.split(os.environ.get("CC", "cc"))
    if command and shutil.which(command[0]):
        return command
    _say(f"there is no C compiler '{os.environ.get('CC', 'cc')}' for the C code: {INSTEAD}")
    return None


def _typed(loaded: ctypes.CDLL, own: tuple[str, ...]) -> ctypes.CDLL:
    """The library with its functions' types declared. AttributeError or ValueError where it is not ours, as when `CC`
    names a program that is no compiler."""
    for name in (*FUNCTIONS, *own):
        function = getattr(loaded, name)
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_long), None
    loaded.measure.argtypes, loaded.measure.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    loaded.classify.argtypes, loaded.classify.restype = (ctypes.c_long,) * 4 + (ctypes.c_void_p,) * 9, ctypes.c_long
    ctypes.c_long.in_dll(loaded, "vector_bytes")
    return loaded


def _loaded(command: list[str]) -> ctypes.CDLL:
    """The library from the user's cache; where nothing can be kept there, from a folder that is then removed."""
    try:
        return ctypes.CDLL(str(_kept(command, cache_folder())))
    except OSError as error:
        _say(
            f"compiled C code cannot be kept ({error}): it is compiled for this process alone; to keep it, let "
            "XDG_CACHE_HOME name a folder where only you may write"
        )
    with workplace() as folder:
        return ctypes.CDLL(str(_compiled(command, folder)))


def _kept(command: list[str], home: Path) -> Path:
    """The library's file in the cache. Its name stands for the source, the command and the processor."""
    made_of = "\n".join([*(path.read_text() for path in (SOURCE, *INCLUDED)), shlex.join(command), _processor()])
    kept = home / f"native-{sha256(made_of.encode()).hexdigest()[:16]}.so"
    sweep(home, 2 * SECONDS)
    if not is_sound(kept):
        with workplace(home) as folder:
            keep(_compiled(command, folder), kept)
    return kept


def _compiled(command: list[str], folder: Path) -> Path:
    """A library compiled into this folder. The compiler's temporary files are there too, and are removed with it."""
    fresh, said = folder / "native.so", folder / "said"
    words = [*command, str(SOURCE), "-o", str(fresh), *LIBRARIES]
    with said.open("x+b") as output:
        code = _run(words, output.fileno(), {**os.environ, "TMPDIR": str(folder)})
        if code or not fresh.is_file():
            output.seek(0)
            raise subprocess.SubprocessError(_reason(output.read().decode(errors="replace")))
    return fresh


def _run(words: list[str], output: int, environment: dict[str, str]) -> int:
    """The compiler's exit code. If it takes too long, or at Ctrl-C, it is ended with all that it has started."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, **_APART
        )
    except OSError as error:
        raise subprocess.SubprocessError(str(error)) from error
    try:
        return process.wait(SECONDS)
    except BaseException:
        _end(process)
        raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with suppress(ProcessLookupError):  # at Ctrl-C Python waits a little: it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if "error" in line), "it does not say why")


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        return "\n".join(sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*$", text, re.MULTILINE))))
    return f"{platform.machine()} {platform.processor()}"
