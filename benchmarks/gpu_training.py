"""Captured training on a GPU: `PYTHONPATH=src python3 -m benchmarks.gpu_training --out training.json`, about 70 s.

Captured against plain training (losses, parameters, counts, decisions, errors, resuming), times of whole iterations,
and the paper's Figure 4 (a) and (b). Whatever fails is written down, and the rest goes on. Without a GPU it is a
rehearsal with few iterations, in which the step runs uncaptured.
"""

import argparse
import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.gpu_findings import Findings
from benchmarks.gpu_kernel import compile_variant
from benchmarks.gpu_runs import InMemory, compared
from windermere.paper.data import spheres
from windermere.paper.fast import fused
from windermere.paper.fast.fused import Launch
from windermere.paper.training import (
    Adaptation,
    Labelled,
    RunConfig,
    make_controller,
    make_ensemble,
    train,
    train_together,
)
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps
from windermere.paper.training.checkpoint import make_optimizer
from windermere.solvers import FixedStep

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
LONG, SHORT, LIMIT = (2000, 200, 92) if GPU else (6, 6, 600)
"""Iterations of a timed and of a compared training; seconds after which nothing new is begun."""
WORKLOADS = [(64, 5), (64, 45), (64, 1), (2, 5), (256, 5)]
"""Numbers of Euler steps, and of members."""
FIGURE = {"euler": [2**k for k in range(9 if GPU else 4)], "rk4": [2**k for k in range(8 if GPU else 3)]}


def data() -> tuple[Labelled, Labelled]:
    made = spheres(2)
    return made.train, made.test


def config(method: str, steps: int, members: int, **changes: Any) -> RunConfig:
    given: dict[str, Any] = {
        "data": "sphere2",
        "solver": FixedStep.of(method, steps=steps),
        "seeds": tuple(range(members)),
        "iterations": SHORT,
        "batch_size": 128,
        "optimizer": "adam",
        "lr": 1e-4,
        "device": DEVICE,
    }
    return RunConfig(**{**given, **changes})


def trained(wanted: RunConfig, capture: bool, run: InMemory | None = None) -> InMemory:
    run = run or InMemory()
    train(wanted, *data(), run, capture=capture)  # type: ignore[arg-type]
    return run


def captured_against_plain(wanted: RunConfig) -> dict[str, Any]:
    return compared(trained(wanted, True), trained(wanted, False))


