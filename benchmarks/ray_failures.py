"""A sweep of 100,000 runs on 1,000 GPUs whose nodes fail: a seeded simulation, with measured costs of checkpoints.

`python -m benchmarks ray_failures`. Each GPU does one run after the other. Nodes of eight GPUs fail at random times and
are replaced after a while, and what their runs had since the last checkpoint is done again.
"""

import heapq
import random
from dataclasses import dataclass
from math import sqrt
from typing import Any

from benchmarks.measuring import RESULTS, Bar, keep, show
from windermere.records import read_json

GPUS, PER_NODE, RUNS = 1000, 8, 100_000
NOTICED, REPLACED = 30.0, 600.0
"""Seconds until a dead node is noticed, and until another has taken its place."""
BEGIN = 12.0
"""Seconds for a process to begin: Python, PyTorch, the first iteration."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is simulated; times in seconds."""

    seconds: float = 600.0
    """How long each run trains."""
    interval: float = 60.0
    """Between checkpoints."""
    write: float = 0.01
    between_failures: float = 30 * 86_400.0
    """The mean for a node."""
    seed: int = 0


def simulate(sweep: Sweep, runs: int = RUNS, gpus: int = GPUS) -> dict[str, float]:
    """A discrete-event simulation; a run that was cut off goes on on whichever GPU is free next."""
    chance, nodes = random.Random(sweep.seed), gpus // PER_NODE
    waiting, remaining = runs, list[float]()
    slow = 1 + sweep.write / sweep.interval
    failing = [chance.expovariate(1 / sweep.between_failures) for _ in range(nodes)]
    free = [(0.0, gpu) for gpu in range(gpus)]
    heapq.heapify(free)
    lost = failures = end = 0.0
    while free and (waiting or remaining):
        now, gpu = heapq.heappop(free)
        node = gpu // PER_NODE
        if remaining:
            left = remaining.pop()
        else:
            left, waiting = sweep.seconds, waiting - 1
        if failing[node] < now:  # it failed while this GPU was idle or had been seen to
            failing[node] = now + chance.expovariate(1 / sweep.between_failures)
        done = now + BEGIN + left * slow
        if done <= failing[node]:
            end = max(end, done)
            heapq.heappush(free, (done, gpu))
            continue
        trained = max(0.0, (failing[node] - now - BEGIN) / slow)
        kept = trained - trained % sweep.interval
        lost, failures = lost + trained - kept, failures + 1
        remaining.append(left - kept)
        heapq.heappush(free, (failing[node] + NOTICED + REPLACED, gpu))
    ideal = runs * sweep.seconds
    return {"hours": end / 3600, "runs cut off": failures, "lost": lost / ideal, "spent over ideal": end * gpus / ideal}


def best_interval(write: float, between_failures: float) -> float:
    """Young's: the square root of twice the cost of a checkpoint times the mean time between failures."""
    return sqrt(2 * write * between_failures)


def run() -> list[Bar]:
    costs = read_json(RESULTS / "ray_costs.json")["checkpoints"]
    write = costs["cifar10"]["written in s"]
    found: list[dict[str, Any]] = []
    for days in (1, 30):
        for interval in (6.0, 60.0, 600.0):
            sweep = Sweep(interval=interval, write=write, between_failures=days * 86_400.0)
            result = {name: round(value, 5) for name, value in simulate(sweep).items()}
            found.append({"days between failures of a node": days, "interval": interval, **result})
    young = {str(days): round(best_interval(write, days * 86_400.0), 1) for days in (1, 30)}
    show("100,000 runs of ten minutes on 1,000 GPUs", {f"{number}": row for number, row in enumerate(found)})
    keep("ray_failures", {"written in s": write, "best interval by days": young, "simulated": found})
    worst = max(row["lost"] for row in found if row["interval"] == 60.0)
    return [Bar(name="work lost with a checkpoint a minute", measured=worst, limit=0.01, at_least=False)]
