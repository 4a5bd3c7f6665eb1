"""Captured training on a GPU: `PYTHONPATH=src python3 -m benchmarks.gpu_training --out training.json`, about 70 s.

Captured against plain training (losses, parameters, counts, decisions, errors, resuming), times of whole iterations,
and the paper's Figure 4 (a) and (b). Whatever fails is written down, and the rest goes on. Without a GPU it is a
rehearsal with few iterations, in which the step runs uncaptured.
"""

import argparse
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_kernel import compile_variant, short  # first: it stands in for packages that are missing
from benchmarks.gpu_runs import InMemory, compared

from windermere.paper.data import spheres  # isort: skip
from windermere.paper.fast import fused  # isort: skip
from windermere.paper.fast.fused import Launch  # isort: skip
from windermere.solvers import FixedStep, Solver  # isort: skip
from windermere.paper.training import Adaptation, Labelled, RunConfig, evaluate  # isort: skip
from windermere.paper.training import make_controller, make_ensemble, train, train_together  # isort: skip
from windermere.paper.training.batches import Batches  # isort: skip
from windermere.paper.training.captured import CapturedSteps  # isort: skip
from windermere.paper.training.checkpoint import make_optimizer  # isort: skip

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
LONG, SHORT, LIMIT = (2000, 200, 92) if GPU else (6, 6, 600)
"""Iterations of a timed and of a compared training; seconds after which nothing new is begun."""
WORKLOADS = [
    ("euler", 64, 5),
    ("euler", 64, 45),
    ("euler", 64, 1),
    ("euler", 2, 5),
    ("euler", 256, 5),
    ("rk4", 64, 5),
]
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
    can_walk = fused.can_walk
    fused.can_walk = can_walk if kernels else lambda *_: False
    try:
        train(wanted, *data(), InMemory(), report=reports.append, capture=capture)  # type: ignore[arg-type]
    finally:
        fused.can_walk = can_walk
    first = next((r for r in reports if r.iteration >= from_), reports[0])
    spent = (reports[-1].seconds - first.seconds) / max(1, reports[-1].iteration - first.iteration)
    return {
        "ms": 1e3 * spent,
        "first chunk s": reports[0].seconds,
        "losses": [round(x, 4) for x in reports[-1].loss[:3]],
    }


def captured_steps(solvers: Sequence[Solver], seeds: Sequence[int]) -> CapturedSteps:
    """Members with solvers of their own; seeds may occur more than once."""
    wanted = config(solvers[0].method, 1, len(set(seeds)))
    ensemble = make_ensemble(wanted).subset(list(seeds))
    for tensor in ensemble.tensors.values():
        tensor.requires_grad_()
    optimizer = make_optimizer("adam", ensemble.parameters(), wanted.lr)
    inputs, labels = data()[0]
    batches = Batches(len(labels), wanted.batch_size, seeds, "cpu")
    steps = CapturedSteps(ensemble, optimizer, (inputs.to(DEVICE), labels.to(DEVICE)), batches)
    steps.use(solvers)
    return steps


def device_time(method: str, steps: int, members: int) -> dict[str, float]:
    """Milliseconds of a replay alone, of a run of 50, of drawing and of laying out its batches, and of the capture."""
    captured = captured_steps([FixedStep.of(method, steps=steps)] * members, range(members))
    begun = time.perf_counter()
    captured.run(0, 1)
    first = time.perf_counter() - begun
    captured.at_once = 50
    captured.run(1, 50)
    captured._lay_out(60, 50)
    once = captured.step if captured.graph is None else captured.graph.replay
    alone = timed(once, 40) / 40
    begun = time.perf_counter()
    captured._drawn(70_000, 50)
    drawing = (time.perf_counter() - begun) / 50
    captured.at_once = 50
    begun = time.perf_counter()
    captured.run(70_000, 50)
    whole = (time.perf_counter() - begun) / 50
    return {"replay": 1e3 * alone, "run": 1e3 * whole, "draw": 1e3 * drawing, "first run with capture": 1e3 * first}


def timed(work: Callable[[], Any], times: int) -> float:
    """Seconds until the device is through with all of them."""
    begun = time.perf_counter()
    for _ in range(times):
        work()
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def profiled(members: int) -> dict[str, Any]:
    """Where a replay's time goes: microseconds by kernel."""
    from torch.profiler import ProfilerActivity, profile

    captured = captured_steps([FixedStep.of("euler", steps=64)] * members, range(members))
    captured.run(0, 2)
    captured._lay_out(2, 50)
    once = captured.step if captured.graph is None else captured.graph.replay
    with profile(activities=[ProfilerActivity.CUDA] if GPU else [ProfilerActivity.CPU]) as seen:
        timed(once, 10)
    spent = [(e.key[:60], getattr(e, "self_device_time_total", 0) / 10, e.count / 10) for e in seen.key_averages()]
    return {name: f"{us:.1f} us in {n:g}" for name, us, n in sorted(spent, key=lambda e: -e[1])[:30] if us > 0}


