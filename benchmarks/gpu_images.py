"""Image networks on a GPU: `PYTHONPATH=src python3 -m benchmarks.gpu_images --out images.json`, under four minutes.

Captured against plain training; whole training iterations of the library (batch, solve, gradient, Adam) in every
arithmetic and with both gradients, beside torchdiffeq on the same model; float32 by three products of TF32 and without
them; losses and gradients against plain float32; memory, and how many steps fit. The images are random, as many as the
real data set has. What fails is written down, and the rest goes on. `--only` takes words of which a
section's name must hold one (check, euler, torchdiffeq, mnist, ...); `--tiny` is a rehearsal on the CPU.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_findings import Findings
from benchmarks.gpu_image_measuring import SHAPES, Size, memory, paces, wait
from benchmarks.gpu_runs import InMemory
from benchmarks.gpu_runs import compared as runs_compared
from windermere.adaptation import SteadySteps
from windermere.nn.arithmetic import ARITHMETICS, convolving_in
from windermere.paper.fast import images, three_trial
from windermere.paper.training import RunConfig, captured, make_ensemble, train
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps
from windermere.paper.training.evaluation import member_losses
from windermere.paper.training.iteration import one_iteration
from windermere.paper.training.trainer import Training
from windermere.solvers import FixedStep, GradientName, Solver, fast_paths

GRADIENTS: tuple[GradientName, ...] = ("backprop", "checkpoint")
BARS = {"ms of an iteration": 14.0, "MiB at 64 steps": 2500 / 1.048576, "times as long at 64 steps": 1.4}


def gradients(size: Size, config: RunConfig) -> list[Tensor]:
    """The loss of the first batch at the first weights, and its gradients."""
    inputs, labels = size.images(config.data)
    ensemble = make_ensemble(config)
    chosen = Batches(len(labels), config.batch_size, config.seeds, config.device).indices(0)
    with convolving_in(config.arithmetic):
        losses = member_losses(ensemble(inputs[chosen], [config.solver]), labels[chosen])
        found = torch.autograd.grad(losses.sum(), ensemble.parameters())
    return [losses.detach().double(), *(g.double() for g in found)]


def errors(found: Sequence[Tensor], exact: Sequence[Tensor]) -> dict[str, float]:
    apart = [float((a - b).norm() / b.norm().clamp(min=1e-30)) for a, b in zip(found, exact, strict=True)]
    return {"loss": float(found[0]), "loss error": apart[0], "gradient error": max(apart[1:])}


def captured_iterations(size: Size, config: RunConfig) -> dict[str, Any]:
    """As `train` makes them where it captures; uncaptured where that fails, and it says why."""
    numbers: dict[str, Any] = {}
    with memory(numbers), convolving_in(config.arithmetic, tuned=True):
        data = size.images(config.data)
        training = Training(config, data, (data[0][:4], data[1][:4]), InMemory())  # type: ignore[arg-type]
        batches = Batches(len(data[1]), config.batch_size, config.seeds, "cpu")
        steps = CapturedSteps(training.ensemble, training.optimizer, data, batches)
        steps.use(training.solvers)

        def run(iteration: int) -> None:
            steps.at_once = size.at_once
            if steps.run(iteration, size.at_once) != size.at_once:
                raise ArithmeticError("a loss or a gradient was not finite")

        with warnings.catch_warnings(record=True) as told:
            numbers |= paces(size, run)
        if steps.given_up:
            numbers["capture failed"] = str(told[-1].message)
        numbers["captured"] = steps.graph is not None
    return numbers


def plain_iterations(size: Size, config: RunConfig) -> dict[str, Any]:
    """As `train` makes them where it does not capture."""
    numbers: dict[str, Any] = {}
    with memory(numbers), convolving_in(config.arithmetic, tuned=True):
        data = size.images(config.data)
        training = Training(config, data, (data[0][:4], data[1][:4]), InMemory())  # type: ignore[arg-type]

        def run(_: int) -> None:
            for _ in range(size.at_once):
                one_iteration(training)
            wait()

        numbers |= paces(size, run)
    taken = training.totals["forward"][0] / training.iteration
    return {**numbers, "evaluations an iteration": float(taken)}


def compared(size: Size, config: RunConfig, exact: Sequence[Tensor]) -> dict[str, Any]:
    return {**captured_iterations(size, config), **errors(gradients(size, config), exact)}


@contextmanager
def without_kernels() -> Iterator[None]:
    """Inside, bfloat16 is PyTorch's convolutions, compiled, as it is where the kernels do not run."""
    with patch.object(images, "can_walk_images", lambda *_: False):
        yield


