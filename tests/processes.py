"""Real processes that run this package, on one thread."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

import windermere

ROOT = Path(__file__).parents[1]
by_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals between processes")
by_forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")


def surroundings(**changes: str) -> dict[str, str]:
    """The environment of a process that runs this package on one thread."""
    source = str(Path(windermere.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **changes}


@contextmanager
def python(*arguments: object, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs `python ARGUMENTS`, with options of `Popen`; killed at the latest when the body is left."""
    command = [sys.executable, *map(str, arguments)]
    with subprocess.Popen(command, text=True, env=surroundings(), **options) as process:
        try:
            yield process
        finally:
            process.kill()


def leave() -> NoReturn:
    """End a rank without Python's own end. gloo's threads let go of the last collective a moment after it is done, and
    need Python for that: PyTorch 2.13 aborts where Python is ending by then (DistributedDataParallel keeps them).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def answer(script: str) -> str:
    """What a fresh Python prints."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=True).stdout.strip()


def installed_script(folder: Path) -> Path:
    """The script `windermere`, as pip would write it."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "windermere"
    script.write_text("import sys\nfrom windermere.cli import main\nsys.exit(main())\n")
    return script


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """One process at a time, among those that name the same place."""
    import fcntl  # which Windows lacks

    with place.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
