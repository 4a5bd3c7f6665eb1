"""Every benchmark of the GPU, one after the other: `PYTHONPATH=src python3 -m benchmarks.gpu FOLDER [NAME ...]`.

Each writes FOLDER/NAME.json as it goes; one that fails or runs out of time leaves what it has, and the rest goes on.
All take about fifteen minutes on an H200.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPTS = {
    "gpu_fields": ([], 300),
    "gpu_training": (["--out"], 120),
    "gpu_peers": ([], 300),
    "gpu_images": (["--out"], 300),
    "gpu_image_kernel": ([], 420),
    "gpu_kernel": (["--out"], 120),
}
"""How each is told where to write, and seconds that it may take."""


def main(arguments: list[str]) -> int:
    if not arguments or set(arguments[1:]) - set(SCRIPTS):
        known = ", ".join(SCRIPTS)
        print(f"python -m benchmarks.gpu FOLDER [NAME ...], names are {known}", file=sys.stderr)
        return 2
    folder, failed = Path(arguments[0]), []
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or SCRIPTS:
        flags, seconds = SCRIPTS[name]
        begun = time.monotonic()
        if ended([f"benchmarks.{name}", *flags, str(folder / f"{name}.json")], seconds) != 0:
            failed.append(name)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    print(f"results are in {folder}" + (f"; not to the end: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def ended(module: Sequence[str], seconds: float, **how: Any) -> int:
    """The exit status of a module that is run with what follows its name; 124 where it took too long."""
    try:
        return subprocess.run([sys.executable, "-m", *module], timeout=seconds, check=False, **how).returncode
    except subprocess.TimeoutExpired:
        return 124


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
