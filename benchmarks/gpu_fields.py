"""Users' fields on a GPU: one kernel and captured steps beside the same solves step by step, torchdiffeq, diffrax and
`lax.scan`.

`PYTHONPATH=src python3 -m benchmarks.gpu_fields OUT.json [NAME ...]`
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.users_fields import CNF, JOBS, Job, ours, theirs
from benchmarks.users_fields_jax import jax_contenders
from windermere.fast.gpu.driver import KERNELS
from windermere.fast.gpu.images import IMAGES
from windermere.records import environment
from windermere.solvers import paths


def captured_alone(work: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
    """The same without the kernels that solve in one piece."""

    def worked() -> list[Tensor]:
        known = paths._paths
        paths._paths = tuple(path for path in known if path.captures)
        try:
            return work()
        finally:
            paths._paths = known

    return worked


def kernel_times(work: Callable[[], list[Tensor]], rounds: int = 5) -> dict[str, float]:
    """Microseconds on the GPU of the kernels that solve in one piece; nothing where a pass goes without them."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(rounds):
            work()
        torch.cuda.synchronize()
    return {e.key: e.device_time_total / rounds for e in profiled.key_averages() if e.key in KERNELS}


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


def first_calls(passes: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each one's first calls; a field is captured at its second solve."""
    found: dict[str, list[float]] = {name: [] for name in passes}
    for name, work in passes.items():
        for _ in range(3):
            begun = time.perf_counter()
            work()
            torch.cuda.synchronize()
            found[name].append(round(time.perf_counter() - begun, 3))
    return found


def measure(job: Job) -> dict[str, Any]:
    passes = {
        "step by step": ours(job, "cuda", fast=False),
        "one kernel": ours(job, "cuda"),
        "captured": captured_alone(ours(job, "cuda")),
        "torchdiffeq": theirs(job, "cuda"),
    }
    if job.field is not CNF:  # torch.compile does not take derivatives inside of a field
        passes["captured, compiled"] = captured_alone(ours(job, "cuda", compile=True))
    seconds = first_calls(passes)
    for thread in IMAGES.threads:  # until its kernels are compiled, a field is solved another way
        thread.join()
    kernels = kernel_times(passes["one kernel"])
    if not kernels:
        del passes["one kernel"]
    best = "one kernel" if "one kernel" in passes else "captured"
    result, plain, other = (passes[name]() for name in (best, "step by step", "torchdiffeq"))
    differs = {"from step by step": apart(result, plain), "from torchdiffeq": apart(result, other)}
    differs["step by step from torchdiffeq"] = apart(plain, other)
    listed = list(jax_contenders(job))
    losses = {name: float(work()[0]) for name, work in listed}
    trial = milliseconds({str(k): work for k, (_, work) in enumerate(listed)}, rounds=4)
    for k in sorted(range(len(listed)), key=lambda k: -trial[str(k)]):  # the fastest form of each comes last
        passes[listed[k][0]] = listed[k][1]
    differs |= {f"loss from {name}": abs(float(result[0]) - loss) / abs(loss) for name, loss in losses.items()}
    return {"ms": milliseconds(passes), "kernels, us": kernels, "differs": differs, "first calls, s": seconds}


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares the GPU with PyTorch


def main(out: Path, names: list[str]) -> None:
    logging.basicConfig(level=logging.INFO)
    result: dict[str, Any] = {"environment": environment("cuda"), "jobs": {}}
    for name, job in JOBS.items():
        if names and not any(word in name for word in names):
            continue
        try:
            result["jobs"][name] = measure(job)
        except Exception as error:  # noqa: BLE001 - the others go on
            result["jobs"][name] = f"{type(error).__name__}: {error}"
        print(name, json.dumps(result["jobs"][name]), flush=True)
        out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
