"""What a study is: the paper's claim, the runs that test it, what is measured on them, and how it is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from windermere.paper.studies.rows import RunRow, Table, Tables
from windermere.paper.training import Labelled, RunConfig, Trained, paper_settings
from windermere.solvers import Solver

Borrowed: TypeAlias = tuple[Sequence[RunRow], Mapping[str, Any]]
"""Other studies' rows, and by name how they were made (`borrowed` says by which study)."""
Share: TypeAlias = Callable[[float], None]
"""What is told how much of some work is done."""
SEEDS = (0, 1, 2, 3, 4)
"""The paper's five, unless a study is asked for fewer or more."""
QUICK_SPHERES: Mapping[str, Any] = {"iterations": 1500, "lr": 1e-3}
"""Tenfold the paper's learning rate for a seventh of its iterations."""
QUICK_IMAGES: Mapping[str, Any] = {"iterations": 200, "batch_size": 32, "seeds": (1,), "log_every": 10}
"""What a CPU can train, and what is enough for a model to be tied to its solver. MNIST's seed 0 diverges with eight
Euler steps, with the paper's batches of 256 too."""


def paper_config(data: str, solver: Solver, *, tests: int = 10, **settings: Any) -> RunConfig:
    """A run of the paper's five seeds and settings, but for those that are given, with so many tests on the way."""
    values = {"seeds": SEEDS, **paper_settings(data, solver), **settings}
    return RunConfig(data=data, solver=solver, evaluate_every=values["iterations"] // tests, **values)


def data_name(data: str) -> str:
    """A data set's name as the paper writes it."""
    return {"mnist": "MNIST", "cifar10": "CIFAR-10", "mnist-patches": "MNIST in patches"}.get(data, data.capitalize())


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim beside what we found."""

    claim: str
    """The paper's, in our words; the same words for each of its cases."""
    ours: str
    """Our numbers, with their spread."""
    agrees: bool | None
    """Whether the finding agrees with the claim; None where the results so far cannot tell."""
    beyond: bool = False
    """Whether the paper claims nothing, and the finding is about something of ours."""
    case: str = ""
    """Which data set or method the finding is about; empty where the claim is about one thing only."""
    apart: str = ""
    """Why it is counted apart from the paper's claims: it rests on one seed, or on a setting that is not printed."""
    brief: str = ""
    """Its number alone, for a table that has no room for more."""


def of_ours(claim: str, ours: str, case: str = "") -> Finding:
    """A finding about something that the paper claims nothing of, so that it is not judged."""
    return Finding(claim=claim, ours=ours, agrees=None, beyond=True, case=case)


ONE_SEED = "one seed"
NOT_PRINTED = "a rate that is not printed"
"""The reasons to count a finding apart."""


def seed_count(*numbers: int) -> str:
    """How many seeds stand behind a finding, where runs or entries have so many each."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    many = f"{low} seeds" if low == high else f"{low} to {high} seeds"
    return ONE_SEED if low == high == 1 else many


@dataclass(frozen=True)
class Finished:
    """A trained run of a study, about to be measured."""

    name: str
    trained: Trained
    test_set: Labelled
    folder: Path
    """The run's own folder, where its metrics are."""
    training_set: Labelled | None = None
    """None where it is not needed."""


@dataclass(frozen=True)
class Place:
    """Where a run of a study's own is carried out."""

    device: str = "cpu"
    folder: Path | None = None
    """For what takes long and would be lost with the process, such as what several runs start from; None keeps none."""


HERE = Place()


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """A run that a study carries out with a loop of its own, one seed after another."""

    seeds: tuple[int, ...]
    """Its seeds, unless a study is asked for fewer or more."""
    do: Callable[[int, Place], Tables]
    """What a seed contributes to the tables; the same in whatever order seeds and runs are done."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """One experiment. It trains runs and measures each, carries out runs of its own, or computes all of it at once."""

    name: str
    paper: str
    """Where the paper has it: "Figure 4 (a, b)"."""
    what: str
    """One line."""
    tables: tuple[Table[Any], ...]
    """The main one first."""
    draw: Callable[[Tables, Path], list[Path]]
    """Draws the figures from the tables into a folder; returns their paths."""
    runs: Callable[[bool], Mapping[str, RunConfig]] = field(default=lambda quick: {})
    """Its runs by name, for all five seeds; scaled down if quick (on images, to one seed)."""
    measure: Callable[[Finished], Tables] = field(default=lambda run: Tables())
    """What a trained run contributes to the tables."""
    untested: Callable[[str, RunConfig, int], RunRow] = field(default=lambda run, _, seed: RunRow(run=run, seed=seed))
    """What a row of the main table says of the training of a run's seed. Where runs are trained, it has a field
    `diverged_at`."""
    borrow: Callable[[Path, bool], Borrowed] = field(default=lambda results, quick: ((), {}))
    """Rows of its main table that other studies beside it (in this folder of results) have measured already."""
    own_runs: Callable[[bool], Mapping[str, OwnRun]] = field(default=lambda quick: {})
    """By name, the runs of a study whose training is not the paper's."""
    needs: tuple[str, ...] = ()
    """The data sets of its own runs that must be on the disk."""
    on_devices: bool = False
    """Whether its own runs can be carried out on another device than the CPU."""
    compute: Callable[[bool, Share], Tables] = field(default=lambda quick, share: Tables())
    """The tables of a study that trains nothing; it tells `share` how much of them is there, between 0 and 1."""
    findings: Callable[[Tables], list[Finding]] = field(default=lambda tables: [])
    """What the tables say of the paper's claims."""
    otherwise: Callable[[Tables], Mapping[str, list[Finding]]] = field(default=lambda tables: {})
    """Its findings with other seeds left out, by which they are; empty where none is left out anyway."""
    text: Callable[[Tables], str] = field(default=lambda tables: "")
    """More to say of the tables than findings can."""
    beside: tuple[str, ...] = ()
    """Studies whose main tables, where they are there, its findings get as well, each as a table of that name."""
    left_out: Callable[[Tables], str] = field(default=lambda tables: "")
    """A sentence about models that are in no mean; if empty, those that diverged are named."""

    def lost(self, run: str, config: RunConfig, seed: int, iteration: int) -> RunRow:
        """The row of the main table for a seed that diverged."""
        row: Any = self.untested(run, config, seed)
        diverged: RunRow = replace(row, diverged_at=iteration)
        return diverged

    def planned(self, quick: bool) -> list[str]:
        """The names of all runs, in order; none where all is computed at once."""
        return [*self.runs(quick), *self.own_runs(quick)]

    @property
    def main(self) -> Table[Any]:
        return self.tables[0]
