"""What has changed since a GPU was last there, tried on one in less than ten minutes:
`PYTHONPATH=src:. python3 -m benchmarks.gpu_check FOLDER`.

What matters most comes first. Each part's output goes to FOLDER/NAME.txt, and FOLDER/check.json says how each ended;
caches of compiled kernels are empty at first, so that first calls are first ones.
"""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.gpu import ended

CUDA = ("-q", "-m", "", "-k", "cuda")
ADJOINT = "cuda and (goes_with_its_field or single_precision or adjoint)"
PARTS: dict[str, tuple[tuple[str, ...], int]] = {
    "captured": (("pytest", "-q", "tests/fast/captured", "-k", ADJOINT), 80),
    "one kernel": (("pytest", *CUDA, "tests/fast/gpu"), 70),
    "three products": (("pytest", *CUDA, "-rP", "tests/paper/fast/test_three_trial.py"), 60),
    "three products' speed": (("benchmarks.gpu_images", "--out", "images.json", "--only", "three"), 60),
    "first calls": (("benchmarks.gpu_fields", "fields.json", "time MLP"), 100),
    "spheres": (("pytest", *CUDA, "tests/paper/fast/test_fused.py"), 50),
    "sphere kernels": (("benchmarks.gpu_kernel", "--out", "spheres.json"), 50),
    "all captured": (("pytest", *CUDA, "tests/fast/captured"), 100),
}
"""Modules to run, with what they are told, and seconds that each may take: 570 in all."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("python -m benchmarks.gpu_check FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, object]] = {}
    for name, (words, seconds) in PARTS.items():
        begun = time.monotonic()
        code = _code(folder, name, words, seconds)
        last = (folder / f"{name}.txt").read_text(errors="replace").strip().splitlines()[-1:]
        found[name] = {"code": code, "seconds": round(time.monotonic() - begun), "last": last}
        (folder / "check.json").write_text(json.dumps(found, indent=1))
        print(name, json.dumps(found[name]), flush=True)
    return int(any(part["code"] for part in found.values()))


def _code(folder: Path, name: str, words: tuple[str, ...], seconds: int) -> int:
    told = [str(folder / word) if word.endswith(".json") else word for word in words]
    caches = {"XDG_CACHE_HOME": str(folder / "cache"), "TRITON_CACHE_DIR": str(folder / "triton")}
    with (folder / f"{name}.txt").open("w") as output:
        return ended(told, seconds, env={**os.environ, **caches}, stdout=output, stderr=output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
