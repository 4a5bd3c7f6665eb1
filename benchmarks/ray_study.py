"""A study on three nodes of Ray, with a node killed twice, beside the same study without Ray; and what Ray costs.

`python -m benchmarks ray_study`. The 34 runs are the 17 of sphere2-fixed with two learning rates, with few iterations:
its quick version has 7 only.
"""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measuring import Bar, keep, show
from benchmarks.ray_nodes import first_at_work, nodes, raylet_of
from windermere.paper.cluster.driver import Driver
from windermere.paper.cluster.pool import Cluster, Pool, open_pool
from windermere.paper.cluster.work import Resources, Work
from windermere.paper.studies.grids import fixed_runs
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.running import Choice, load_sets, run_study
from windermere.paper.studies.study import Study
from windermere.paper.training import RunConfig, StopSign

ROUNDS, SEEDS = 2, (0, 1)
FEW: Mapping[str, Any] = {"iterations": 300, "log_every": 50, "evaluate_every": 300, "checkpoint_every": 20}


def thirty_four(quick: bool) -> dict[str, RunConfig]:
    runs = fixed_runs("sphere2", quick=False)
    return {f"{name}-lr{lr:g}": replace(config, lr=lr, **FEW) for lr in (1e-3, 1e-2) for name, config in runs.items()}


QUICK = replace(find_study("sphere2-fixed"), draw=lambda tables, folder: [])
STUDY = replace(QUICK, runs=thirty_four)


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
    """Processor time of a process and of those that it has started, and they in turn."""
    families: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            families.setdefault(int(fields[1]), []).append(int(path.parent.name))
            ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])

    def of(number: int) -> int:
        return ticks.get(number, 0) + sum(map(of, families.get(number, [])))

    return of(process) / os.sysconf("SC_CLK_TCK")


def plainly(out: Path, study: Study, choice: Choice) -> Spent:
    begun = Spent.now()
    run_study(study, out, choice)
    return Spent.now().since(begun)


@contextmanager
def warm(address: str, begun: list[Spent]) -> Iterator[Pool]:
    """The pool, once a process of it has imported PyTorch; then the clock starts."""
    with open_pool(address) as pool:
        nothing = Work(runs=(), configs=(), sets=load_sets("sphere2", 0), resources=Resources())
        Driver(pool, StopSign()).drive([nothing], lambda ended: ())
        begun.append(Spent.now())
        yield pool
        begun.append(Spent.now())


def by_ray(out: Path, study: Study, choice: Choice, address: str, tell: Callable[[str], None]) -> Spent:
    times: list[Spent] = []
    cluster = Cluster(open=lambda: warm(address, times), tell=tell)
    run_study(study, out, choice, cluster=cluster)
    return times[1].since(times[0])


def side_by_side(folder: Path) -> dict[str, Any]:
    """One process without Ray, and one node of Ray with one core, in turns: the quick study."""
    spent: dict[str, list[Spent]] = {"plain": [], "ray": []}
    for number in range(ROUNDS):
        spent["plain"].append(plainly(folder / f"plain-{number}", QUICK, Choice(quick=True)))
        with nodes(1) as started:
            spent["ray"].append(by_ray(folder / f"ray-{number}", QUICK, Choice(quick=True), started.address, print))
    found: dict[str, Any] = {}
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
        by_ray(out, STUDY, Choice(seeds=SEEDS), started.address, tell)
    plainly(folder / "whole", STUDY, Choice(seeds=SEEDS))
    equal = tables_of(out) == tables_of(folder / "whole")
    return {
        "nodes": 3,
        "runs": len(thirty_four(True)),
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
