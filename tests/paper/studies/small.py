"""A small study, and a real process that runs it: `python -m tests.paper.studies.small FOLDER`."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.paper.training.small import a_config
from tests.processes import ROOT, python
from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables
from windermere.paper.studies.runner import Progress
from windermere.paper.studies.running import Choice, Ended, run_study
from windermere.paper.studies.study import Finished, Study
from windermere.paper.training import RunConfig, evaluate
from windermere.records import sparse
from windermere.solvers import FixedStep

SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class SmallRow(RunRow):
    iterations: int = 60
    accuracy: float | None = None
    diverged_at: int | None = sparse()


@dataclass(frozen=True, kw_only=True)
class TwiceRow(RunRow):
    twice: float


TABLE, MORE = Table(MAIN, SmallRow), Table("more", TwiceRow)


def runs(quick: bool) -> Mapping[str, RunConfig]:
    """A run's name may be the beginning of another's."""
    iterations = 20 if quick else 60
    return {
        f"euler-{n}": a_config(
            solver=FixedStep.of("euler", steps=n), iterations=iterations, log_every=1, checkpoint_every=4
        )
        for n in (1, 16)
    }


def measure(run: Finished) -> Tables:
    config, found = run.trained.config, evaluate(run.trained.ensemble, run.trained.solvers, run.test_set)
    members = list(zip(config.seeds, found.accuracy, strict=True))
    rows = [SmallRow(run=run.name, seed=s, iterations=config.iterations, accuracy=a) for s, a in members]
    return Tables({TABLE: rows, MORE: [TwiceRow(run=run.name, seed=seed, twice=2 * a) for seed, a in members]})


def untested(run: str, config: RunConfig, seed: int) -> SmallRow:
    return SmallRow(run=run, seed=seed, iterations=config.iterations)


def draw(tables: Tables, folder: Path) -> list[Path]:
    (folder / "drawn.txt").write_text(f"{len(tables[TABLE])} rows")
    return [folder / "drawn.txt"]


SMALL = Study(
    name="small",
    paper="nowhere",
    what="a test",
    tables=(TABLE, MORE),
    runs=runs,
    measure=measure,
    untested=untested,
    draw=draw,
)


def ran(out: Path, **changes: object) -> Ended:
    return run_study(SMALL, out, Choice(**{"seeds": SEEDS, **changes}))  # type: ignore[arg-type]


def iteration(now: Progress) -> int:
    """How far the run is that a study trains."""
    assert now.report is not None
    return now.report.iteration


def assert_same_tables(one: Path, other: Path) -> None:
    for name in ("table.csv", "more.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


@contextmanager
def study_process(out: Path) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """Writes a line for each iteration, and is some twenty ahead of its reader at most; killed at the latest when the
    body is left."""
    with python("-u", "-m", "tests.paper.studies.small", out, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process, process.stdout


if __name__ == "__main__":
    page = 4096  # of which a pipe holds sixteen
    run_study(SMALL, Path(sys.argv[1]), Choice(seeds=SEEDS), report=lambda now: print(now.name.ljust(page)))
