"""Work to hand out: runs that one process trains as one, what that takes, and how an attempt at it ends."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from windermere.errors import DivergedError
from windermere.paper.arithmetic import IMAGES
from windermere.paper.training import (
    Labelled,
    Report,
    RunConfig,
    StopSign,
    TrainingOutcome,
    open_attempt,
    train_group,
)
from windermere.records import ATTEMPTS

Sets: TypeAlias = tuple[Labelled, Labelled]
"""Training and test set."""
Make: TypeAlias = Callable[[int, Path, Sets], Any]
"""What becomes of a trained run besides its files: of its place in the work, its folder and the sets."""
SPHERE_MEMORY, IMAGE_MEMORY = 600 * 2**20, 3 * 2**30
"""What a process is given, PyTorch included: on a CPU one for spheres took 473 MB, and for images this is a guess."""
SPHERE_SHARE, IMAGE_SHARE = 0.25, 0.5
"""How much of a GPU a run takes, unless that is said: a guess, with room to spare on one with 40 GB and more."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a process needs that carries out some work."""

    cores: int = 1
    gpus: float = 0.0
    memory: int = SPHERE_MEMORY
    """Bytes."""

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} of a GPU" if self.gpus else ""
        return f"{self.cores} core{'s' if self.cores > 1 else ''}{gpus} and {self.memory / 2**30:.1f} GiB"

    @classmethod
    def of(cls, config: RunConfig, gpu_share: float | None = None) -> "Resources":
        images = config.data in IMAGES
        share = (IMAGE_SHARE if images else SPHERE_SHARE) if gpu_share is None else gpu_share
        on_gpu = config.device.partition(":")[0] != "cpu"
        return cls(gpus=share if on_gpu else 0.0, memory=IMAGE_MEMORY if images else SPHERE_MEMORY)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Runs that are trained as one: they stay together, in one process."""

    runs: tuple[Path, ...]
    """Their folders, which all machines see."""
    configs: tuple[RunConfig, ...]
    sets: Sets
    resources: Resources
    make: Make = lambda index, folder, sets: None

    def __str__(self) -> str:
        more = len(self.runs) - 1
        return self.runs[0].name + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class Carried:
    """An attempt that came to the end of the work, or to a stop sign."""

    outcomes: Sequence[TrainingOutcome]
    made: Sequence[Any]
    """By run; None of one that is not finished."""


@dataclass(frozen=True)
class Diverged:
    """An attempt that ended since some seeds of a run diverged; the others can go on without them."""

    index: int
    """The place of the run in the work."""
    seeds: tuple[int, ...]
    iteration: int
    why: str


@dataclass(frozen=True)
class Lost:
    """An attempt that ended without an answer, or with an error."""

    why: str
    again: bool = True
    """Whether another attempt may fare better."""


Ending: TypeAlias = Carried | Diverged | Lost


def carry_out(
    work: Work, label: str, sets: Sets, *, sign: StopSign, report: Callable[[int, Report], None]
) -> Carried | Diverged:
    """Train the runs in the folders of this attempt, in the process that the work was handed to."""
    folders = [run / ATTEMPTS / label for run in work.runs]
    with ExitStack() as stack:
        pairs = zip(work.runs, work.configs, strict=True)
        runs = [stack.enter_context(open_attempt(run, label, config)) for run, config in pairs]
        try:
            outcomes = train_group(work.configs, *sets, runs, sign=sign, report=report) if runs else []
        except DivergedError as error:
            if not error.seeds or error.run is None:
                raise
            index = folders.index(error.run)
            why = str(error).replace(str(error.run), str(work.runs[index]))  # where the driver takes all of it
            return Diverged(index, error.seeds, error.iteration, why)
    made = [work.make(i, folder, sets) if outcomes[i].finished else None for i, folder in enumerate(folders)]
    return Carried(outcomes, made)
