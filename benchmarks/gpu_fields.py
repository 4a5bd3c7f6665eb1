"""Users' fields on a GPU: one kernel and captured steps beside the same solves step by step, torchdiffeq, diffrax and
`lax.scan`.

`PYTHONPATH=src python3 -m benchmarks.gpu_fields OUT.json [NAME ...]`. First calls are timed in processes of their own,
with no kernel compiled before (`--first NAME WAY`).
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import side_by_side
from benchmarks.users_fields import CNF, JOBS, Job, ours, theirs
from benchmarks.users_fields_jax import jax_contenders
from windermere.fast.gpu.driver import KERNELS
from windermere.fast.gpu.images import IMAGES
from windermere.records import environment
from windermere.solvers import paths


def captured_alone(work: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
    """The same without the kernels that solve in one piece."""

    def worked() -> list[Tensor]:
        with patch.object(paths, "_paths", tuple(path for path in paths._paths if path.captures)):
            return work()

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
    torch.cuda.synchronize()
    waited = {name: partial(_to_its_end, work) for name, work in contenders.items()}
    return {name: 1e3 * s for name, s in side_by_side(waited, rounds=rounds, warm_up=0).items()}


def _to_its_end(work: Callable[[], object]) -> None:
    work()
    torch.cuda.synchronize()


def apart(found: list[Tensor], wanted: list[Tensor]) -> float:
    return max(float((a - b).norm() / (b.norm() + 1e-12)) for a, b in zip(found, wanted, strict=True))


def first_calls(passes: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each one's first calls; a field is captured at its second solve."""
    found: dict[str, list[float]] = {name: [] for name in passes}
    for name, work in passes.items():
        for _ in range(3):
            begun = time.perf_counter()
            _to_its_end(work)
            found[name].append(round(time.perf_counter() - begun, 3))
    return found


FIRST = ("step by step", "by default", "captured at once")


def first_pass(name: str, way: str) -> None:
    """Seconds of a process's first pass with this field; the GPU has been used before."""
    (torch.ones(64, 64, device="cuda", requires_grad=True) @ torch.ones(64, 64, device="cuda")).sum().backward()
    work = ours(JOBS[name], "cuda", fast=way != "step by step", captured=True if way == "captured at once" else None)
    input()  # whoever began this says when
    print(first_calls({way: work})[way][0])


def first_passes(name: str) -> dict[str, dict[str, float]]:
    """Seconds by way, in processes of their own, which start together and then take turns."""
    with ExitStack() as caches:
        begun = []
        for way in FIRST:
            folder = caches.enter_context(tempfile.TemporaryDirectory())
            command = [sys.executable, "-m", "benchmarks.gpu_fields", "--first", name, way]
            surroundings = {**os.environ, "XDG_CACHE_HOME": folder}
            process = subprocess.Popen(
                command, env=surroundings, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            begun.append((way, caches.enter_context(process)))
        return {"first pass, s": {way: float(p.communicate("go\n")[0].split()[-1]) for way, p in begun}}


def compiled(job: Job) -> dict[str, dict[str, float]]:
    """Milliseconds of captured steps beside the same, compiled."""
    passes = {
        "captured": captured_alone(ours(job, "cuda")),
        "captured, compiled": captured_alone(ours(job, "cuda", compile=True)),
    }
    first_calls(passes)
    return {"compiled, ms": milliseconds(passes)}


def measure(job: Job) -> dict[str, Any]:
    passes = {
        "step by step": ours(job, "cuda", fast=False),
        "one kernel": ours(job, "cuda"),
        "captured": captured_alone(ours(job, "cuda")),
        "torchdiffeq": theirs(job, "cuda"),
    }
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
    jobs = {name: job for name, job in JOBS.items() if not names or any(word in name for word in names)}
    told: dict[str, dict[str, Any]] = result["jobs"]

    def add(name: str, part: Callable[[], dict[str, Any]]) -> None:
        try:
            found = part()
        except Exception as error:  # noqa: BLE001 - the others go on
            found = {"error": f"{type(error).__name__}: {error}"}
        told[name] = told.get(name, {}) | found
        print(name, json.dumps(found), flush=True)
        out.write_text(json.dumps(result, indent=1))

    for name, job in jobs.items():
        add(name, partial(measure, job))
    for name in jobs:
        add(name, partial(first_passes, name))
    for name, job in jobs.items():
        if job.field is not CNF:  # torch.compile does not take derivatives inside of a field
            add(name, partial(compiled, job))


if __name__ == "__main__" and sys.argv[1] == "--first":
    first_pass(*sys.argv[2:])
elif __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
