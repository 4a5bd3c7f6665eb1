"""Windermere beside torchdiffeq, diffrax and `lax.scan` on a GPU, on the same weights and data:

    PYTHONPATH=src python3 -m benchmarks.gpu_peers OUT.json [--only adjoint rk4] [--tiny]

Milliseconds of a Sphere2 training step, medians of bursts of steps between two waits for the device; compilation is
apart. Losses and gradients are compared first. Every result is written as soon as it is there; whatever fails is
written down, and the rest goes on. `--tiny` is a rehearsal on a CPU.
"""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs some of the memory too

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import torch

from benchmarks import peers_jax, peers_torch
from benchmarks.peers_work import BATCH, LEARNING_RATE, Contender, Work, batch, difference, model
from windermere.paper.training import Ensemble
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps, can_capture
from windermere.paper.training.checkpoint import make_optimizer

FORMS = {
    "lax.scan": ("unroll=1", "unroll=8"),
    "diffrax": (
        "RecursiveCheckpointAdjoint, all checkpoints, ConstantStepSize",
        "RecursiveCheckpointAdjoint, all checkpoints",
        "BacksolveAdjoint",
    ),
}
"""What won on the CPU, and what users write: each takes seconds to compile."""


def works(tiny: bool) -> list[Work]:
    device, steps = ("cpu", (2,)) if tiny else ("cuda", (64,))
    fixed = [("euler", n, members) for n in steps for members in (1, 5, 45)]
    fixed += [] if tiny else [("euler", 2, 5), ("euler", 256, 5), ("rk4_38", 64, 5)]
    return [
        *(Work(method="dopri54", tolerance=1e-4, adjoint=adjoint, device=device) for adjoint in (False, True)),
        *(Work(method=method, steps=n, members=members, device=device) for method, n, members in fixed),
        Work(method="dopri54", tolerance=1e-4, members=5, device=device),
    ]


def contenders(work: Work) -> Iterator[Callable[[], Contender]]:
    """Each is made when it is its turn, so that one that fails stops no other."""
    x, y = batch(work.device)
    if work.steps is not None:
        yield lambda: captured(work)
    yield lambda: peers_torch.windermere(work, x, y)
    if work.members <= 5:
        for form, solve in peers_torch.torchdiffeq_solves(work).items():
            yield partial(peers_torch.convolving, "torchdiffeq", f"Conv1d{form}", work, solve, x, y)
            yield partial(peers_torch.dense, "torchdiffeq", f"dense{form}", work, solve, x, y)
    data = jnp.asarray(x.cpu().numpy()), jnp.asarray(y.cpu().numpy())
    for library, solves in (("lax.scan", peers_jax.scans(work)), ("diffrax", peers_jax.diffrax_solves(work))):
        for form in FORMS[library]:
            if form in solves:
                loss = partial(peers_jax._loss, peers_jax.dense, solves[form])
                yield partial(peers_jax._contender, work, library, f"dense, {form}", loss, data)


def captured(work: Work) -> Contender:
    """As `windermere train` does it on a GPU: every step draws its batch, solves, and updates, replayed."""
    x, y = batch(work.device)
    plain = peers_torch.windermere(work, x, y)
    members = [model(seed, work.solver).to(work.device) for seed in range(work.members)]
    ensemble = Ensemble(members)
    if work.device != "cpu" and not can_capture(ensemble, work.solver, "backprop", x):
        raise ValueError("the kernels do not take this work")
    optimizer = make_optimizer("adam", ensemble.parameters(), LEARNING_RATE)
    batches = Batches(len(y), BATCH, range(work.members), "cpu")
    steps = CapturedSteps(ensemble, optimizer, (x, y), batches)
    steps.use([work.solver] * work.members)
    steps.run(0, 3)

    def step() -> Any:
        steps.good.zero_()  # the place of the batch: there is room for some hundred, and this goes on for longer
        if steps.graph is None:
            steps.last = steps.step()
        else:
            steps.graph.replay()
        return steps.last

    return Contender(library="windermere", form="captured", step=step, graded=plain.graded)


def synchronise(found: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    jax.block_until_ready(found if isinstance(found, jax.Array) else jnp.zeros(()))


def milliseconds(contender: Contender, rounds: int = 5, about: float = 0.3) -> float:
    """The median of bursts that take about so many seconds."""
    for _ in range(3):
        found = contender.step()
    synchronise(found)
    begun = time.perf_counter()
    synchronise(contender.step())
    count = max(1, min(200, int(about / (time.perf_counter() - begun))))
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(count):
            found = contender.step()
        synchronise(found)
        seconds.append((time.perf_counter() - begun) / count)
    return 1000 * median(seconds)


def measured(work: Work, keep: Callable[[dict[str, Any]], None], give_up: float) -> None:
    ours = peers_torch.windermere(work, *batch(work.device)).graded()
    for make in contenders(work):
        if time.monotonic() > give_up:
            keep({"work": str(work), "members": work.members, "error": "no time left"})
            return
        row: dict[str, Any] = {"work": str(work), "members": work.members}
        try:
            contender = make()
            row |= {"library": contender.library, "form": contender.form}
            row |= {"differences": difference(contender.graded(), ours), "compile_seconds": contender.compile_seconds}
            row["ms"] = milliseconds(contender)
        except Exception as error:  # noqa: BLE001 (whatever it is, the others go on)
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        keep(row)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", nargs="*", default=[""], help="words of which a work's name must hold one")
    parser.add_argument("--seconds", type=float, default=240.0)
    given = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    result: dict[str, Any] = {"device": device, "torch": str(torch.__version__), "jax": jax.__version__, "rows": []}

    def keep(row: dict[str, Any]) -> None:
        result["rows"].append(row)
        print(row, flush=True)
        given.out.write_text(json.dumps(result, indent=1))

    give_up = time.monotonic() + given.seconds
    for work in works(given.tiny):
        if any(word in f"{work}, {work.members} members" for word in given.only):
            measured(work, keep, give_up)


if __name__ == "__main__":
    main()
