"""From a grid's table to its critical step: which seeds trained, and from which precision on a better solver agrees."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TypeVar

from windermere.paper.arithmetic import IMAGES
from windermere.paper.studies.rows import GridRow, ScoreRow, grouped
from windermere.paper.studies.statistics import Sample
from windermere.paper.studies.study import NOT_PRINTED, data_name
from windermere.paper.training import paper_settings
from windermere.solvers import FixedStep, adaptive_names
from windermere.solvers.tableaus import tableau

THRESHOLD = 0.1
"""Algorithm 2's: accuracies further apart are not the same."""


@dataclass(frozen=True)
class PrintedMean(Sample):
    """A mean and a standard deviation of accuracy over five seeds."""

    size: int = 5

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} ± {100 * self.spread:.1f} %"


@dataclass(frozen=True)
class Printed:
    """What the paper's Table 1 has of a data set."""

    fails: int
    passes: int
    """The numbers of Euler steps around the critical one (as evaluations, it gives one more)."""
    grid: PrintedMean
    """The accuracy of the grid's coarsest run that passes."""
    adapted: PrintedMean
    """The accuracy of Algorithm 2, with Euler steps checked by midpoint."""
    cost: float
    """The evaluations per iteration of Algorithm 2."""


PRINTED = {
    "sphere2": Printed(64, 128, PrintedMean(0.987, 0.010), PrintedMean(0.989, 0.006), 100.5),
    "cifar10": Printed(16, 32, PrintedMean(0.547, 0.003), PrintedMean(0.550, 0.008), 21.9),
}
PRINTED_RATE = 1e-3
"""CIFAR-10's."""
LEAST_ACCURACY = {"mnist": 0.8, "cifar10": 0.35}
LEAST_ON_SPHERES = 0.8
"""A seed whose accuracy with its own solver is below did not train: it is drawn in grey, and not averaged."""
LEAST_OF_QUICK = {"mnist": 0.6, "cifar10": 0.25}
"""The same limit for the quick studies of images, which train for a short time only."""


CLASSES = {"mnist": 10, "cifar10": 10}
"""On spheres there are two."""


def did_train(own: ScoreRow) -> bool:
    """Whether a model, by the row of its test with its own solver, is one to average over; one that diverged has no
    accuracy."""
    quick = own.data in IMAGES and not is_full_length(own.data, own.iterations)
    least = (LEAST_OF_QUICK if quick else LEAST_ACCURACY).get(own.data, LEAST_ON_SPHERES)
    return own.accuracy is not None and own.accuracy >= least


def is_full_length(data: str, iterations: int) -> bool:
    """Whether a training is as long as the paper's: quick runs tell nothing of its numbers."""
    return iterations >= int(paper_settings(data, FixedStep("euler", step=1.0))["iterations"])


def rate_apart(data: str, lr: float) -> str:
    """Why what is trained at this rate is counted apart, if it is."""
    return NOT_PRINTED if data == "cifar10" and lr != PRINTED_RATE else ""


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
    diverged_at: int | None = None

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
    def own(self) -> list[float]:
        """Accuracies of those that trained, with their own solver."""
        return [model.own or 0.0 for model in self.trained]

    @property
    def checked(self) -> list[float]:
        """With the check solver; a solve that fails classifies nothing."""
        return [model.checked or 0.0 for model in self.trained]

    @property
    def gap(self) -> float:
        return fmean(abs(model.drop) for model in self.trained)

    @property
    def passes(self) -> bool:
        """The check of Algorithm 2, averaged over the seeds that trained."""
        return self.gap <= THRESHOLD + 1e-9


T = TypeVar("T")


def ends(entries: Iterable[tuple[T, bool]]) -> tuple[T | None, T | None]:
    """The finest entry that fails, and the coarsest from which on all pass, of entries from coarse to fine, each with
    whether it passes; None where there is none."""
    fails: T | None = None
    passes: T | None = None
    for entry, does_pass in entries:
        if not does_pass:
            fails, passes = entry, None
        elif passes is None:
            passes = entry
    return fails, passes


