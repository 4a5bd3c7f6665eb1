"""What docs/scale.md reckons with: tasks a second, signs of life, checkpoints, taking over, rows, bytes of a run.

`python -m benchmarks ray_costs`.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measuring import Bar, keep, show, side_by_side
from benchmarks.ray_nodes import nodes
from windermere.paper.cluster.driver import Driver
from windermere.paper.cluster.pool import open_pool
from windermere.paper.cluster.work import Resources, Work
from windermere.paper.studies.folder import StudyFolder
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import GRID, GridRow, Tables
from windermere.paper.training import RunConfig, StopSign, hold_run, make_ensemble, paper_settings
from windermere.paper.training.checkpoint import make_optimizer, pack
from windermere.records import AttemptFolder, hand_out, new_label, read_tensors, take_over
from windermere.solvers import FixedStep

TASKS, ROUNDS, ATTEMPTS = 2000, 1, 5
SOME = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))


def median_seconds(act: Callable[[], object], times: int = 15, clock: Callable[[], float] = time.perf_counter) -> float:
    return side_by_side({"it": act}, rounds=times, warm_up=0, clock=clock)["it"]


def handed_out() -> dict[str, Any]:
    """Work in which nothing is to be done, through the driver, signs of life included."""
    rates = []
    with nodes(2) as started, open_pool(started.address) as pool:
        nothing = Work(runs=(), configs=(), sets=(SOME, SOME), resources=Resources())
        Driver(pool, StopSign()).drive([nothing] * 20, lambda ended: ())
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            Driver(pool, StopSign()).drive([nothing] * TASKS, lambda ended: ())
            rates.append(TASKS / (time.perf_counter() - begun))
        beats = _beats()
    return {"tasks a second": [round(rate) for rate in rates], "signs of life a second": round(beats)}


def _beats(count: int = 2000) -> float:
    import ray

    from windermere.paper.cluster.board import Board

    board: Any = ray.remote(Board).options(num_cpus=0).remote()
    plain = {0: dict.fromkeys("abcdefgh", 1.0)}
    ray.get(board.beat.remote("first", "here", plain))
    begun = time.perf_counter()
    ray.get([board.beat.remote(str(number % 1000), "here", plain) for number in range(count)])
    return count / (time.perf_counter() - begun)


def checkpoints(folder: Path) -> dict[str, dict[str, float]]:
    """A checkpoint of an attempt: written with all fsyncs, read and checked; and taking over what was reached."""
    return {data: _checkpoint(folder / data, data) for data in ("sphere2", "mnist", "cifar10")}


def _checkpoint(run: Path, data: str) -> dict[str, float]:
    solver = FixedStep.of("euler", steps=2)
    config = RunConfig(data=data, solver=solver, seeds=(0,), **{**paper_settings(data, solver), "optimizer": "adam"})
    ensemble = make_ensemble(config)
    optimizer = make_optimizer("adam", ensemble.parameters(), 1e-3)
    for tensor in ensemble.parameters():
        tensor.grad = torch.zeros_like(tensor)
    optimizer.step()
    tensors = pack(ensemble, optimizer)
    taken = []
    with hold_run(run, config) as held:
        for number in range(1, ATTEMPTS + 1):
            label, meta = new_label(number), {"iteration": number, "config": config.digest, "seeds": [0]}
            hand_out(held, label)
            with AttemptFolder.begin(run, label, config.to_dict(), {}) as attempt:
                attempt.log({"iteration": number, "loss": 0.5})
                write = median_seconds(partial(attempt.save_checkpoint, tensors, meta))
                read = median_seconds(partial(read_tensors, attempt.checkpoint))
                size = attempt.checkpoint.stat().st_size
                attempt.save_model({name: t.detach() for name, t in ensemble.tensors.items()}, {})
            taken.append(median_seconds(partial(take_over, held), 1))
    of_run = sum(path.stat().st_size for path in run.iterdir())
    seconds = {"written in s": round(write, 4), "read in s": round(read, 4), "taken over in s": round(median(taken), 4)}
    return {"bytes": size, **seconds, "bytes of a run": of_run}


def rows(folder: Path) -> dict[str, float]:
    """Processor seconds of adding the rows of one more run (13 rows) to a table that has those of so many already."""
    study = replace(find_study("sphere2-fixed"), runs=lambda quick: {})
    found = {}
    for runs in (100, 1000, 10_000):
        here = StudyFolder(folder / str(runs), study, quick=False)
        many = [_row(f"run-{number}", test) for number in range(runs) for test in range(13)]
        made = {f"run-{number}_seeds-0": {"commit": "0" * 40, "torch": "2", "device": "cuda"} for number in range(runs)}
        here.add(Tables({GRID: many}), made)
        one = Tables({GRID: [_row("one-more", test) for test in range(13)]})
        seconds = median_seconds(partial(here.add, one, {}), 5, time.process_time)
        found[str(runs)] = round(seconds, 4)
    return found


def _row(run: str, test: int) -> GridRow:
    return GridRow(
        run=run, seed=0, data="sphere2", method="euler", steps=64, lr=1e-3, iterations=1500, cost=64.0,
        test_method="euler", test_steps=2**test, factor=2.0**-test, own=False, accuracy=0.9123, evaluations=2**test,
    )  # fmt: skip


def run() -> list[Bar]:
    torch.set_num_threads(1)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        result: dict[str, Any] = {"checkpoints": checkpoints(folder / "runs"), "rows": rows(folder)}
    out = handed_out()
    result |= {"handed out": out, "open files allowed": limit}
    show("What a sweep costs", result)
    keep("ray_costs", result)
    rate = median(out["tasks a second"])
    return [Bar(name="no-op tasks through the driver", measured=rate, limit=200, at_least=True, unit=" a second")]
