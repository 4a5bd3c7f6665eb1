"""C code compiled by the machine's own compiler when it is first needed, and kept for later processes."""

import ctypes
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).with_name("native.c")
PARTS = ("vectors", "sphere", "table", "layers", "adaptive")
INCLUDED = tuple(Path(__file__).with_name(f"native_{part}.h") for part in PARTS)
OPTIONS = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread")
LIBRARIES = ("-lm",)
FUNCTIONS = ("there", "back", "adapt")


@cache
def library(real: str, field: str) -> ctypes.CDLL | None:
    """native.c for float or double and a kind of field, compiled now or by an earlier process; None where that cannot
    be."""
    command: list[str] = []
    with suppress(ValueError):  # quotes that do not close
        command = shlex.split(os.environ.get("CC", "cc"))
    if os.environ.get("WINDERMERE_NATIVE") == "0" or not command or shutil.which(command[0]) is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        loaded = _loaded([*command, *OPTIONS, f"-DREAL={real}", f'-DFIELD="native_{field}.h"'])
        for name in FUNCTIONS:
            function = getattr(loaded, name)
            function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_long), None
        loaded.measure.argtypes, loaded.measure.restype = (ctypes.c_void_p, ctypes.c_void_p), None
        return loaded
    return None


@cache
def vector_bytes(real: str, field: str) -> int:
    """Of one of its vectors: as many as the processor's have."""
    loaded = library(real, field)
    return 0 if loaded is None else ctypes.c_long.in_dll(loaded, "vector_bytes").value


def _loaded(command: list[str]) -> ctypes.CDLL:
    """From the user's cache; where nothing can be kept there, from a folder that goes as soon as it is loaded."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return ctypes.CDLL(str(_compiled(command, Path(cache) / "windermere")))
    except (OSError, RuntimeError):  # as from Path.home, where there is none
        with tempfile.TemporaryDirectory() as folder:
            return ctypes.CDLL(str(_compiled(command, Path(folder))))


def _compiled(command: list[str], home: Path) -> Path:
    """Kept under a name that says from what, how and for which processor it was made."""
    made_of = "\n".join([*(path.read_text() for path in (SOURCE, *INCLUDED)), shlex.join(command), _processor()])
    kept = home / f"native-{sha256(made_of.encode()).hexdigest()[:16]}.so"
    if not kept.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            fresh = Path(folder) / kept.name
            subprocess.run([*command, str(SOURCE), "-o", str(fresh), *LIBRARIES], check=True, capture_output=True)
            fresh.replace(kept)
    return kept


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        return "\n".join(sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*$", text, re.MULTILINE))))
    return f"{platform.machine()} {platform.processor()}"
