"""Running a study: what is not done yet is trained, measured and added to its tables, and then all of it is drawn.

Killed or stopped at any moment, it goes on where it was, here or wherever its folder was carried to. Seeds that diverge
are noted down, and the others of their run go on without them.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import Any

from windermere.errors import DivergedError, UsageError
from windermere.nn.arithmetic import convolving_in
from windermere.paper import data
from windermere.paper.arithmetic import IMAGES, check_it_suits
from windermere.paper.studies.folder import (
    StudyFolder,
    arithmetic_of,
    diverged,
    from_tables,
    read_tables,
    refuse_another_study,
    run_of,
)
from windermere.paper.studies.measuring import part_to_test
from windermere.paper.studies.own import carry_out, chosen_runs, missing_seeds
from windermere.paper.studies.parts import Part, begun_seeds, groups, missing_parts
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finished, Share, Study
from windermere.paper.training import (
    Labelled,
    Report,
    RunConfig,
    StopSign,
    TrainingOutcome,
    leave_behind,
    open_run,
    train,
    train_together,
    trained_ensemble,
)
from windermere.paper.training.config import DTYPES
from windermere.records import CONFIGS, RunFolder, environment, read_json, read_metrics

Load = Callable[[str, int], tuple[Labelled, Labelled]]
"""Training and test set by the data's name and seed."""
Train = Callable[..., list[TrainingOutcome]]
"""Trains some configs as one, each in its run's folder, as `train_group` does."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How much of a study to run, and on what."""

    quick: bool = False
    seeds: tuple[int, ...] | None = None
    """The seeds to run; None leaves them as the study has them."""
    device: str = "cpu"
    only: str = "*"
    """A pattern for the names of runs."""
    arithmetic: str | None = None
    """The arithmetic for runs on images; None leaves each run as the study has it."""


@dataclass(frozen=True)
class Progress:
    """How far a study has come."""

    name: str
    """The name of the run that is being trained, or of the study where all is computed at once."""
    precision_name: str
    report: Report | None
    """The run's own; None of a study that trains nothing."""
    share: float
    """The share of all work that is done, between 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a study's running ended."""

    reason: str
    """`finished`, or why it stopped: `time limit`, `interrupted` or `terminated`."""
    idle: bool
    """Whether all that was asked for was done before."""
    left: list[str]
    """Runs that are not done."""
    diverged: dict[str, list[int]]
    """Seeds that were, by run, in all of the study so far."""
    figures: list[Path]


@cache
def load_sets(name: str, seed: int) -> tuple[Labelled, Labelled]:
    loaded = data.load(name, seed=seed)
    return loaded.train, loaded.test


def train_group(
    configs: Sequence[RunConfig],
    training_set: Labelled,
    test_set: Labelled,
    runs: Sequence[RunFolder],
    *,
    sign: StopSign,
    report: Callable[[int, Report], None],
) -> list[TrainingOutcome]:
    if len(configs) > 1:
        return train_together(configs, training_set, test_set, runs, sign=sign, report=report)
    return [train(configs[0], training_set, test_set, runs[0], sign=sign, report=partial(report, 0))]


def run_study(
    study: Study,
    out: Path,
    choice: Choice,
    *,
    sign: StopSign | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    load: Load = load_sets,
    train: Train = train_group,
) -> Ended:
    """Train and measure what is not done yet, and draw all that is."""
    sign = sign or StopSign()
    if study.own_runs(choice.quick):
        return _run_own(study, out, choice, sign, report)
    chosen = _chosen(study, choice)
    if not out.exists():
        for config in chosen.values():
            load(config.data, config.data_seed)  # data that are missing leave no folder behind
    folder = StudyFolder(out, study, quick=choice.quick)
    if not chosen:
        _compute(folder, choice.quick, lambda share: report(Progress(study.name, "", None, share)))
    _borrow(folder, choice.quick)
    parts = [part for name, config in chosen.items() for part in missing_parts(folder, name, config)]
    for part in parts:  # what is amiss is told before hours of training
        folder.refuse_other_arithmetic(part.name, part.config.arithmetic)
        load(part.config.data, part.config.data_seed)
    runner = _Runner(folder, sign, _Shares(parts, report), load, train)
    for group in groups(parts):
        if sign.check() or not runner.carry_out(group):
            break
    left = [name for name, config in chosen.items() if missing_parts(folder, name, config)]
    lost: dict[str, list[int]] = {}
    for row, _ in diverged(study.main.read(out)):
        lost.setdefault(row.run, []).append(row.seed)
    return Ended(
        reason=sign.reason or "finished" if left else "finished",
        idle=bool(chosen) and not parts,
        left=left,
        diverged=lost,
        figures=draw_study(study, out),
    )


def _run_own(study: Study, out: Path, choice: Choice, sign: StopSign, report: Callable[[Progress], None]) -> Ended:
    """Carry out the runs of a study that trains by itself."""
    runs = chosen_runs(study.name, study.own_runs(choice.quick), choice.only, choice.seeds)
    folder = StudyFolder(out, study, quick=choice.quick)
    idle = not missing_seeds(folder, runs)
    left = carry_out(folder, runs, sign, lambda run, share: report(Progress(run, "", None, share)))
    return Ended(
        reason=sign.reason or "finished" if left else "finished",
        idle=idle,
        left=list(dict.fromkeys(run for run, _ in left)),
        diverged={},
        figures=draw_study(study, out),
    )


def _compute(folder: StudyFolder, quick: bool, share: Share) -> None:
    """All tables of a study that trains nothing."""
    made, begun = environment("cpu"), monotonic()
    tables = folder.study.compute(quick, share)
    folder.add(tables, {folder.study.name: {**made, "finished": _now(), "seconds": round(monotonic() - begun, 3)}})