# ---------------------------------------------------------------------------------------------------------
# Captured against plain


def checked(size: Size, **changes: Any) -> dict[str, Any]:
    """The same training both ways; with adapted steps, which are captured again soon after each change."""
    given: dict[str, Any] = {"iterations": 4 if size.tiny else 24, "log_every": 2, "lr": 1e-4}
    config = size.config("cifar10", FixedStep.of("euler", steps=2), **{**given, "arithmetic": "bfloat16", **changes})
    inputs, labels = size.images("cifar10")
    runs = list[InMemory]()
    with patch.object(captured, "SETTLED", 2), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for capture in (True, False):
            runs.append(InMemory())
            train(config, (inputs, labels), (inputs[:4], labels[:4]), runs[-1], capture=capture)  # type: ignore[arg-type]
    return {**runs_compared(*runs), "warnings": sorted({str(w.message).splitlines()[0][:200] for w in told})}


# ---------------------------------------------------------------------------------------------------------
# torchdiffeq on the same model


def peers_field(low: torch.dtype, z: Tensor, *weights: Tensor) -> Tensor:
    """The same operations under another name, since what is compiled is kept by name."""
    return images.evaluate(low, z, *weights)


class Peer(torch.nn.Module):
    """The field as torchdiffeq takes it, with float32 states; `low` is what its convolutions compute in."""

    def __init__(self, weights: Sequence[Tensor], low: torch.dtype, compiled: bool) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(w.detach()[0].clone()) for w in weights)
        self.low, self.function = low, torch.compile(peers_field) if compiled else peers_field

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.function(self.low, z, *self.weights)


def torchdiffeq_iterations(size: Size, data: str, solver: Solver, arithmetic: str, compiled: bool) -> dict[str, Any]:
    from torchdiffeq import odeint

    numbers: dict[str, Any] = {}
    with memory(numbers), convolving_in(arithmetic, tuned=True):
        inputs, labels = size.images(data)
        *field, weight, bias = make_ensemble(size.config(data, solver)).parameters()
        low = torch.bfloat16 if arithmetic == "bfloat16" else torch.float32
        peer = Peer(field, low, compiled and not size.tiny)
        head = [torch.nn.Parameter(tensor.detach()[0].clone()) for tensor in (weight, bias)]
        optimizer = torch.optim.Adam([*peer.parameters(), *head], lr=1e-5, fused=True)
        batches = Batches(len(labels), size.batch, (0,), size.device)
        span = torch.tensor([0.0, 1.0], device=size.device)

        def run(iteration: int) -> None:
            for i in range(iteration, iteration + size.at_once):
                chosen = batches.indices(i)[0]
                optimizer.zero_grad()
                z = inputs[chosen].contiguous(memory_format=torch.channels_last)
                end = odeint(peer, z, span, method="euler", options={"step_size": solver.precision})[-1]
                F.cross_entropy(F.linear(end.flatten(1), *head), labels[chosen]).backward()
                optimizer.step()
            wait()

        numbers |= paces(size, run)
    return numbers


# ---------------------------------------------------------------------------------------------------------


def steps_that_fit(one: dict[str, Any], other: dict[str, Any], steps: tuple[int, int]) -> dict[str, Any]:
    """From two measured peaks, taken to grow by as much with each step; of memory, a twentieth is left alone."""
    each = (other["peak MiB"] - one["peak MiB"]) / (steps[1] - steps[0])
    room = 0.95 * torch.cuda.get_device_properties(0).total_memory / 2**20 if torch.cuda.is_available() else 1e5
    most = 1
    while one["peak MiB"] + (2 * most - steps[0]) * each <= room and most < 2**30:
        most *= 2
    return {"MiB a step": each, "largest power of two (extrapolated)": most}


