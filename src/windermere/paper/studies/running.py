"""Running a study: what is not done yet is trained, measured and added to its tables, and then all of it is drawn.

Killed or stopped at any moment, it goes on where it was, here or wherever its folder was carried to. Seeds that diverge
are noted down, and the others of their run go on without them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from windermere.errors import DivergedError, UsageError
from windermere.nn.arithmetic import convolving_in
from windermere.paper import data
from windermere.paper.architectures import products
from windermere.paper.arithmetic import IMAGES, check_it_suits
from windermere.paper.studies.adaptation_measures import rule_of
from windermere.paper.studies.folder import (
    StudyFolder,
    arithmetic_of,
    from_tables,
    reached,
    read_tables,
    refuse_another_study,
    run_of,
)
from windermere.paper.studies.measuring import described, part_to_test
from windermere.paper.studies.study import MAIN, SEEDS, Finished, Study
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
from windermere.records import Row, environment, read_json, read_metrics
from windermere.solvers import Adaptive

GUESSED_STEPS = 12.0
"""The guessed number of steps of an adaptive solve, by which the amount of work is estimated."""


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


@dataclass(frozen=True, kw_only=True)
class Part:
    """Seeds of one run that are trained as one ensemble, in a folder of their own."""

    name: str
    config: RunConfig
    folder: Path

    @property
    def work(self) -> float:
        """About how much there is to do, in products of the field's layers."""
        solver = self.config.solver
        fixed = not isinstance(solver, Adaptive) and self.config.first_step == "given"
        steps = 1 / solver.precision if fixed else GUESSED_STEPS
        samples = self.config.iterations * self.config.batch_size * len(self.config.seeds)
        return samples * steps * len(solver.tableau.b) * products(self.config.data)


@dataclass(frozen=True)
class Progress:
    """How far a study has come."""

    name: str
    """The name of the run that is being trained."""
    precision_name: str
    report: Report
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


