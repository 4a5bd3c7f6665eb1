"""The image kernels on a GPU: `PYTHONPATH=src python3 -m benchmarks.gpu_image_kernel OUT.json`, about three minutes.

Errors against float64 and each kernel's time; then a sweep of how each kernel may run, compiled meanwhile by processes
of their own. Whatever fails is written down, and the rest goes on. Whole training steps are measured by `gpu_images`.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks.gpu_findings import Findings, noted
from benchmarks.gpu_kernel import captured, milliseconds
from windermere.paper.fast.image_evaluation import Evaluation, Launch, Shares, Tile
from windermere.paper.fast.image_fused import image_walk
from windermere.paper.fast.images import evaluate
from windermere.solvers import METHODS, FixedStep
from windermere.solvers.grid import make_grid
from windermere.solvers.runge_kutta import combine, stages

DEVICE = "cuda"
SHAPES = {"cifar10": (3, 128, 32), "mnist": (1, 96, 28)}
"""Channels, hidden ones, and the length of a side."""
BATCH, STEPS = 256, 16
SWEEP_SECONDS = 150.0
LAUNCHES = 10
"""In one graph, so that the host's own time is not measured."""
KERNELS = ("forward", "backward", "mix_gradient", "lower_gradient", "combine")
SWEPT = KERNELS[:-1]

FORWARD = [Tile(stages=3), Tile(pixels=64), Tile(pixels=256, warps=8, stages=3), Tile(warps=8, stages=3)]
BACK = [
    Tile(columns=64),
    Tile(columns=64, stages=3),
    Tile(columns=64, warps=8),
    Tile(warps=8),
    Tile(pixels=64),
    Tile(pixels=64, registers=168),
]
GRADIENT: list[tuple[Tile, Literal[1, 3, 9], int]] = [
    (Tile(pixels=64, columns=64, stages=3), 1, 29),
    (Tile(warps=8, stages=3), 1, 14),
    (Tile(warps=8, stages=3), 1, 29),
    (Tile(pixels=64, warps=8, stages=3), 1, 14),
    (Tile(pixels=64, warps=8, stages=3), 1, 29),
]
SUMS = [
    (Tile(columns=64), 528),
    (Tile(pixels=64, warps=8), 528),
    (Tile(pixels=64, warps=8), 1056),
    (Tile(pixels=32), 1056),
    (Tile(warps=8), 264),
]


def candidates(kernel: str, base: Launch) -> list[Launch]:
    """What a kernel is tried with, the default first."""
    if kernel == "forward":
        return [replace(base, forward=tile) for tile in FORWARD]
    if kernel == "backward":
        return [replace(base, back=tile) for tile in BACK]
    if kernel == "mix_gradient":
        return [replace(base, gradient=tile, taps=taps, chunks=chunks) for tile, taps, chunks in GRADIENT]
    if kernel == "lower_gradient":
        return [replace(base, sums=tile, programs=programs) for tile, programs in SUMS]
    return [base]


def settings(kernel: str, launch: Launch) -> dict[str, Any]:
    """What a candidate is known by, and what is taken over from the best."""
    names: dict[str, tuple[str, ...]] = {"forward": ("forward",), "backward": ("back",), "combine": ("pointwise",)}
    names |= {"lower_gradient": ("sums", "programs")}
    return {name: getattr(launch, name) for name in names.get(kernel, ("gradient", "taps", "chunks"))}


def label(kernel: str, launch: Launch) -> str:
    parts = [asdict(v).items() if isinstance(v, Tile) else [(k, v)] for k, v in settings(kernel, launch).items()]
    return ", ".join(f"{name} {value}" for part in parts for name, value in part if value is not None)


def drawn(data: str, count: int) -> tuple[Tensor, list[Tensor]]:
    """Images, and a field's weights with biases that are not zero."""
    channels, width, side = SHAPES[data]
    generator = torch.Generator().manual_seed(2)
    shapes = [(width, channels, 1, 1), (width, width, 3, 3), (channels, width, 1, 1)]
    weights = []
    for shape in shapes:
        scale = (2 / torch.Size(shape[1:]).numel()) ** 0.5
        weights += [torch.randn(shape, generator=generator) * scale, torch.randn(shape[0], generator=generator) * 0.1]
    z = torch.rand(count, channels, side, side, generator=generator)
    return z.to(DEVICE), [w.to(DEVICE) for w in weights]


def works(data: str, launch: Launch, count: int) -> dict[str, Callable[[], None]]:
    """Each kernel, ready to run."""
    z, weights = drawn(data, count)
    run = Evaluation(launch, z, weights)
    sums, hidden = Shares(run), run.new_hidden(1)
    second = (hidden[0][0], hidden[1][0], hidden[2][0])
    patches, on_patches, states = run.new_patches(), run.new_patches(), run.new_states(3)
    sizes = z.new_full((1,), 1 / STEPS)
    states.copy_(torch.randn_like(states))
    run.combine(states[0], states, sizes, 0, (), states[0], patches)
    run.combine(None, states, sizes, 0, (1.0,), states[1], on_patches)
    kept = None if run.source == "recomputed" else second
    run.forward(patches, states[2], kept)
    return {
        "forward": lambda: run.forward(patches, states[2], kept),
        "backward": lambda: run.backward(on_patches, second[0], patches, states[2], sums),
        "mix_gradient": lambda: run.mix_gradient(patches, on_patches, second[0], sums),
        "lower_gradient": lambda: run.lower_gradient(states[1], patches, second, sums),
        "combine": lambda: run.combine(states[0], states, sizes, 0, (1.0,), states[1], patches),
    }