def iterations(report: Findings, size: Size, data: str, arithmetics: Sequence[str]) -> None:
    """With both gradients."""
    solver, section = FixedStep.of("euler", steps=size.few), f"{data} euler {size.few}"
    exact: list[list[Tensor]] = []

    def remember() -> dict[str, Any]:
        with fast_paths(False):
            exact.append(gradients(size, size.config(data, solver)))
        return {}

    report.keep(section, "float32's loss", remember)
    for arithmetic in arithmetics:
        for gradient in GRADIENTS:
            config = size.config(data, solver, arithmetic=arithmetic, gradient=gradient)
            report.keep(section, f"{arithmetic} {gradient}", lambda c=config: compared(size, c, exact[0]))
    config = size.config(data, solver, arithmetic="bfloat16")
    report.keep(section, "bfloat16 backprop, plain loop", plain_iterations, size, config)
    with without_kernels():
        report.keep(section, "bfloat16 backprop, compiled", lambda: compared(size, config, exact[0]))
    for name, compiled in (("float32", False), ("tf32", False), ("bfloat16", True)):
        told = f"torchdiffeq {name}{', compiled field' if compiled else ''}"
        report.keep(f"{section} torchdiffeq", told, torchdiffeq_iterations, size, data, solver, name, compiled)


def three_products(report: Findings, size: Size) -> None:
    """Training in float32, with 3x3 convolutions by three products of TF32 each and without; and the products' relative
    errors beside those of float32."""
    section, shape = "cifar10 three products", (size.batch, 128, *SHAPES["cifar10"][1:])
    with convolving_in("float32", tuned=True):
        report.keep(section, "errors, ours and float32's", three_trial.errors, torch.device(size.device), shape)
    for gradient in GRADIENTS:
        config = size.config("cifar10", FixedStep.of("euler", steps=size.few), gradient=gradient)
        report.keep(section, f"float32 {gradient}", captured_iterations, size, config)
        with fast_paths(False):
            report.keep(section, f"float32 {gradient}, plain", captured_iterations, size, config)


def long_solves(report: Findings, size: Size) -> None:
    """Memory and time of many steps."""
    section = f"cifar10 euler {size.many}"
    config = size.config("cifar10", FixedStep.of("euler", steps=size.many), arithmetic="bfloat16")
    few = replace(config, solver=FixedStep.of("euler", steps=size.few))
    kept, lean = (report.keep(section, g, captured_iterations, size, replace(config, gradient=g)) for g in GRADIENTS)
    report.keep(section, "checkpoint over backprop, time", lambda: lean["ms"] / kept["ms"])
    once = Size(size.tiny)
    many: dict[GradientName, tuple[Any, int]] = {"backprop": (kept, size.many)}
    once.at_once = once.rounds = 1
    very = replace(config, solver=FixedStep.of("euler", steps=size.very_many), gradient="checkpoint")
    found = report.keep(section, f"checkpoint, {size.very_many} steps, plain loop", plain_iterations, once, very)
    many["checkpoint"] = found, size.very_many  # states alone are too small to be seen with fewer
    for gradient, (at_many, steps) in many.items():
        at_few = report.keep(
            section, f"{gradient}, {size.few} steps", captured_iterations, size, replace(few, gradient=gradient)
        )
        report.keep(section, f"{gradient}, steps that fit", steps_that_fit, at_few, at_many, (size.few, steps))


def bars(report: Findings, size: Size) -> None:
    """What was measured over what it has to be."""
    found = report.found
    quick = found.get(f"cifar10 euler {size.few}", {}).get("bfloat16 backprop", {}).get("ms")
    long = found.get(f"cifar10 euler {size.many}", {})
    lean, times = long.get("checkpoint", {}).get("peak MiB"), long.get("checkpoint over backprop, time")
    for (name, bar), value in zip(BARS.items(), (quick, lean, times), strict=True):
        if isinstance(value, float):
            report.keep("bars", name, lambda v=value, b=bar: {"measured": v, "bar": b, "met": v <= b})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="words of the sections to measure")
    parser.add_argument("--arithmetics", nargs="+", default=ARITHMETICS[::-1], choices=ARITHMETICS, help="of ours")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the CPU")
    given = parser.parse_args()
    size, report = Size(given.tiny), Findings(given.out, only=given.only)
    torch._dynamo.config.recompile_limit = 64  # by default, more than eight versions of a function are not compiled
    for gradient in GRADIENTS:
        report.keep("check", gradient, lambda g=gradient: checked(size, gradient=g))
        report.keep("check", f"{gradient}, 2 members", lambda g=gradient: checked(size, gradient=g, seeds=(0, 1)))
    steady = SteadySteps(train="euler", check="midpoint", target=1e-4, every=2 if size.tiny else 6)
    report.keep("check", "adapted steps", lambda: checked(size, controller=steady))
    iterations(report, size, "cifar10", given.arithmetics)
    three_products(report, size)
    long_solves(report, size)
    iterations(report, size, "mnist", ["bfloat16"])
    report.only = []
    bars(report, size)


if __name__ == "__main__":
    main()
