"""The fused walk on a GPU: `PYTHONPATH=src python3 -m benchmarks.gpu_kernel --out kernel.json`, about a minute.

Errors against float64, bits from run to run, replays of a captured solve with other steps, and times.
Whatever fails is written down, and the rest goes on. Whole training iterations are measured by `gpu_training`.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import benchmarks.absent  # noqa: F401
from benchmarks.gpu_findings import Findings, noted
from windermere.paper.architectures import SphereField, walk_of
from windermere.paper.fast.fused import Launch, Precision, fused_walk, steps_on_device
from windermere.paper.stacked import StackedField
from windermere.solvers import METHODS, FixedStep
from windermere.solvers.grid import make_grid

BATCH, CHANNELS = 128, 32
PRECISIONS: tuple[Precision, ...] = ("tf32x3", "ieee", "tf32")
WORKLOADS = {
    "euler 64, 1 member": ("euler", 64, 1),
    "euler 64, 5 members": ("euler", 64, 5),
    "euler 64, 45 members": ("euler", 64, 45),
    "euler 256, 5 members": ("euler", 256, 5),
    "rk4 64, 5 members": ("rk4", 64, 5),
}


class Problem:
    """An ensemble of fields with weights as after some training, and how many steps each member takes."""

    def __init__(self, method: str, steps: list[int], points: int = 2, samples: int = BATCH) -> None:
        generator, members = torch.Generator().manual_seed(5), len(steps)
        self.field, self.tableau = SphereField(points, CHANNELS), METHODS[method]
        self.grid = make_grid([FixedStep.of(method, steps=n) for n in steps], (0.0, 1.0))
        stacked: list[Tensor] = []
        for name, parameter in self.field.named_parameters():
            scale = 0.1 if name.endswith("bias") else (2 / parameter[0].numel()) ** 0.5
            stacked.append(torch.randn(members, *parameter.shape, generator=generator) * scale)
        start, cotangent = (torch.randn(members, samples, points, generator=generator) for _ in range(2))
        self.cotangent, self.start = cotangent.cuda(), start.cuda().requires_grad_()
        self.weights = [w.cuda().requires_grad_() for w in stacked]
        self.sizes, self.counts = steps_on_device(self.grid, self.start)

    def forward(self, launch: Launch) -> Tensor:
        return fused_walk(self.tableau, self.sizes, self.counts, self.start, self.weights, launch)

    def there_and_back(self, launch: Launch) -> list[Tensor]:
        end = self.forward(launch)
        return [end.detach(), *torch.autograd.grad(end, [self.start, *self.weights], self.cotangent)]

    def reference(self) -> list[Tensor]:
        """The dense walk in float64."""
        start, *weights = (x.detach().double().requires_grad_() for x in (self.start, *self.weights))
        names = [name for name, _ in self.field.named_parameters()]
        walk = walk_of(StackedField(self.field, dict(zip(names, weights, strict=True))), "backprop")
        assert walk is not None
        end = walk(self.tableau, self.grid, start)
        return [end.detach(), *torch.autograd.grad(end, [start, *weights], self.cotangent.double())]


def compile_variant(method: str, points: int, launch: Launch) -> float:
    """In a process of its own: the compiled kernels are left in Triton's cache on disk."""
    begun, problem = time.perf_counter(), Problem(method, [1], points, samples=1)
    problem.there_and_back(launch)
    with torch.no_grad():
        problem.forward(launch)
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def compile_all() -> dict[str, Any]:
    wanted = {f"{m}, {p}": (m, 2, Launch(precision=p)) for m in ("rk4", "euler") for p in PRECISIONS}
    wanted |= {f"{m}, {d} points": (m, d, Launch()) for m, d in (("euler", 4), ("euler", 3), ("midpoint", 1))}
    with ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {name: pool.submit(compile_variant, *args) for name, args in wanted.items()}
        return {name: noted(job.result) for name, job in jobs.items()}


def errors(problem: Problem, launch: Launch) -> dict[str, Any]:
    """Relative to the norm: of the end state, and the worst of all gradients; and whether a second run is bit-equal."""
    found, again, wanted = problem.there_and_back(launch), problem.there_and_back(launch), problem.reference()
    apart = [float((got - want).norm() / want.norm()) for got, want in zip(found, wanted, strict=True)]
    same = all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    return {"end": apart[0], "gradients": max(apart[1:]), "same bits again": same}


def replay_after_a_change(launch: Launch) -> dict[str, Any]:
    """Capture 64 steps, change sizes and counts in place, replay: the same bits as a solve with the new ones."""
    problem, other = Problem("euler", [64, 64, 64]), Problem("euler", [10, 64, 33])
    replay, found = captured(lambda: problem.there_and_back(launch))
    problem.sizes.copy_(other.sizes)
    problem.counts.copy_(other.counts)
    replay()
    same = [torch.equal(a, b) for a, b in zip(found, other.there_and_back(launch), strict=True)]
    return {"same bits": all(same)}


def captured(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """The work as a CUDA graph's replay, and what it writes to."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    return graph.replay, results


def milliseconds(work: Callable[[], Any], repeats: int = 10, rounds: int = 5) -> float:
    """On the device, by events; the median of rounds."""
    work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / repeats)
    return median(times)


def times(problem: Problem) -> dict[str, float]:
    """Milliseconds of replays: forward without gradients, forward and back."""
    with torch.no_grad():
        quiet = milliseconds(captured(lambda: problem.forward(Launch()))[0])
    both = milliseconds(captured(lambda: problem.there_and_back(Launch()))[0])
    return {"forward": quiet, "both": both}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    keep = Findings(parser.parse_args().out).keep
    keep("compile", "all", compile_all)
    for precision in PRECISIONS:
        launch = Launch(precision=precision)
        keep("errors", f"euler, {precision}", errors, Problem("euler", [64] * 5), launch)
        keep("errors", f"euler, ragged, {precision}", errors, Problem("euler", [3, 70, 20], samples=100), launch)
        keep("errors", f"rk4, {precision}", errors, Problem("rk4", [32] * 5), launch)
    for method, points in (("euler", 3), ("euler", 4), ("midpoint", 1)):
        keep("errors", f"{method}, {points} points", errors, Problem(method, [64] * 5, points), Launch())
    keep("replay", "after a change in place", replay_after_a_change, Launch())
    for workload, (method, steps, members) in WORKLOADS.items():
        keep("times", workload, times, Problem(method, [steps] * members))


if __name__ == "__main__":
    main()
