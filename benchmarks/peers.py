"""Windermere beside torchdiffeq, torchode, diffrax and a hand-written `lax.scan`, on the same weights and data.

Every library does each piece of work in several forms, and its fastest counts; all must come to the same loss and
gradient. `python -m benchmarks peers` measures on all cores, `python -m benchmarks.peers one-core` the time of a single
one's work, which others on the machine disturb little; `python -m benchmarks.peers table` draws docs/speed.md again.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from statistics import median
from typing import Any

import torch

import windermere as wm
from benchmarks.measuring import RESULTS, Bar, keep, show, side_by_side, wait_for_quiet
from benchmarks.peers_jax import jax_contenders
from benchmarks.peers_table import write_page
from benchmarks.peers_torch import torch_contenders, windermere
from benchmarks.peers_work import Contender, Work, batch, difference, model
from windermere.paper import data
from windermere.records import read_json

WORKS = (
    *(Work(method="euler", steps=steps, members=members) for members in (1, 5) for steps in (2, 64, 256)),
    Work(method="euler", steps=64, members=45),
    *(Work(method="rk4_38", steps=64, members=members) for members in (1, 5)),
    *(Work(method="dopri54", tolerance=1e-4, adjoint=adjoint) for adjoint in (False, True)),
)
SAME_GRID, SAME_TOLERANCE = (1e-5, 1e-4), (1e-3, 1e-1)
"""How far losses and gradients may be apart, relatively, in float32. Adaptive solvers each choose steps of their own,
and the gradient of a network with kinks depends on them."""
AS_WRITTEN = "Conv1d"
"""The form of the field that users write: reported too where another one is faster."""
PATIENCE = 60.0
"""Seconds to wait, before each measurement, for others to leave the machine alone."""


def contenders(work: Work) -> Iterator[Contender]:
    x, y = batch()
    if work.members <= 5:
        yield from torch_contenders(work, x, y)
    else:
        yield windermere(work, x, y)
    yield from jax_contenders(work, x, y)


def measure(work: Work, rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """Check that all agree, find each library's best form, and time those side by side."""
    found = list(contenders(work))
    apart = _differences(work, found)
    trial = side_by_side({str(k): c.step for k, c in enumerate(found)}, rounds=3, warm_up=1, lead=1, clock=clock)
    entered = _entered(found, [trial[str(k)] for k in range(len(found))])
    busy = wait_for_quiet(PATIENCE if clock is time.perf_counter else 0)
    seconds = side_by_side({name: found[k].step for name, k in entered.items()}, rounds=rounds, lead=1, clock=clock)
    return {
        "work": str(work),
        "members": work.members,
        "seconds": seconds,
        "forms": {name: found[k].form for name, k in entered.items()},
        "compile_seconds": {name: found[k].compile_seconds for name, k in entered.items()},
        "differences": {name: apart[k] for name, k in entered.items()},
        "busy_cores_of_others": busy,
    }


def _differences(work: Work, found: list[Contender]) -> list[tuple[float, float]]:
    """How far each one's losses and gradients are from ours; too far is an error."""
    graded = [c.graded() for c in found]
    apart = [difference(g, graded[0]) for g in graded]
    limits = SAME_GRID if work.tolerance is None else SAME_TOLERANCE
    for c, (loss, gradient) in zip(found, apart, strict=True):
        if not (loss <= limits[0] and gradient <= limits[1]):
            raise ValueError(f"{work}: {c.library} ({c.form}) differs by {loss:.2g} and {gradient:.2g} from ours")
    return apart


def _entered(found: list[Contender], seconds: list[float]) -> dict[str, int]:
    """The fastest form of each library, and of those as users write them where that is another one."""
    entered: dict[str, int] = {}
    for k in sorted(range(len(found)), key=lambda k: seconds[k]):
        entered.setdefault(found[k].library, k)
        if found[k].form.startswith(AS_WRITTEN) and entered[found[k].library] != k:
            entered.setdefault(f"{found[k].library}, {AS_WRITTEN}", k)
    return entered


