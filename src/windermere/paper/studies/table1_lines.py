"""Table 1 line by line: a data set's grid of Euler steps, its critical entry, and the adapted runs beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from windermere.adaptation.step_size import check_solver
from windermere.paper.studies.critical import (
    Entry,
    Model,
    bracket,
    did_train,
    ends,
    is_full_length,
    rate_apart,
    short_number,
)
from windermere.paper.studies.measuring import steps_at
from windermere.paper.studies.rows import MAIN, ScoreRow, Table
from windermere.paper.studies.study import data_name

GRID = {"sphere2": (32, 64, 128, 256), "cifar10": (4, 8, 16, 32)}
"""Euler steps around the paper's critical ones, and around ours."""


@dataclass(frozen=True, kw_only=True)
class Table1Row(ScoreRow):
    """A row of a grid, or of an adapted run: it has the columns of both."""

    algorithm: str | None = None
    check: str | None = None
    threshold: float | None = None
    target: float | None = None
    checks_share: float | None = None
    final_steps: int | None = None
    final_tolerance: float | None = None
    diverged_at: int | None = None


TABLE = Table(MAIN, Table1Row)


@dataclass(frozen=True)
class Line:
    """One data set with one learning rate."""

    data: str
    lr: float
    entries: list[Entry]
    adapted: list[float]
    """The accuracy of each seed with an adapted step, and what it cost."""
    costs: list[float]
    whole: bool
    """Whether all of the grid is there, and trained in full."""

    @property
    def fails(self) -> int | None:
        """The number of steps of the finest entry that fails; None where all pass."""
        fails, _ = ends((int(entry.precision), entry.passes) for entry in self.entries)
        return fails

    @property
    def critical(self) -> Entry | None:
        """The coarsest entry from which on all pass; None where the finest fails."""
        return ends((entry, entry.passes) for entry in self.entries)[1]

    @property
    def bracket(self) -> str:
        return bracket(*ends((entry.precision, entry.passes) for entry in self.entries))

    @property
    def apart(self) -> str:
        """Why it is counted apart, if it is."""
        return rate_apart(self.data, self.lr)

    @property
    def name(self) -> str:
        return f"{data_name(self.data)}, learning rate {short_number(self.lr)}"


def lines(rows: Sequence[Table1Row]) -> list[Line]:
    scored = [row for row in rows if row.accuracy is not None or not row.own]
    keys = dict.fromkeys((row.data, row.lr) for row in scored)
    return [_line(data, lr, [row for row in scored if (row.data, row.lr) == (data, lr)]) for data, lr in keys]


def _line(data: str, lr: float, rows: Sequence[Table1Row]) -> Line:
    fixed = [(row.steps, row) for row in rows if row.method == "euler"]
    adapted = [(row.accuracy or 0.0, row.cost or 0.0) for row in rows if row.algorithm == "paper" and row.own]
    counts = sorted({steps for steps, _ in fixed if steps is not None})
    entries = [_entry(count, [row for steps, row in fixed if steps == count]) for count in counts]
    whole = all(is_full_length(data, row.iterations) for row in rows) and set(counts) >= set(GRID[data])
    accuracy, costs = ([one[n] for one in adapted] for n in (0, 1))
    return Line(data, lr, [entry for entry in entries if entry.models], accuracy, costs, whole)


def _entry(steps: int, rows: Sequence[Table1Row]) -> Entry:
    models = list[Model]()
    for own in (row for row in rows if row.own and did_train(row)):
        checked = _checked([row for row in rows if row.seed == own.seed], steps)
        if checked is not None:
            models.append(Model(run=own.run, seed=own.seed, own=own.accuracy, checked=checked, trained=True))
    return Entry(precision=steps, models=models)


def _checked(rows: Sequence[Table1Row], steps: int) -> float | None:
    """With midpoint's coarsest steps that are as fine as Algorithm 2 asks; the finest, where none are. A solve that
    fails classifies nothing."""
    needed = steps_at(check_solver("euler", "midpoint", 1 / steps, 1.0).step)
    tests = [(row.test_steps or 0, row.accuracy or 0.0) for row in rows if row.test_method == "midpoint"]
    tests.sort(key=lambda test: test[0])
    chosen = [test for test in tests if test[0] >= needed][:1] or tests[-1:]
    return chosen[0][1] if chosen else None
