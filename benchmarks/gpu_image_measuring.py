"""How much of an image network is measured, and its times and memory."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch import Tensor

import benchmarks.absent  # noqa: F401  first: it stands in for packages that are missing
from windermere.paper.training import RunConfig
from windermere.solvers import Solver

SHAPES = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}
IMAGES = {"cifar10": 50_000, "mnist": 60_000}


class Size:
    """What is measured; a rehearsal measures as little as it can."""

    def __init__(self, tiny: bool) -> None:
        self.tiny = tiny
        self.device = "cpu" if tiny else "cuda"
        self.batch, self.few, self.many, self.very_many = (2, 1, 2, 3) if tiny else (256, 16, 64, 1024)
        self.at_once, self.rounds = (1, 1) if tiny else (5, 5)

    def images(self, data: str) -> tuple[Tensor, Tensor]:
        count = 4 if self.tiny else IMAGES[data]
        generator = torch.Generator(self.device).manual_seed(0)
        inputs = torch.rand(count, *SHAPES[data], generator=generator, device=self.device)
        return inputs, torch.randint(10, (count,), generator=generator, device=self.device)

    def config(self, data: str, solver: Solver, **changes: Any) -> RunConfig:
        given: dict[str, Any] = {"optimizer": "adam", "lr": 1e-5, "iterations": 1_000_000, "device": self.device}
        given |= {"log_every": 10_000, "evaluate_every": 10_000, "checkpoint_every": 10_000}
        return RunConfig(
            **{"data": data, "solver": solver, "seeds": (0,), "batch_size": self.batch, **given, **changes}
        )


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def memory(numbers: dict[str, Any]) -> Iterator[None]:
    """The most that was allocated at once inside, in MiB: the images and the model included."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    yield
    numbers["peak MiB"] = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0


def paces(size: Size, work: Callable[[int], Any]) -> dict[str, float]:
    """Seconds of the first iterations, and the median milliseconds of a later one; work(i) makes `size.at_once` of
    them, from i on, and waits for them."""
    found = []
    for i in range(1 + size.rounds):
        begun = time.perf_counter()
        work(i * size.at_once)
        found.append(time.perf_counter() - begun)
    return {"first s": found[0], "ms": 1e3 * median(found[1:]) / size.at_once}
