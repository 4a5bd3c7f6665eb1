"""Real Ray, in a process of its own: `python -m tests.paper.cluster.rays SCENE FOLDER [ADDRESS]` runs a study with
mishaps.

Its processes are ended by it, or with it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ray_nodes import first_at_work, nodes, raylet_of
from tests.paper.studies import small
from windermere.paper.cluster.pool import Cluster, open_pool
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Finished
from windermere.paper.training import RunConfig, StopSign, stop_sign

SEEDS = (0, 1)
QUICKLY = {f"health_check_{name}": value for name, value in (("period_ms", 500), ("failure_threshold", 3))}
QUICKLY |= {"health_check_initial_delay_ms": 0, "health_check_timeout_ms": 1000}


def dying_once(run: Finished) -> Tables:
    """The process of each run's first attempt is killed when it has trained and not yet answered."""
    if run.folder.name.startswith("0001-"):
        os.kill(os.getpid(), signal.SIGKILL)
    return small.measure(run)


def longer_runs(quick: bool) -> Mapping[str, RunConfig]:
    """For some seconds each."""
    every = {"iterations": 3000, "log_every": 100, "evaluate_every": 1000, "checkpoint_every": 50}
    return {name: replace(config, **every) for name, config in small.runs(quick).items()}  # type: ignore[arg-type]


DYING, LONGER = replace(small.SMALL, measure=dying_once), replace(small.SMALL, runs=longer_runs)


def beside(act: Callable[[], None]) -> None:
    threading.Thread(target=act, daemon=True).start()


def killing_twice(out: Path) -> None:
    """A node dies, with all of its processes, then another."""
    met: set[int] = set()
    for _ in range(2):
        process = first_at_work(out, met)
        met.add(process)
        for number in (raylet_of(process), process):
            os.kill(number, signal.SIGKILL)


def cutting_off(out: Path, told: list[str], *, with_node: bool) -> None:
    """A process stops, alone or with its node, and goes on when its successor is at work."""
    process = first_at_work(out, set())
    stopped = [process, *([raylet_of(process)] if with_node else [])]
    for number in stopped:
        os.kill(number, signal.SIGSTOP)
    while not told:
        time.sleep(0.02)
    first_at_work(out, {process})
    for number in stopped:
        os.kill(number, signal.SIGCONT)


def over_once_at_work(out: Path, sign: StopSign) -> None:
    first_at_work(out, set())
    sign.time_limit = 0.0


class Others:
    """What somebody else has running on a cluster."""

    def process(self) -> int:
        return os.getpid()


def titles(process: int) -> list[str]:
    """What Ray calls the processes below one."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    found = []
    for child in map(int, " ".join(path.read_text() for path in children).split()):
        with suppress(OSError):  # it has just ended
            found += [Path(f"/proc/{child}/cmdline").read_text().strip("\0 "), *titles(child)]
    return found


def shared(how: str, out: Path, tell: Callable[[str], None]) -> None:
    """A command on a cluster that others use is stopped; tells what it said, and what is left of theirs and of ours."""
    import ray

    with nodes(2) as started:
        ray.init(address=started.address, log_to_driver=False)
        others: Any = ray.remote(Others).options(num_cpus=0).remote()
        before = ray.get(others.process.remote())
        command = [sys.executable, "-m", "tests.paper.cluster.rays", how, str(out), started.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            first_at_work(out, set())
            if how != "time limit":
                process.send_signal(signal.SIGKILL if how == "SIGKILL" else signal.SIGINT)
            said, _ = process.communicate()
        free: Callable[[], dict[str, float]] = ray.available_resources
        while free().get("CPU") != 2.0 or "ray::Board" in titles(os.getpid()):
            time.sleep(0.1)
        alive = sum(node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]
        same = ray.get(others.process.remote()) == before
        ray.shutdown()
    tell(f"{said.strip()}; {alive} nodes live, and what others had there {'goes on' if same else 'was ended'}")


def run(scene: str, out: Path, address: str | None = None) -> None:
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        print(sentence, file=sys.__stdout__, flush=True)

    if scene.startswith("shared: "):
        shared(scene.removeprefix("shared: "), out, tell)
        return
    if scene in ("nothing happens", "time limit", "Ctrl-C", "SIGKILL"):
        with stop_sign() as sign:
            if scene == "time limit":
                beside(partial(over_once_at_work, out, sign))
            there = Cluster(open=partial(open_pool, address), tell=tell)
            tell(run_study(LONGER, out, Choice(seeds=SEEDS), sign=sign, cluster=there).reason)
        return
    if scene == "process dies":
        run_study(DYING, out, Choice(seeds=SEEDS), cluster=Cluster(open=partial(open_pool, None), tell=tell))
        return
    with nodes(3, **QUICKLY) as started:

        def tell_and_add(sentence: str) -> None:
            """Two others come. Ray starts nodes from the main thread only, which this is."""
            tell(sentence)
            if scene == "nodes die" and len(told) <= 2:
                started.add_node(num_cpus=1)

        cluster = Cluster(open=partial(open_pool, started.address), tell=tell_and_add, patience=8.0)
        acts: Mapping[str, Callable[[], None]] = {
            "nodes die": partial(killing_twice, out),
            "process stops": partial(cutting_off, out, told, with_node=False),
            "node stops": partial(cutting_off, out, told, with_node=True),
        }
        beside(acts[scene])
        run_study(LONGER, out, Choice(seeds=SEEDS), cluster=cluster)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