def figure_4(method: str, iterations: int, longest_first: bool) -> dict[str, Any]:
    """All of a panel's members at once, and from that the seconds of its 10,000 iterations with 20 evaluations."""
    order = sorted(FIGURE[method], reverse=longest_first)
    solvers = [FixedStep.of(method, steps=n) for n in order for _ in range(5)]
    captured = captured_steps(solvers, list(range(5)) * len(order))
    begun = time.perf_counter()
    done = captured.run(0, 1)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    while done < iterations + 1:
        done += captured.run(done, min(50, iterations + 1 - done))
        losses = captured.last.losses.tolist() if captured.last else []
        if captured.stopped:
            return {"stopped": True, "after": done, "losses": losses}
    spent = (time.perf_counter() - begun) / iterations
    inputs, labels = (x.to(DEVICE) for x in data()[1])
    evaluate(captured.ensemble, solvers, (inputs, labels))
    begun = time.perf_counter()
    found = evaluate(captured.ensemble, solvers, (inputs, labels))
    tested = time.perf_counter() - begun
    return {
        "members": len(solvers),
        "iterations": iterations,
        "ms an iteration": 1e3 * spent,
        "ms an evaluation": 1e3 * tested,
        "capture s": first,
        "extrapolated s": first + 10_000 * spent + 20 * tested,
        "accuracy by steps": {n: round(sum(found.accuracy[5 * i : 5 * i + 5]) / 5, 3) for i, n in enumerate(order)},
        "loss by steps": {n: round(sum(losses[5 * i : 5 * i + 5]) / 5, 4) for i, n in enumerate(order)},
    }


def figure_4_as_runs(method: str, iterations: int) -> dict[str, Any]:
    """The same as a study would do it: runs with rows, evaluations and checkpoints, trained together."""
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


def noted(work: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """What comes out, or the error and where it came from."""
    try:
        return work(*args, **more)
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"[:700], "where": traceback.format_exc()[-1500:]}


def compiling(pool: ProcessPoolExecutor) -> dict[str, "Future[float]"]:
    methods = ("rk4", "euler", "midpoint") if GPU else ()
    return {method: pool.submit(compile_variant, method, 2, Launch()) for method in methods}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out, begun = parser.parse_args().out, time.perf_counter()
    result: dict[str, Any] = {"torch": torch.__version__, "machine": torch.cuda.get_device_name() if GPU else "cpu"}

    def keep(section: str, name: str, work: Callable[..., Any], *args: Any, **more: Any) -> None:
        late = time.perf_counter() - begun > LIMIT
        value = {"error": "no time left"} if late else noted(work, *args, **more)
        result.setdefault(section, {})[name] = value
        out.write_text(json.dumps(result, indent=1))
        print(f"{time.perf_counter() - begun:5.1f} s  {section:<9} {name:<34} {short(value)}", flush=True)

    out.parent.mkdir(parents=True, exist_ok=True)
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
        keep("device", "euler 64, 5 members", device_time, "euler", 64, 5)
        for method, steps, members in (w for w in WORKLOADS if w[0] == "euler"):
            name = f"{method} {steps}, {members} members"
            keep("times", f"{name}, captured", whole_iterations, method, steps, members, None if GPU else True)
            keep("times", f"{name}, plain", whole_iterations, method, steps, members, False)
        keep("device", "euler 64, 45 members", device_time, "euler", 64, 45)
        keep("figure 4", "euler", figure_4, "euler", LONG, True)
        keep("figure 4", "euler as runs", figure_4_as_runs, "euler", LONG)
        ready("midpoint")
        for kind in ("paper", "steady"):
            keep("check", f"{kind} from 2 steps", adapted, kind, 2)
            keep("check", f"{kind} from 64 steps", adapted, kind, 64)
        keep("profile", "euler 64, 5 members", profiled, 5)
        ready("rk4")
        keep("times", "rk4 64, 5 members, captured", whole_iterations, "rk4", 64, 5, None if GPU else True)
        keep("times", "rk4 64, 5 members, plain", whole_iterations, "rk4", 64, 5, False)
        keep("figure 4", "rk4", figure_4, "rk4", LONG // 2, True)
        keep("figure 4", "rk4 as runs", figure_4_as_runs, "rk4", LONG // 2)
        keep("check", "rk4 16", captured_against_plain, config("rk4", 16, 5, log_every=20))
        keep("device", "rk4 64, 5 members", device_time, "rk4", 64, 5)
        keep("figure 4", "euler, longest last", figure_4, "euler", LONG // 2, False)
        for kind in ("", " as runs"):
            both = [f"{method}{kind}" for method in FIGURE]
            keep("figure 4", f"both{kind}, s", lambda: sum(result["figure 4"][m]["extrapolated s"] for m in both))  # noqa: B023
        keep("profile", "euler 64, 45 members", profiled, 45)
        keep("times", "euler 64, 5 members, dense", whole_iterations, "euler", 64, 5, False, kernels=False)


if __name__ == "__main__":
    main()