def _borrow(folder: StudyFolder, quick: bool) -> None:
    """What studies beside this one have measured, where it is not there yet; nothing of a run whose seeds here were
    trained in another arithmetic."""
    lent, made = folder.study.borrow(folder.path.parent, quick)
    other = {run for name, how in made.items() if folder.arithmetics(run := run_of(name)) - {arithmetic_of(how)}}
    tables, made = folder.without_done(Tables({folder.study.main: [row for row in lent if row.run not in other]}), made)
    if tables:
        folder.add(tables, made)


def draw_study(study: Study, out: Path) -> list[Path]:
    """Its figures, from the tables that are on disk; none where there are none yet."""
    refuse_another_study(out, study)
    tables = read_tables(out, study)
    with from_tables(out):
        return study.draw(tables, out) if tables[study.main] else []


def _chosen(study: Study, choice: Choice) -> dict[str, RunConfig]:
    configs = study.runs(choice.quick)
    chosen = {name: config for name, config in configs.items() if fnmatch(name, choice.only)}
    if not chosen and (configs or choice.only != "*"):
        raise UsageError(
            f"no run of '{study.name}' is called '{choice.only}': there are {', '.join(configs) or 'none'}"
        )
    data = [config.data for config in chosen.values()] or [study.name]
    if choice.arithmetic is not None and not set(data) & set(IMAGES):
        check_it_suits(choice.arithmetic, data[0], "float32")
    return {name: _as_chosen(config, choice) for name, config in chosen.items()}


def _as_chosen(config: RunConfig, choice: Choice) -> RunConfig:
    config = replace(config, seeds=config.seeds if choice.seeds is None else choice.seeds, device=choice.device)
    if choice.arithmetic is None or config.data not in IMAGES:
        return config
    return replace(config, arithmetic=choice.arithmetic)


@dataclass(frozen=True)
class _Runner:
    """Trains and measures parts of a study."""

    folder: StudyFolder
    sign: StopSign
    shares: "_Shares"
    load: Load
    train: Train

    def carry_out(self, group: Sequence[Part]) -> bool:
        """Train and measure some parts; whether that was finished."""
        try:
            outcomes = self._train(group)
        except DivergedError as error:  # whose run may be further than the others by now: they go on apart
            return all(self.carry_out(parts) for parts in groups(self._without_diverged(group, error)))
        for part, outcome in zip(group, outcomes, strict=True):
            if outcome.finished:
                self._measure(part, together=len(group))
        return all(outcome.finished for outcome in outcomes)

    def _train(self, group: Sequence[Part]) -> list[TrainingOutcome]:
        training_set, test_set = self._sets(group[0].config)
        with ExitStack() as stack:
            runs = [stack.enter_context(_opened(part)) for part in group]
            configs = [part.config for part in group]

            def report(i: int, now: Report) -> None:
                self.shares.at(group[i], now)

            return self.train(configs, training_set, test_set, runs, sign=self.sign, report=report)

    def _sets(self, config: RunConfig) -> tuple[Labelled, Labelled]:
        training_set, test_set = self.load(config.data, config.data_seed)
        return training_set, part_to_test(config, test_set)

    def _without_diverged(self, group: Sequence[Part], error: DivergedError) -> list[Part]:
        """Note down the seeds that diverged; the parts that go on, with the seeds that are left."""
        if not error.seeds:
            raise error
        kept, study = [], self.folder.study
        for part in group:
            if part.folder != error.run:
                kept.append(part)
                continue
            lost = [study.lost(part.name, part.config, seed, error.iteration) for seed in error.seeds]
            self.folder.add(Tables({study.main: lost}), _provenance(part, len(group)))
            if seeds := tuple(seed for seed in part.config.seeds if seed not in error.seeds):
                kept.append(replace(part, config=replace(part.config, seeds=seeds)))
        return kept

    def _measure(self, part: Part, together: int) -> None:
        config = part.config
        trained = trained_ensemble(part.folder, device=config.device)
        training_set, test_set = (
            (inputs.to(config.device, DTYPES[config.dtype]), labels.to(config.device))
            for inputs, labels in self._sets(config)
        )
        with convolving_in(config.arithmetic):
            tables = self.folder.study.measure(Finished(part.name, trained, test_set, part.folder, training_set))
        self.folder.add(tables, _provenance(part, together))


def _opened(part: Part) -> RunFolder:
    begun = begun_seeds(part.folder)
    if lost := set(begun) - set(part.config.seeds):
        leave_behind(part.folder, sorted(lost))
    return open_run(part.folder, part.config, resume=bool(begun))


def _provenance(part: Part, together: int) -> dict[str, Any]:
    """How and where a part was trained. Runs that were trained together are each given an equal share of the time."""
    rows = [row for row in read_metrics(part.folder) if "seconds" in row]
    seconds = round(rows[-1]["seconds"] / together, 3) if rows else 0.0
    noted = {name: each for name, each in read_json(part.folder / "environment.json").items() if name != CONFIGS}
    begun = {**noted, "arithmetic": part.config.arithmetic}
    return {part.folder.name: {**begun, "finished": _now(), "seconds": seconds}}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Shares:
    """How far all parts are together."""

    def __init__(self, parts: Sequence[Part], report: Callable[[Progress], None]) -> None:
        self.work = {part.folder: part.work for part in parts}
        self.reached = dict.fromkeys(self.work, 0.0)
        self.report = report

    def at(self, part: Part, now: Report) -> None:
        self.reached[part.folder] = now.iteration / now.iterations
        done = sum(share * self.work[path] for path, share in self.reached.items())
        share = done / sum(self.work.values())
        self.report(Progress(part.name, part.config.precision_name, now, share))
