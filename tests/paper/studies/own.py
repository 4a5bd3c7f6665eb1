"""A small study with a loop of its own, and a real process that runs it: `python -m tests.paper.studies.own FOLDER`."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables
from windermere.paper.studies.running import Choice, Ended, run_study
from windermere.paper.studies.study import OwnRun, Place, Study


@dataclass(frozen=True, kw_only=True)
class OwnRow(RunRow):
    square: int


@dataclass(frozen=True, kw_only=True)
class PowerRow(RunRow):
    power: int


SQUARES, POWERS = Table(MAIN, OwnRow), Table("powers", PowerRow)
NAMES = ("later-name", "a-name")


def do(name: str, seed: int, place: Place) -> Tables:
    powers = [PowerRow(run=name, seed=seed, power=(seed + 2) ** k) for k in range(3)]
    return Tables({SQUARES: [OwnRow(run=name, seed=seed, square=seed**2)], POWERS: powers})


def draw(tables: Tables, folder: Path) -> list[Path]:
    (folder / "drawn.txt").write_text(f"{len(tables[SQUARES])} rows")
    return [folder / "drawn.txt"]


OWN = Study(
    name="own",
    paper="ours",
    what="a test",
    tables=(SQUARES, POWERS),
    own_runs=lambda quick: {name: OwnRun(seeds=(0,) if quick else (0, 1, 2), do=partial(do, name)) for name in NAMES},
    draw=draw,
)


def ran(out: Path, **changes: object) -> Ended:
    return run_study(OWN, out, Choice(**changes))  # type: ignore[arg-type]


if __name__ == "__main__":
    page = 65536  # all that a pipe holds: the process waits for its reader in each seed
    run_study(OWN, Path(sys.argv[1]), Choice(), report=lambda now: print(now.name.ljust(page)))
