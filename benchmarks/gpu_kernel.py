"""The fused walk on a GPU: `PYTHONPATH=src python3 benchmarks/gpu_kernel.py --out kernel.json`, about a minute.

Errors against float64, bits from run to run, replays of a captured solve with other steps, times of variants, and a
whole training iteration with and without the kernels. Whatever fails is written down, and the rest goes on.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from torch import Tensor


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that windermere imports and a bare GPU machine may lack; nothing here calls them."""

    wanted = ("matplotlib", "safetensors", "rich", "typer", "scipy")
    names = frozenset(n for n in wanted if importlib.util.find_spec(n) is None)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        absent = name.split(".")[0] in self.names
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return MagicMock(name=spec.name, __spec__=spec, __path__=[])

    def exec_module(self, module: Any) -> None:
        pass


sys.meta_path.append(_Absent())

from windermere.paper.architectures import SphereField, architecture, initialise, walk_of  # noqa: E402
from windermere.paper.fast import fused  # noqa: E402
from windermere.paper.fast.fused import Launch, Precision, fused_walk, steps_on_device  # noqa: E402
from windermere.paper.stacked import StackedField  # noqa: E402
from windermere.solvers import METHODS, FixedStep  # noqa: E402
from windermere.solvers.grid import make_grid  # noqa: E402

BATCH, CHANNELS = 128, 32
PRECISIONS: tuple[Precision, ...] = ("tf32x3", "ieee", "tf32")
WORKLOADS = {
    "euler 64, 1 member": ("euler", 64, 1),
    "euler 64, 5 members": ("euler", 64, 5),
    "euler 64, 45 members": ("euler", 64, 45),
    "euler 256, 5 members": ("euler", 256, 5),
    "rk4 64, 5 members": ("rk4", 64, 5),
}
VARIANTS = {
    "tf32x3, 1 warp": Launch(warps=1, warps_back=1),
    "tf32x3, 2 warps": Launch(warps=2, warps_back=2),
    "tf32x3, 4 warps": Launch(),
    "tf32x3, 8 warps": Launch(warps=8, warps_back=8),
    "tf32x3, tile 32, 4 warps": Launch(tile=32),
    "tf32x3, tile 32, 8 warps": Launch(tile=32, warps=8, warps_back=8),
    "ieee, 4 warps": Launch(precision="ieee"),
    "ieee, 8 warps": Launch(precision="ieee", warps=8, warps_back=8),
    "tf32, 4 warps": Launch(precision="tf32"),
}
SLOW_TO_COMPILE = {"tf32x3, 1 warp", "tf32x3, tile 32, 4 warps", "tf32x3, tile 32, 8 warps", "ieee, 8 warps"}
"""Not with rk4."""


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


def noted(work: Callable[..., Any], *args: Any) -> Any:
    """What comes out, or the error's first and last words."""
    try:
        return work(*args)
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
        return {"error": text if len(text) < 1500 else f"{text[:700]} ... {text[-700:]}"}


def compile_variant(method: str, points: int, launch: Launch) -> float:
    """In a process of its own: the compiled kernels are left in Triton's cache on disk."""
    begun, problem = time.perf_counter(), Problem(method, [1], points, samples=1)
    problem.there_and_back(launch)
    with torch.no_grad():
        problem.forward(launch)
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def compile_all() -> dict[str, Any]:
    wanted = {f"{m}, {v}": (m, 2, launch) for m in ("rk4", "euler") for v, launch in VARIANTS.items() if timed(m, v)}
    wanted |= {f"{m}, {d} points": (m, d, Launch()) for m, d in (("euler", 4), ("euler", 3), ("midpoint", 1))}
    with ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = {name: pool.submit(compile_variant, *args) for name, args in wanted.items()}
        return {name: noted(job.result) for name, job in jobs.items()}


def timed(method: str, variant: str) -> bool:
    return method == "euler" or variant not in SLOW_TO_COMPILE


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


def times(problem: Problem, launch: Launch) -> dict[str, float]:
    """Of replays: forward without gradients, forward and back."""
    with torch.no_grad():
        quiet = milliseconds(captured(lambda: problem.forward(launch))[0])
    both = milliseconds(captured(lambda: problem.there_and_back(launch))[0])
    return {"forward": quiet, "both": both}


def training_iteration(members: int, kernels: bool) -> dict[str, float]:
    """As the training loop does it, uncaptured, on one batch."""
    from windermere.paper.training import Ensemble
    from windermere.paper.training.checkpoint import make_optimizer

    solver, can_walk = FixedStep.of("euler", steps=64), fused.can_walk
    models = [initialise(architecture("sphere2", solver), seed).cuda() for seed in range(members)]
    ensemble = Ensemble(models)
    optimizer = make_optimizer("adam", ensemble.parameters(), 1e-4)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(members, BATCH, 2, generator=generator).cuda()
    y = (x.norm(dim=-1) > 1).long()

    def step() -> Tensor:
        optimizer.zero_grad()
        losses = F.cross_entropy(ensemble(x, (solver,) * members).transpose(1, 2), y, reduction="none").mean(dim=1)
        losses.sum().backward()
        optimizer.step()
        return losses.detach()

    fused.can_walk = can_walk if kernels else lambda *_: False
    try:
        first = step().sum()
        return {"milliseconds": milliseconds(step, repeats=5, rounds=3), "first loss": float(first)}
    finally:
        fused.can_walk = can_walk


def short(value: Any) -> str:
    if isinstance(value, dict) and "error" in value:
        return f"ERROR {value['error'][:300]}"
    if isinstance(value, dict):
        return "  ".join(f"{k} {short(v)}" for k, v in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out, begun = parser.parse_args().out, time.perf_counter()
    result: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}

    def keep(section: str, name: str, work: Callable[..., Any], *args: Any) -> None:
        value = noted(work, *args)
        result.setdefault(section, {})[name] = value
        out.write_text(json.dumps(result, indent=1))
        print(f"{time.perf_counter() - begun:5.0f} s  {section:<10} {name:<46} {short(value)}", flush=True)

    out.parent.mkdir(parents=True, exist_ok=True)
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
        problem = Problem(method, [steps] * members)
        for variant, launch in VARIANTS.items():
            if timed(method, variant):
                keep("times", f"{workload}: {variant}", times, problem, launch)
    for members in (1, 5, 45):
        keep("training", f"{members} members, kernels", training_iteration, members, True)
        keep("training", f"{members} members, dense walk", training_iteration, members, False)


if __name__ == "__main__":
    main()