def bracket(fails: float | None, passes: float | None) -> str:
    """The number of steps that fails and the one from which on all pass, in words."""
    if passes is None:
        return "unknown" if fails is None else f"above {fails:g}"
    return f"at most {passes:g}" if fails is None else f"{fails:g}-{passes:g}"


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


@dataclass(frozen=True)
class Grid:
    """All rows of one data set, one training method, one way to take gradients and one learning rate."""

    rows: Sequence[GridRow]
    everyone: bool = False
    """Whether seeds that did not train are averaged too: one that diverged guesses, with any solver."""

    @property
    def first(self) -> GridRow:
        """A row that says what all of them say of the training."""
        return self.rows[0]

    @property
    def adaptive(self) -> bool:
        return self.first.tolerance is not None

    @cached_property
    def finer_checks(self) -> set[Check]:
        """All solvers of equal or smaller error that it was tested with; its own where there is no other."""
        others = [(row.test_method, row.factor) for row in self.rows if not row.own]
        checks = {Check(method=method, factor=factor) for method, factor in others if method and factor and factor <= 1}
        return checks or {Check(method=self.first.method, factor=1.0)}

    @cached_property
    def check(self) -> Check:
        """The highest order, then the finest precision, of what it was tested with besides its own solver."""
        return max(self.finer_checks, key=lambda check: (tableau(check.method).order, -check.factor))

    def entries(self, check: Check | None = None) -> list[Entry]:
        """From coarse to fine."""
        wanted = check or self.check
        checked = {r.key: r.accuracy for r in self.rows if (r.test_method, r.factor) == (wanted.method, wanted.factor)}
        by_precision = grouped(
            (precision, self._model(row, checked.get(row.key)))
            for row in self.rows
            if row.own and (precision := row.steps or row.tolerance)
        )
        return [Entry(precision=p, models=by_precision[p]) for p in sorted(by_precision, reverse=self.adaptive)]

    def _model(self, own: GridRow, checked: float | None) -> Model:
        model = Model(run=own.run, seed=own.seed, own=own.accuracy, checked=checked, trained=did_train(own))
        model = replace(model, diverged_at=own.diverged_at)
        if not self.everyone:
            return model
        guess = 1 / CLASSES.get(own.data, 2)
        return (
            replace(model, trained=True)
            if model.own is not None
            else replace(model, trained=True, own=guess, checked=guess)
        )

    def trained(self, check: Check | None = None) -> list[Entry]:
        """The entries that any seed trained."""
        return [entry for entry in self.entries(check) if entry.trained]

    def critical(self, check: Check | None = None) -> Critical:
        """The smallest number of steps (or largest tolerance) from which on every entry passes. The check is the finest
        better solver in the table, unless one is named."""
        there = self.trained(check)
        fails, passes = ends((entry.precision, entry.passes) for entry in there)
        return Critical(fails=fails, passes=passes, check=(check or self.check) if there else None)

    @property
    def apart(self) -> str:
        """Why it is counted apart, if it is."""
        return rate_apart(self.first.data, self.first.lr)

    @property
    def name(self) -> str:
        """Its data set, with the adjoint and the learning rate where they tell grids apart."""
        adjoint = ", adjoint" if self.first.gradient == "adjoint" else ""
        rate = f", learning rate {short_number(self.first.lr)}" if self.first.data == "cifar10" else ""
        return f"{data_name(self.first.data)}{adjoint}{rate}"

    @property
    def title(self) -> str:
        """What was trained on what, in words."""
        data = data_name(self.first.data)
        return self.name.replace(data, f"{data} trained with {self.first.method}", 1)


def grid_name(data: str, method: str, lr: float) -> str:
    """A name for a study's grid: its training method, and on CIFAR-10 the learning rate."""
    return f"{method}-lr{short_number(lr)}" if data == "cifar10" else method


def grids_in(rows: Iterable[GridRow], *, everyone: bool = False) -> dict[str, Grid]:
    """The grids of a study by their names."""
    found = grouped((grid_name(row.data, row.method, row.lr), row) for row in rows)
    return {name: Grid(own, everyone) for name, own in found.items()}


def short_number(value: float) -> str:
    """Numbers of steps as they are; 1e-3, not 0.001 and not 1e-03."""
    return f"{value:g}" if value >= 1 else f"{value:.0e}".replace("e-0", "e-")
