"""A study on three nodes of Ray, with a node killed twice, beside the same study without Ray; and what Ray costs.

`python -m benchmarks ray_study`. The 34 runs are the 17 of sphere2-fixed with two learning rates, with few iterations:
its quick version has 7 only. What is measured begins when Ray has started and a process of each side has trained and
measured something: what it imports for that is its start.
"""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measuring import Bar, keep, show
from benchmarks.ray_nodes import first_at_work, nodes, raylet_of
from windermere.paper.cluster.pool import Cluster, open_pool
from windermere.paper.studies.grids import fixed_runs
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Study
from windermere.paper.training import RunConfig

ROUNDS, SEEDS = 3, (0, 1)
FEW: Mapping[str, Any] = {"iterations": 300, "log_every": 50, "evaluate_every": 300, "checkpoint_every": 20}
MORE: Mapping[str, Any] = {"iterations": 900, "log_every": 50, "evaluate_every": 150, "checkpoint_every": 500}


def thirty_four(settings: Mapping[str, Any]) -> dict[str, RunConfig]:
    runs = fixed_runs("sphere2", quick=False)
    return {
        f"{name}-lr{lr:g}": replace(config, lr=lr, **settings) for lr in (1e-3, 1e-2) for name, config in runs.items()
    }


def study_of(runs: Mapping[str, RunConfig]) -> Study:
    return replace(find_study("sphere2-fixed"), draw=lambda tables, folder: [], runs=lambda quick: runs)


FIRST = study_of({"euler-1-lr0.001": replace(thirty_four(FEW)["euler-1-lr0.001"], iterations=2, evaluate_every=1)})
SHORT, LONGER = study_of(thirty_four(FEW)), study_of(thirty_four(MORE))


def tables_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.csv"))}


@dataclass
class Spent:
    """Seconds by the clock, and of all processors, of this process and of all that it has started."""

    clock: float
    processors: float

    @classmethod
    def now(cls) -> "Spent":
        return cls(time.perf_counter(), processor_seconds(os.getpid()))

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.clock - before.clock, self.processors - before.processors)


def processor_seconds(process: int) -> float:
    """Processor time of a process and of those that it has started, and they in turn, those that have ended too."""
    families: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            families.setdefault(int(fields[1]), []).append(int(path.parent.name))
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))

    def of(number: int) -> int:
        return ticks.get(number, 0) + sum(map(of, families.get(number, [])))

    return of(process) / os.sysconf("SC_CLK_TCK")


def spent_on(out: Path, study: Study, cluster: Cluster | None = None) -> Spent:
    """What a study takes, once all that it needs has been used."""
    run_study(FIRST, out / "first", Choice(seeds=SEEDS), cluster=cluster)
    begun = Spent.now()
    run_study(study, out / "study", Choice(seeds=SEEDS), cluster=cluster)
    return Spent.now().since(begun)


def by_ray(out: Path, study: Study) -> Spent:
    """One node with one core."""
    with nodes(0, cores=1) as started, open_pool(started.address) as pool:
        return spent_on(out, study, Cluster(open=lambda: nullcontext(pool), tell=print))


def side_by_side(folder: Path) -> dict[str, Any]:
    """One process without Ray, and one node of Ray with one core, in turns."""
    spent: dict[str, list[Spent]] = {"plain": [], "ray": []}
    for number in range(ROUNDS):
        spent["plain"].append(spent_on(folder / f"plain-{number}", LONGER))
        spent["ray"].append(by_ray(folder / f"ray-{number}", LONGER))
    found: dict[str, Any] = {"runs": len(thirty_four(MORE)), **MORE, "seeds of a run": len(SEEDS)}
    found["tables equal"] = all(
        tables_of(folder / f"ray-{n}" / "study") == tables_of(folder / f"plain-{n}" / "study") for n in range(ROUNDS)
    )
    for kind in ("clock", "processors"):
        seconds = {name: [round(getattr(one, kind), 1) for one in each] for name, each in spent.items()}
        ratios = [ray / plain for ray, plain in zip(seconds["ray"], seconds["plain"], strict=True)]
        found[kind] = {**seconds, "ratios": [round(ratio, 3) for ratio in ratios]}
    return found


def killing(folder: Path) -> dict[str, Any]:
    """Three nodes; one at work is killed with its process, then another one, and two new ones come."""
    told: list[str] = []
    killed: list[float] = []
    out, begun = folder / "killed", time.perf_counter()

    def kill_twice() -> None:
        met: set[int] = set()
        for after in (4, 10):
            while len(list(out.glob("runs/*/model.safetensors"))) < after:
                time.sleep(0.05)
            process = first_at_work(out, met)
            met.add(process)
            for number in (raylet_of(process), process):
                os.kill(number, signal.SIGKILL)
            killed.append(round(time.perf_counter() - begun, 1))

    with nodes(3) as started:

        def tell(sentence: str) -> None:
            """Ray starts nodes from the main thread only, which this is."""
            told.append(sentence)
            if len(told) <= 2:
                started.add_node(num_cpus=1)

        threading.Thread(target=kill_twice, daemon=True).start()
        cluster = Cluster(open=partial(open_pool, started.address), tell=tell)
        run_study(SHORT, out, Choice(seeds=SEEDS), cluster=cluster)
    run_study(SHORT, folder / "whole", Choice(seeds=SEEDS))
    equal = tables_of(out) == tables_of(folder / "whole")
    return {
        "nodes": 3,
        "runs": len(thirty_four(FEW)),
        "killed": len(killed),
        "seconds": killed,
        "told": told,
        "tables equal": equal,
    }


def run() -> list[Bar]:
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        deaths, times = killing(folder), side_by_side(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {"side by side": times, "killed": deaths}
    show("34 runs of Sphere2 by Ray", {**times, **deaths})
    keep("ray_study", result)
    equal = deaths["killed"] if deaths["tables equal"] else 0
    spent = times["processors"]["ratios"]
    return [
        Bar(name="Ray over plain, of all processors' seconds", measured=median(spent), limit=1.1, at_least=False),
        Bar(name="Ray over plain", measured=median(times["clock"]["ratios"]), limit=1.1, at_least=False),
        Bar(name="nodes killed, with equal tables after", measured=equal, limit=2, at_least=True),
    ]
