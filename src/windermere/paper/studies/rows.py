"""The rows of studies' tables, and the tables that hold them: one place that writes them and reads them back.

Shapes: S steps, N points in the plane.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from windermere.records import RowFile, read_rows, sparse, write_rows

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
MAIN = "table"
"""The name of the table that every study has: with its rows in place, a run is done."""


@dataclass(frozen=True)
class Table(Generic[R]):
    """A table of a study: a CSV file of its folder, with rows of one kind."""

    name: str
    rows: type[R]

    def read(self, folder: Path) -> list[R]:
        return read_rows(folder / f"{self.name}.csv", self.rows)

    def write(self, folder: Path, rows: Iterable[R]) -> None:
        write_rows(folder / f"{self.name}.csv", self.rows, rows)

    def file(self, folder: Path) -> RowFile[R]:
        """The table's file, for one who reads and writes often."""
        return RowFile(folder / f"{self.name}.csv", self.rows)


class Tables(dict[Table[Any], Sequence[Any]]):
    """Rows by their table. A table that is not there has none."""

    def __getitem__(self, table: Table[R]) -> Sequence[R]:
        return self.get(table, ())


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row about one seed of a run."""

    run: str
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        return self.run, self.seed


def of_seeds(tables: Tables, chosen: Callable[[int], bool]) -> Tables:
    """Their rows of some seeds, and those that are about none."""
    return Tables({t: [r for r in rows if not isinstance(r, RunRow) or chosen(r.seed)] for t, rows in tables.items()})


def five_digits(value: float) -> float:
    """As many as mean anything in a table."""
    return float(f"{value:.5g}")


def five_digits_or_none(value: float | None) -> float | None:
    return None if value is None else five_digits(value)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """All values by their keys, in their order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


@dataclass(frozen=True, kw_only=True)
class ScoreRow(RunRow):
    """One model under one solver. A seed that diverged has one row, without what was never measured."""

    data: str
    method: str
    steps: int | None = None
    """The number of steps in training; all fields before `test_method` tell of training."""
    tolerance: float | None = None
    gradient: str | None = None
    lr: float
    iterations: int
    cost: float | None = None
    """Forward evaluations of the field per iteration."""
    test_method: str | None = None
    test_steps: int | None = None
    test_tolerance: float | None = None
    factor: float | None = None
    """The test's step or tolerance divided by that of training."""
    own: bool
    """Whether it is the solver of training."""
    accuracy: float | None
    """None where the solve failed, or the training diverged."""
    evaluations: int | None = None
    float64: bool | None = None
    """Whether float32 could not resolve the tolerance."""


@dataclass(frozen=True, kw_only=True)
class GridRow(ScoreRow):
    """A row of a grid."""

    diverged_at: int | None = sparse()
    """The iteration."""


GRID = Table(MAIN, GridRow)


@dataclass(frozen=True, kw_only=True)
class StateRow:
    """Where a point is after so many steps."""

    point: int
    label: int
    step: int
    x: float
    y: float


S = TypeVar("S", bound=StateRow)


def state_rows(kind: Callable[..., S], states: Floats, labels: Labels, **shared: Any) -> list[S]:
    """Trajectories [S + 1, N, 2] of points with labels [N], a row for each state."""
    return [
        kind(**shared, point=point, label=int(labels[point]), step=step, x=float(x), y=float(y))
        for point, path in enumerate(states.transpose(1, 0, 2))
        for step, (x, y) in enumerate(path)
    ]


def states_of(rows: Sequence[StateRow]) -> tuple[Floats, Labels]:
    """What `state_rows` was given."""
    points, steps = 1 + max(row.point for row in rows), 1 + max(row.step for row in rows)
    states, labels = np.full((steps, points, 2), np.nan), np.zeros(points, dtype=np.int64)
    for row in rows:
        states[row.step, row.point] = row.x, row.y
        labels[row.point] = row.label
    return states, labels


def draw_png(draw: Callable[[Path], object], folder: Path, name: str) -> list[Path]:
    draw(path := folder / f"{name}.png")
    return [path]