def audited(iterations: int = 500, rounds: int = 3, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """An audit of 1000 test points, of a model trained for a while with 64 Euler steps."""
    work = Work(method="euler", steps=64)
    x, y = batch()
    ours = windermere(work, x, y)
    for _ in range(iterations):
        ours.step()
    trained = model(0, work.solver)
    trained.load_state_dict({name: tensor[0] for name, tensor in ours.state().items()})
    test = data.load("sphere2").test
    seconds = []
    for _ in range(rounds):
        begun = clock()
        verdict = wm.audit(trained, (test.inputs[:1000], test.labels[:1000]))
        seconds.append(clock() - begun)
    return {"seconds": median(seconds), "passes": verdict.evaluations}


def run(*, rounds: int = 15, name: str = "peers", clock: Callable[[], float] = time.perf_counter) -> list[Bar]:
    rows = []
    for work in WORKS:
        rows.append(measure(work, rounds, clock))
        print(_summary(rows[-1]), flush=True)
    versions = {name: metadata.version(name) for name in ("torchdiffeq", "torchode", "jax", "diffrax")}
    result: dict[str, Any] = {"works": rows, "audit": audited(clock=clock), "versions": versions}
    show("An audit of 1000 points of a Sphere2 model", result["audit"])
    keep(name, result)
    draw_page()
    return bars(rows)


def run_on_one_core() -> list[Bar]:
    """Processor time, which is what a single thread works, whoever else waits for the core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    return run(name="peers_one_core", clock=time.process_time)


def draw_page() -> None:
    found = [path for name in ("peers", "peers_one_core") if (path := RESULTS / f"{name}.json").exists()]
    write_page([read_json(path) for path in found])


def _summary(row: Mapping[str, Any]) -> str:
    lines = [f"\nSphere2 training step, {row['work']}, {row['members']} members, {torch.get_num_threads()} threads"]
    ours = row["seconds"]["windermere"]
    for name, seconds in row["seconds"].items():
        compiled = f", compiled in {row['compile_seconds'][name]:.1f} s" if row["compile_seconds"][name] else ""
        lines.append(f"  {name:<30} {1000 * seconds:8.2f} ms {seconds / ours:6.2f}x   {row['forms'][name]}{compiled}")
    return "\n".join(lines)


def bars(rows: list[dict[str, Any]]) -> list[Bar]:
    """What was asked for before anything was measured."""
    by_work = {(row["work"], row["members"]): row["seconds"] for row in rows}
    one, five = by_work["euler, 64 steps", 1], by_work["euler, 64 steps", 5]
    adaptive, adjoint = by_work["dopri54, tolerance 0.0001", 1], by_work["dopri54, tolerance 0.0001, adjoint", 1]
    asked = (
        ("one model, Euler 64, times diffrax", one["diffrax"] / one["windermere"], 1),
        ("one model, Euler 64, times torchdiffeq's Conv1d", _as_written(one) / one["windermere"], 8),
        ("five members, times torchdiffeq's Conv1d", _as_written(five) / five["windermere"], 10),
        ("five members, times the best of JAX", min(five["diffrax"], five["lax.scan"]) / five["windermere"], 1.3),
        ("dopri54, times torchdiffeq's Conv1d", _as_written(adaptive) / adaptive["windermere"], 2),
        ("dopri54 with adjoint, times torchdiffeq's Conv1d", _as_written(adjoint) / adjoint["windermere"], 2),
    )
    return [Bar(name=name, measured=value, limit=limit, at_least=True, unit="x") for name, value, limit in asked]


def _as_written(seconds: Mapping[str, float]) -> float:
    return seconds.get(f"torchdiffeq, {AS_WRITTEN}", seconds["torchdiffeq"])


if __name__ == "__main__":
    if sys.argv[1:] not in (["table"], ["one-core"]):
        sys.exit("python -m benchmarks.peers one-core | table")
    for bar in run_on_one_core() if sys.argv[1] == "one-core" else []:
        print(f"  {bar}")
    draw_page()
