"""Training and measuring parts of a study one after the other, and putting what was measured into its tables."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from windermere.errors import DivergedError
from windermere.nn.arithmetic import convolving_in
from windermere.paper.studies.folder import StudyFolder
from windermere.paper.studies.measuring import part_to_test
from windermere.paper.studies.parts import Part, groups
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finished, Study
from windermere.paper.training import (
    Labelled,
    Report,
    RunConfig,
    StopSign,
    TrainingOutcome,
    start_or_resume,
    trained_ensemble,
)
from windermere.paper.training.config import DTYPES
from windermere.records import CONFIGS, read_json, read_metrics

Load = Callable[[str, int], tuple[Labelled, Labelled]]
"""Training and test set by the data's name and seed."""
Train = Callable[..., list[TrainingOutcome]]
"""Trains some configs as one, each in its run's folder, as `train_group` does."""
Measured: TypeAlias = tuple[Tables, dict[str, Any]]
"""Rows, and by name how they were made."""


@dataclass(frozen=True)
class Progress:
    """How far a study has come."""

    name: str
    """The name of the run that is being trained, or of the study where all is computed at once."""
    precision_name: str
    report: Report | None
    """The run's own; None of a study that trains nothing, and of a run elsewhere whose attempt is over."""
    share: float
    """The share of all work that is done, between 0 and 1."""
    where: str = ""
    """The machine that trains the run, where that is another."""


@dataclass(frozen=True)
class Runner:
    """Trains and measures parts of a study."""

    folder: StudyFolder
    sign: StopSign
    shares: "Shares"
    load: Load
    train: Train

    def carry_out(self, group: Sequence[Part]) -> bool:
        """Train and measure some parts; whether that was finished."""
        try:
            outcomes = self._train(group)
        except DivergedError as error:  # whose run may be further than the others by now: they go on apart
            return all(self.carry_out(parts) for parts in groups(self.without_diverged(group, error)))
        for part, outcome in zip(group, outcomes, strict=True):
            if outcome.finished:
                sets = self.sets(part.config)
                self.folder.add(*measured(self.folder.study, part, part.folder, sets, together=len(group)))
        return all(outcome.finished for outcome in outcomes)

    def _train(self, group: Sequence[Part]) -> list[TrainingOutcome]:
        training_set, test_set = self.sets(group[0].config)
        with ExitStack() as stack:
            runs = [stack.enter_context(start_or_resume(part.folder, part.config)) for part in group]
            configs = [part.config for part in group]

            def report(i: int, now: Report) -> None:
                self.shares.at(group[i], now)

            return self.train(configs, training_set, test_set, runs, sign=self.sign, report=report)

    def sets(self, config: RunConfig) -> tuple[Labelled, Labelled]:
        training_set, test_set = self.load(config.data, config.data_seed)
        return training_set, part_to_test(config, test_set)

    def without_diverged(self, group: Sequence[Part], error: DivergedError) -> list[Part]:
        """Note down the seeds that diverged; the parts that go on, with the seeds that are left."""
        if not error.seeds:
            raise error
        kept, study = [], self.folder.study
        for part in group:
            if part.folder != error.run:
                kept.append(part)
                continue
            lost = [study.lost(part.name, part.config, seed, error.iteration) for seed in error.seeds]
            self.folder.add(Tables({study.main: lost}), _provenance(part, part.folder, len(group)))
            if seeds := tuple(seed for seed in part.config.seeds if seed not in error.seeds):
                kept.append(replace(part, config=replace(part.config, seeds=seeds)))
        return kept


def measured(study: Study, part: Part, folder: Path, sets: tuple[Labelled, Labelled], *, together: int) -> Measured:
    """What a trained part contributes to the tables; the folder may be that of an attempt at it."""
    config = part.config
    trained = trained_ensemble(folder, device=config.device)
    training_set, test_set = (
        (inputs.to(config.device, DTYPES[config.dtype]), labels.to(config.device)) for inputs, labels in sets
    )
    with convolving_in(config.arithmetic):
        tables = study.measure(Finished(part.name, trained, test_set, folder, training_set))
    return tables, _provenance(part, folder, together)


def joined(all_measured: Iterable[Measured]) -> Measured:
    """What several parts contribute, to be added at once."""
    tables, made = Tables(), dict[str, Any]()
    for more, how in all_measured:
        tables = Tables({table: [*tables[table], *more[table]] for table in {**tables, **more}})
        made |= how
    return tables, made


def _provenance(part: Part, folder: Path, together: int) -> dict[str, Any]:
    """How and where a part was trained. Runs that were trained together are each given an equal share of the time."""
    rows = [row for row in read_metrics(folder) if "seconds" in row]
    seconds = round(rows[-1]["seconds"] / together, 3) if rows else 0.0
    noted = {name: each for name, each in read_json(folder / "environment.json").items() if name != CONFIGS}
    begun = {**noted, "arithmetic": part.config.arithmetic}
    return {part.folder.name: {**begun, "finished": now(), "seconds": seconds}}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Shares:
    """How far all parts are together."""

    def __init__(self, parts: Sequence[Part], report: Callable[[Progress], None]) -> None:
        self.work = {part.folder: part.work for part in parts}
        self.done, self.all = dict.fromkeys(self.work, 0.0), sum(self.work.values())
        self.report, self.sum = report, 0.0

    def at(self, part: Part, now: Report, where: str = "") -> None:
        self.reach(part, now.iteration / now.iterations)
        self.report(Progress(part.name, part.config.precision_name, now, self.sum / self.all, where))

    def over(self, part: Part, *, finished: bool) -> None:
        """An attempt elsewhere has ended."""
        if finished:
            self.reach(part, 1.0)
        self.report(Progress(part.name, part.config.precision_name, None, self.sum / self.all))

    def reach(self, part: Part, share: float) -> None:
        self.sum += (share - self.done[part.folder]) * self.work[part.folder]
        self.done[part.folder] = share
