"""Users' fields on a GPU: captured steps beside the same solves step by step, and beside torchdiffeq.

`PYTHONPATH=src python3 -m benchmarks.gpu_fields OUT.json [NAME ...]`
"""

import json
import logging
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.users_fields import JOBS, Job, ours, theirs


def milliseconds(contenders: dict[str, Any], rounds: int = 15) -> dict[str, float]:
    """Medians, taken in turns."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            work()
            torch.cuda.synchronize()
            found[name].append(1e3 * (time.perf_counter() - begun))
    return {name: median(values) for name, values in found.items()}


def apart(found: list[Tensor], wanted: list[Tensor]) -> float:
    return max(float((a - b).norm() / (b.norm() + 1e-12)) for a, b in zip(found, wanted, strict=True))


def measure(job: Job) -> dict[str, Any]:
    captured, plain, other = ours(job, "cuda"), ours(job, "cuda", fast=False), theirs(job, "cuda")
    seconds = []
    for work in (plain, plain, captured, captured, captured, other, other):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - begun, 3))
    del result
    differs = {"from step by step": apart(captured(), plain()), "from torchdiffeq": apart(captured(), other())}
    times = milliseconds({"captured": captured, "step by step": plain, "torchdiffeq": other})
    return {"ms": times, "differs": differs, "first calls, s": seconds}


def main(out: Path, names: list[str]) -> None:
    logging.basicConfig(level=logging.INFO)
    result: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for name, job in JOBS.items():
        if names and not any(word in name for word in names):
            continue
        try:
            result[name] = measure(job)
        except Exception as error:  # noqa: BLE001 - the others go on
            result[name] = f"{type(error).__name__}: {error}"
        print(name, json.dumps(result[name]), flush=True)
        out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