def run_study(
    study: Study,
    out: Path,
    choice: Choice,
    *,
    sign: StopSign | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> Ended:
    """Train and measure what is not done yet, and draw all that is."""
    sign, chosen = sign or StopSign(), _chosen(study, choice)
    if not out.exists():
        _load_all(chosen.values())  # data that are missing leave no folder behind
    folder = StudyFolder(out, study, quick=choice.quick)
    if not chosen:
        _compute(folder, choice.quick)
    _borrow(folder, choice.quick)
    parts = [part for name, config in chosen.items() for part in _missing(folder, name, config)]
    for part in parts:  # what is amiss is told before hours of training
        folder.refuse_other_arithmetic(part.name, part.config.arithmetic)
    _load_all(part.config for part in parts)
    shares = _Shares(parts, report)
    for group in _groups(parts):
        if sign.check() or not _carry_out(folder, group, sign, shares):
            break
    left = [name for name, config in chosen.items() if _missing(folder, name, config)]
    reason = sign.reason or "finished" if left else "finished"
    idle = bool(chosen) and not parts
    return Ended(reason=reason, idle=idle, left=left, diverged=_diverged(out), figures=draw_study(study, out))


def _compute(folder: StudyFolder, quick: bool) -> None:
    """All tables of a study that trains nothing."""
    made, begun = environment("cpu"), monotonic()
    tables = folder.study.compute(quick)
    folder.add(tables, {folder.study.name: {**made, "finished": _now(), "seconds": round(monotonic() - begun, 3)}})


def _borrow(folder: StudyFolder, quick: bool) -> None:
    """What studies beside this one have measured, where it is not there yet; nothing of a run whose seeds here were
    trained in another arithmetic."""
    lent, made = folder.study.borrow(folder.path.parent, quick)
    other = {run for name, how in made.items() if folder.arithmetics(run := run_of(name)) - {arithmetic_of(how)}}
    tables, made = folder.without_done({MAIN: [row for row in lent if row["run"] not in other]}, made)
    if tables:
        folder.add(tables, made)


def draw_study(study: Study, out: Path) -> list[Path]:
    """Its figures, from the tables that are on disk; none where there are none yet."""
    refuse_another_study(out, study)
    tables = read_tables(out)
    with from_tables(out):
        return study.draw(tables, out) if tables.get(MAIN) else []


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


def _missing(folder: StudyFolder, name: str, config: RunConfig) -> list[Part]:
    """The seeds of a run that have no rows yet: those that were begun with, and the rest as a new ensemble."""
    done, parts = folder.done(), list[Part]()
    missing = [seed for seed in config.seeds if (name, seed) not in done]
    for path in sorted(folder.runs.glob(f"{name}_seeds-*")) if missing else []:
        seeds = [seed for seed in _seeds_of(path) if (name, seed) not in done]
        if not set(seeds).isdisjoint(missing):
            parts.append(Part(name=name, config=replace(config, seeds=tuple(seeds)), folder=path))
            missing = [seed for seed in missing if seed not in seeds]
            done |= {(name, seed) for seed in seeds}  # or to be: folders that were merged may share seeds
    if missing:
        path = folder.runs / f"{name}_seeds-{'-'.join(map(str, missing))}"
        parts.append(Part(name=name, config=replace(config, seeds=tuple(missing)), folder=path))
    return parts


def _seeds_of(path: Path) -> list[int]:
    """The seeds of a run's folder; none where the process was killed before it wrote the folder's config.json."""
    return list(read_json(path / "config.json")["seeds"]) if (path / "config.json").exists() else []


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts that are trained as one: on a GPU, those that differ in their steps alone and are equally far."""
    groups: dict[Any, list[Part]] = {}
    for part in parts:
        config, solver = part.config, part.config.solver
        fixed = config.controller is None and not isinstance(solver, Adaptive)
        joined = fixed and config.device != "cpu" and config.data.startswith("sphere")
        alike = replace(config, solver=solver.with_precision(1.0), seeds=SEEDS) if joined else part.folder
        groups.setdefault((alike, reached(part.folder) if joined else 0), []).append(part)
    yield from groups.values()


def _carry_out(folder: StudyFolder, group: Sequence[Part], sign: StopSign, shares: "_Shares") -> bool:
    """Train and measure some parts; whether that was finished."""
    try:
        outcomes = _train(group, sign, shares)
    except DivergedError as error:  # whose run may be further than the others by now: they go on apart
        rest = _groups(_without_diverged(folder, group, error))
        return all(_carry_out(folder, parts, sign, shares) for parts in rest)
    for part, outcome in zip(group, outcomes, strict=True):
        if outcome.finished:
            _measure(folder, part, together=len(group))
    return all(outcome.finished for outcome in outcomes)


def _train(group: Sequence[Part], sign: StopSign, shares: "_Shares") -> list[TrainingOutcome]:
    config = group[0].config
    training_set, test_set = _sets(config.data, config.data_seed)
    sets = training_set, part_to_test(config, test_set)
    with ExitStack() as stack:
        runs = [stack.enter_context(_opened(part)) for part in group]
        if len(group) == 1:
            return [train(config, *sets, runs[0], sign=sign, report=lambda now: shares.at(group[0], now))]
        configs = [part.config for part in group]
        return train_together(configs, *sets, runs, sign=sign, report=lambda i, now: shares.at(group[i], now))


def _opened(part: Part) -> Any:
    begun = _seeds_of(part.folder)
    if lost := set(begun) - set(part.config.seeds):
        leave_behind(part.folder, sorted(lost))
    return open_run(part.folder, part.config, resume=bool(begun))


def _without_diverged(folder: StudyFolder, group: Sequence[Part], error: DivergedError) -> list[Part]:
    """Note down the seeds that diverged; the parts that go on, with the seeds that are left."""
    if not error.seeds:
        raise error
    kept = []
    for part in group:
        if part.folder != error.run:
            kept.append(part)
            continue
        folder.add({MAIN: [_row_of_diverged(part, seed, error) for seed in error.seeds]}, _provenance(part, len(group)))
        if seeds := tuple(seed for seed in part.config.seeds if seed not in error.seeds):
            kept.append(replace(part, config=replace(part.config, seeds=seeds)))
    return kept


def _row_of_diverged(part: Part, seed: int, error: DivergedError) -> Row:
    """The row of a seed that diverged, with the columns by which its study tells runs apart."""
    about = described(part.name, part.config) if part.config.controller is None else rule_of(part.config)
    return {"run": part.name, "seed": seed, **about, "own": True, "accuracy": None, "diverged_at": error.iteration}


def _measure(folder: StudyFolder, part: Part, together: int) -> None:
    config = part.config
    trained = trained_ensemble(part.folder, device=config.device)
    inputs, labels = part_to_test(config, _sets(config.data, config.data_seed)[1])
    test_set = inputs.to(config.device, DTYPES[config.dtype]), labels.to(config.device)
    with convolving_in(config.arithmetic):
        tables = folder.study.measure(Finished(part.name, trained, test_set, part.folder))
    folder.add(tables, _provenance(part, together))


def _provenance(part: Part, together: int) -> dict[str, Any]:
    """How and where a part was trained. Runs that were trained together are each given an equal share of the time."""
    rows = [row for row in read_metrics(part.folder) if "seconds" in row]
    seconds = round(rows[-1]["seconds"] / together, 3) if rows else 0.0
    begun = {**read_json(part.folder / "environment.json"), "arithmetic": part.config.arithmetic}
    return {part.folder.name: {**begun, "finished": _now(), "seconds": seconds}}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def _sets(name: str, seed: int) -> tuple[Labelled, Labelled]:
    loaded = data.load(name, seed=seed)
    return loaded.train, loaded.test


def _load_all(configs: Iterable[RunConfig]) -> None:
    for config in configs:
        _sets(config.data, config.data_seed)


def _diverged(out: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in read_tables(out).get(MAIN, []):
        if row.get("diverged_at") is not None:
            found.setdefault(row["run"], []).append(row["seed"])
    return found


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