def compile_one(data: str, kernel: str, launch: Launch) -> float:
    """In a process of its own: what is compiled stays in Triton's cache on disk, and what crashes crashes there."""
    begun = time.perf_counter()
    works(data, launch, 2)[kernel]()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


class Compiling:
    """All candidates at once, beside whatever else there is to do; what is not ready in time is given up."""

    def __init__(self, jobs: dict[str, tuple[str, str, Launch]], seconds: float) -> None:
        self.given_up = time.perf_counter() + seconds
        self.pool = ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn"))
        self.waiting = {name: self.pool.submit(compile_one, *job) for name, job in jobs.items()}

    def found(self) -> dict[str, Any]:
        """Seconds or an error for each."""
        left = {n: noted(job.result, max(0.1, self.given_up - time.perf_counter())) for n, job in self.waiting.items()}
        self.pool.shutdown(wait=False, cancel_futures=True)
        return left


def kernel_time(data: str, kernel: str, launch: Launch) -> dict[str, float]:
    """Milliseconds of a launch, and TFLOP/s of its big product (the useful ones: neither lifting nor padding)."""
    _, width, side = SHAPES[data]
    work = works(data, launch, BATCH)[kernel]

    def several() -> None:
        for _ in range(LAUNCHES):
            work()

    ms = milliseconds(captured(several)[0], repeats=3) / LAUNCHES
    product = 2 * BATCH * side**2 * 9 * width**2 / (ms * 1e9)
    again = kernel == "lower_gradient" and launch.hidden == "recomputed"
    big = kernel in ("forward", "backward", "mix_gradient") or again
    return {"ms": ms, **({"tflops": product} if big else {})}


def reference(method: str, steps: int, data: str, count: int) -> list[Tensor]:
    """The eager walk in float64."""
    z, weights = drawn(data, count)
    start, *weights = (x.double().requires_grad_() for x in (z, *weights))
    tableau, z = METHODS[method], start
    for _ in range(steps):
        rates = stages(tableau, lambda _, x: evaluate(x.dtype, x, *weights), [z] * tableau.stages, z, 1 / steps)
        z = combine(z, 1 / steps, tableau.b, rates)
    return [z.detach(), *torch.autograd.grad((z * cotangent(z)).sum(), [start, *weights])]


def cotangent(z: Tensor) -> Tensor:
    return torch.arange(z.numel(), device=z.device, dtype=z.dtype).view_as(z).cos()


def errors(method: str, steps: int, data: str, launch: Launch, count: int = 8) -> dict[str, Any]:
    """Relative to the norm: the end, each gradient; and whether a second run gives the same bits."""
    z, weights = drawn(data, count)
    start, *weights = (x.requires_grad_() for x in (z, *weights))
    grid = make_grid([FixedStep.of(method, steps=steps)], (0.0, 1.0))

    def there_and_back() -> list[Tensor]:
        end = image_walk(METHODS[method], grid, start, weights, launch)
        return [end.detach(), *torch.autograd.grad((end * cotangent(end)).sum(), [start, *weights])]

    found, again, wanted = there_and_back(), there_and_back(), reference(method, steps, data, count)
    names = ("end", "start", "lift", "lift bias", "mix", "mix bias", "lower", "lower bias")
    apart = {n: float((a - b).norm() / b.norm()) for n, a, b in zip(names, found, wanted, strict=True)}
    return {**apart, "same bits again": all(torch.equal(a, b) for a, b in zip(found, again, strict=True))}


class Sweep:
    """Each kernel's candidates, for each data set."""

    def __init__(self) -> None:
        self.tried = {
            f"{data}: {kernel}: {label(kernel, launch)}": (data, kernel, launch)
            for data in SHAPES
            for kernel in SWEPT
            for launch in candidates(kernel, Launch())
        }
        self.end = time.perf_counter() + SWEEP_SECONDS
        self.compiling = Compiling(self.tried, 0.8 * SWEEP_SECONDS)

    def best(self, findings: Findings) -> dict[str, Launch]:
        compiled, best = self.compiling.found(), dict.fromkeys(SHAPES, Launch())
        fastest: dict[tuple[str, str], float] = {}
        for name, (data, kernel, launch) in self.tried.items():
            if isinstance(compiled[name], dict):
                findings.note("compile", name, compiled[name])
                continue
            if time.perf_counter() > self.end:
                findings.note("sweep", name, {"error": "no time left"})
                continue
            found = findings.keep("sweep", name, kernel_time, data, kernel, launch)
            if launch == Launch():
                findings.note("default", f"{data}: {kernel}", found)
            if found.get("ms", float("inf")) < fastest.get((data, kernel), float("inf")):
                fastest[data, kernel] = found["ms"]
                best[data] = replace(best[data], **settings(kernel, launch))
        return best


def main(out: Path) -> None:
    findings, sweep, lean = Findings(out), Sweep(), Launch(hidden="recomputed")
    for data in SHAPES:
        for launch in (lean, Launch(), Launch(assembly=False)):
            name = f"{data}, {launch.precision}, {launch.hidden}{'' if launch.assembly else ', no PTX'}"
            findings.keep("errors", f"euler 4, {name}", errors, "euler", 4, data, launch)
        findings.keep("errors", f"rk4 1, {data}", errors, "rk4", 1, data, Launch())
    best = sweep.best(findings)
    findings.note("best", "launches", {data: asdict(launch) for data, launch in best.items()})
    for data in SHAPES:
        findings.keep("default", f"{data}: combine", kernel_time, data, "combine", Launch())
        findings.keep("default", f"{data}: lower_gradient, recomputed", kernel_time, data, "lower_gradient", lean)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