def adapted(kind: Adaptation, steps: int) -> dict[str, Any]:
    plain = config("euler", steps, 5, log_every=20, lr=1e-3)
    controller = make_controller(kind, plain.solver, every=max(2, SHORT // 10))
    return captured_against_plain(replace(plain, controller=controller))


def resumed() -> dict[str, Any]:
    """Half captured, half plain, and the other way round, against all plain."""
    whole, half = config("euler", 64, 5, checkpoint_every=SHORT // 2), config("euler", 64, 5, iterations=SHORT // 2)
    plain = trained(whole, False)
    mixed = {c: trained(whole, not c, trained(half, c)) for c in (True, False)}
    plain.rows = plain.rows[-5:]
    for run in mixed.values():
        run.rows = run.rows[-5:]
    return {f"captured first: {c}": compared(run, plain) for c, run in mixed.items()}


def diverged() -> dict[str, Any]:
    """A learning rate that is too large: the same words, and the same last state."""
    told, iterations = [], []
    for capture in (True, False):
        run = InMemory()
        try:
            train(config("euler", 8, 5, optimizer="sgd", lr=1e20), *data(), run, capture=capture)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001
            told.append(f"{type(error).__name__}: {error}")
        iterations.append(run.saved.meta["iteration"])
    return {"same words": told[0] == told[1], "kept": iterations, "words": told}


def whole_iterations(
    method: str, steps: int, members: int, capture: bool | None, kernels: bool = True
) -> dict[str, Any]:
    """Milliseconds of a training's iteration with all that belongs to it but a disk, without the first ones."""
    iterations, from_ = (LONG, 100) if capture is not False else (SHORT, 50)
    wanted = config(method, steps, members, iterations=iterations, log_every=50)
    reports: list[Any] = []
    with nullcontext() if kernels else patch.object(fused, "can_walk", lambda *_: False):
        train(wanted, *data(), InMemory(), report=reports.append, capture=capture)  # type: ignore[arg-type]
    first = next((r for r in reports if r.iteration >= from_), reports[0])
    spent = (reports[-1].seconds - first.seconds) / max(1, reports[-1].iteration - first.iteration)
    return {
        "ms": 1e3 * spent,
        "first chunk s": reports[0].seconds,
        "losses": [round(x, 4) for x in reports[-1].loss[:3]],
    }


def captured_steps(members: int) -> CapturedSteps:
    """The captured steps of so many members, with 64 Euler steps each."""
    wanted = config("euler", 64, members)
    ensemble = make_ensemble(wanted)
    optimizer = make_optimizer("adam", ensemble.parameters(), wanted.lr)
    inputs, labels = data()[0]
    batches = Batches(len(labels), wanted.batch_size, wanted.seeds, "cpu")
    steps = CapturedSteps(ensemble, optimizer, (inputs.to(DEVICE), labels.to(DEVICE)), batches)
    steps.use([wanted.solver] * members)
    return steps


def profiled(members: int) -> dict[str, Any]:
    """Where a replay's time goes: microseconds by kernel."""
    from torch.profiler import ProfilerActivity, profile

    captured = captured_steps(members)
    captured.run(0, 2)
    captured._lay_out(2, 50)
    once = captured.step if captured.graph is None else captured.graph.replay
    with profile(activities=[ProfilerActivity.CUDA] if GPU else [ProfilerActivity.CPU]) as seen:
        for _ in range(10):
            once()
        if GPU:
            torch.cuda.synchronize()
    spent = [(e.key[:60], getattr(e, "self_device_time_total", 0) / 10, e.count / 10) for e in seen.key_averages()]
    return {name: f"{us:.1f} us in {n:g}" for name, us, n in sorted(spent, key=lambda e: -e[1])[:30] if us > 0}


def figure_4(method: str, iterations: int) -> dict[str, Any]:
    """All of a panel's runs as a study would do them: with rows, evaluations and checkpoints, trained together."""
    order = sorted(FIGURE[method], reverse=True)
    wanted = [config(method, n, 5, iterations=iterations) for n in order]
    runs, reports = [InMemory() for _ in wanted], list[Any]()
    begun = time.perf_counter()
    train_together(
        wanted,
        *data(),
        runs,  # type: ignore[arg-type]
        report=lambda _, now: reports.append(now),
        capture=None if GPU else True,
    )
    whole, first = time.perf_counter() - begun, reports[0]
    pace = (whole - first.seconds) / max(1, iterations - first.iteration)
    return {
        "iterations": iterations,
        "seconds": whole,
        "seconds to the first row": first.seconds,
        "ms an iteration": 1e3 * pace,
        "extrapolated s": first.seconds + 10_000 * pace,
        "last losses": {
            n: [round(x, 4) for x in r.loss[:2]] for n, r in zip(order, reports[-len(order) :], strict=True)
        },
    }


def compiling(pool: ProcessPoolExecutor) -> dict[str, "Future[float]"]:
    methods = ("rk4", "euler", "midpoint") if GPU else ()
    return {method: pool.submit(compile_variant, method, 2, Launch()) for method in methods}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    findings = Findings(parser.parse_args().out, seconds=LIMIT)
    keep = findings.keep
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = compiling(pool)

        def ready(method: str) -> None:
            if method in jobs:
                keep("compile", method, jobs[method].result, 60)

        ready("euler")
        keep("check", "euler 64, log every 20", captured_against_plain, config("euler", 64, 5, log_every=20))
        keep("check", "euler 64, one member", captured_against_plain, config("euler", 64, 1, log_every=20))
        keep("check", "euler 64, sgd", captured_against_plain, config("euler", 64, 5, optimizer="sgd", lr=1e-2))
        keep("check", "resumed", resumed)
        keep("check", "diverged", diverged)
        for steps, members in WORKLOADS:
            name = f"euler {steps}, {members} members"
            keep("times", f"{name}, captured", whole_iterations, "euler", steps, members, None if GPU else True)
            keep("times", f"{name}, plain", whole_iterations, "euler", steps, members, False)
        keep("figure 4", "euler as runs", figure_4, "euler", LONG)
        ready("midpoint")
        for kind in ("paper", "steady"):
            keep("check", f"{kind} from 2 steps", adapted, kind, 2)
            keep("check", f"{kind} from 64 steps", adapted, kind, 64)
        keep("profile", "euler 64, 5 members", profiled, 5)
        ready("rk4")
        keep("times", "rk4 64, 5 members, captured", whole_iterations, "rk4", 64, 5, None if GPU else True)
        keep("times", "rk4 64, 5 members, plain", whole_iterations, "rk4", 64, 5, False)
        keep("figure 4", "rk4 as runs", figure_4, "rk4", LONG // 2)
        keep("check", "rk4 16", captured_against_plain, config("rk4", 16, 5, log_every=20))
        panels = [findings.found["figure 4"][f"{method} as runs"] for method in FIGURE]
        keep("figure 4", "both as runs, s", lambda: sum(panel["extrapolated s"] for panel in panels))
        keep("profile", "euler 64, 45 members", profiled, 45)
        keep("times", "euler 64, 5 members, dense", whole_iterations, "euler", 64, 5, False, kernels=False)


if __name__ == "__main__":
    main()
