"""From a grid's table to its critical step: which seeds trained, and from which precision on a better solver agrees.

A grid is all rows of one data set, one training method, one way to take gradients and (on CIFAR-10) one learning rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean
from typing import Any

from windermere.errors import UsageError
from windermere.paper.arithmetic import IMAGES
from windermere.paper.training import paper_settings
from windermere.records import Row
from windermere.solvers import FixedStep, adaptive_names
from windermere.solvers.tableaus import tableau

THRESHOLD = 0.1
"""Algorithm 2's: accuracies further apart are not the same."""
LEAST_ACCURACY = {"mnist": 0.8, "cifar10": 0.35}
LEAST_ON_SPHERES = 0.8
"""A seed whose accuracy with its own solver is below did not train: it is drawn in grey, and not averaged."""
LEAST_OF_QUICK = {"mnist": 0.6, "cifar10": 0.25}
"""The same limit for the quick studies of images, which train for a short time only."""


def did_train(own: Row) -> bool:
    """Whether a model, by the row of its test with its own solver, is one to average over."""
    if own.get("diverged_at") is not None or own.get("accuracy") is None:
        return False
    data = own["data"]
    quick = data in IMAGES and not is_full_length(data, own["iterations"])
    return bool(own["accuracy"] >= (LEAST_OF_QUICK if quick else LEAST_ACCURACY).get(data, LEAST_ON_SPHERES))


def is_full_length(data: str, iterations: int) -> bool:
    """Whether a training is as long as the paper's: quick runs tell nothing of its numbers."""
    return iterations >= int(paper_settings(data, FixedStep("euler", step=1.0))["iterations"])


@dataclass(frozen=True, kw_only=True)
class Check:
    """A better solver than that of training."""

    method: str
    factor: float
    """The check's step or tolerance as a multiple of the training solver's."""

    def __str__(self) -> str:
        of = "tolerance" if self.method in adaptive_names() else "step"
        return f"{self.method} at {self.factor:g} times the training {of}"


@dataclass(frozen=True, kw_only=True)
class Model:
    """One seed of one run."""

    run: str
    seed: int
    own: float | None
    """Accuracy with the solver it was trained with."""
    checked: float | None
    """Accuracy with the check solver."""
    trained: bool
    diverged_at: int | None

    @property
    def drop(self) -> float:
        """What the check solver loses; a solve that fails classifies nothing."""
        return (self.own or 0.0) - (self.checked or 0.0)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """All models of a grid that were trained with one precision."""

    precision: float
    """Number of steps, or tolerance."""
    models: list[Model]

    @property
    def trained(self) -> list[Model]:
        return [model for model in self.models if model.trained]

    @property
    def gap(self) -> float:
        return fmean(abs(model.drop) for model in self.trained)

    @property
    def passes(self) -> bool:
        """The check of Algorithm 2, averaged over the seeds that trained."""
        return self.gap <= THRESHOLD + 1e-9


@dataclass(frozen=True, kw_only=True)
class Critical:
    """Where a grid's models begin to pass the check, as the paper gives it: between two of its entries."""

    fails: float | None
    """The number of steps (or the tolerance) of the finest entry that fails; None where all pass."""
    passes: float | None
    """The same number for the coarsest entry from which on all pass; None where the finest fails."""
    check: Check | None
    """None where no seed trained."""

    def __str__(self) -> str:
        if self.passes is not None and self.fails is not None:
            between = "-" if self.passes >= 1 else " to "
            return f"{short_number(self.fails)}{between}{short_number(self.passes)}"
        if self.passes is not None:
            return f"{short_number(self.passes)} or coarser"
        return "unknown" if self.fails is None else f"finer than {short_number(self.fails)}"


def critical_steps(rows: Sequence[Row], method: str, check: Check | None = None) -> Critical:
    """The smallest number of steps (or largest tolerance) from which on every entry of the grid trained with `method`
    passes. The check is the finest better solver in the table, unless one is named."""
    check = check or finest_check(rows, method)
    there = [entry for entry in entries(rows, method, check) if entry.trained]
    passing = list(takewhile(lambda entry: entry.passes, reversed(there)))
    failing = there[: len(there) - len(passing)]
    return Critical(
        fails=failing[-1].precision if failing else None,
        passes=passing[-1].precision if passing else None,
        check=check if there else None,
    )


def finest_check(rows: Sequence[Row], method: str) -> Check:
    """The highest order, then the finest precision, of what a grid was tested with besides its own solver."""
    return max(finer_checks(rows, method), key=lambda check: (tableau(check.method).order, -check.factor))


def finer_checks(rows: Sequence[Row], method: str) -> set[Check]:
    """All solvers of equal or smaller error that a grid was tested with; its own where there is no other."""
    others = [row for row in _of(rows, method) if not row["own"] and row["factor"] <= 1]
    checks = {Check(method=row["test_method"], factor=row["factor"]) for row in others}
    return checks or {Check(method=method, factor=1.0)}


def entries(rows: Sequence[Row], method: str, check: Check) -> list[Entry]:
    """A grid's, from coarse to fine."""
    grid = _of(rows, method)
    own = [row for row in grid if row["own"]]
    checked = {
        (row["run"], row["seed"]): row["accuracy"]
        for row in grid
        if (row.get("test_method"), row.get("factor")) == (check.method, check.factor)
    }
    by_precision: dict[float, list[Model]] = {}
    for row in own:
        model = _model(row, checked.get((row["run"], row["seed"])))
        by_precision.setdefault(precision_of(row), []).append(model)
    adaptive = any(row.get("tolerance") is not None for row in own)
    return [Entry(precision=p, models=by_precision[p]) for p in sorted(by_precision, reverse=adaptive)]


def precision_of(row: Row) -> float:
    """Steps or tolerance of training."""
    steps: float | None = row.get("steps")
    return steps if steps is not None else row["tolerance"]


def _model(own: Row, checked: Any) -> Model:
    return Model(
        run=own["run"],
        seed=own["seed"],
        own=own["accuracy"],
        checked=checked,
        trained=did_train(own),
        diverged_at=own.get("diverged_at"),
    )


def _of(rows: Sequence[Row], method: str) -> list[Row]:
    grid = [row for row in rows if row.get("method") == method]
    for column in ("data", "gradient", "lr"):
        if len(values := {row.get(column) for row in grid}) > 1:
            found = " and ".join(sorted(map(str, values)))
            raise UsageError(f"a grid has one {column}, not {found}: ask for the rows of one at a time")
    return grid


def short_number(value: float) -> str:
    """Numbers of steps as they are; 1e-3, not 0.001 and not 1e-03."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")
