"""Running a study: what is not done yet is trained, measured and added to its tables, and then all of it is drawn.

Killed or stopped at any moment, it goes on where it was, here or wherever its folder was carried to. Seeds that diverge
are noted down, and the others of their run go on without them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from time import monotonic

from windermere.errors import UsageError
from windermere.paper import data
from windermere.paper.arithmetic import IMAGES, check_it_suits
from windermere.paper.cluster.pool import Cluster, Pool
from windermere.paper.studies.elsewhere import Elsewhere, check_room
from windermere.paper.studies.folder import (
    StudyFolder,
    arithmetic_of,
    diverged,
    from_tables,
    read_tables,
    refuse_another_study,
    run_of,
)
from windermere.paper.studies.own import carry_out, chosen_runs, missing_seeds
from windermere.paper.studies.parts import Part, all_missing_parts, groups
from windermere.paper.studies.rows import Tables, grouped
from windermere.paper.studies.runner import Load, Progress, Runner, Shares, Train, now
from windermere.paper.studies.study import Share, Study
from windermere.paper.training import Labelled, RunConfig, StopSign, gather, train_group
from windermere.records import environment


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
class Ended:
    """How a study's running ended."""

    reason: str
    """`finished`, or why it stopped: `time limit`, `interrupted`, `terminated` or, elsewhere, `given up`."""
    idle: bool
    """Whether all that was asked for was done before."""
    left: list[str]
    """Runs that are not done."""
    diverged: dict[str, list[int]]
    """Seeds that were, by run, in all of the study so far."""
    figures: list[Path]
    failed: dict[str, str] = field(default_factory=dict)
    """Why run folders were given up elsewhere."""


@cache
def load_sets(name: str, seed: int) -> tuple[Labelled, Labelled]:
    loaded = data.load(name, seed=seed)
    return loaded.train, loaded.test


def run_study(
    study: Study,
    out: Path,
    choice: Choice,
    *,
    sign: StopSign | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    load: Load = load_sets,
    train: Train = train_group,
    cluster: Cluster | None = None,
) -> Ended:
    """Train and measure what is not done yet, here or elsewhere, and draw all that is."""
    sign = sign or StopSign()
    if study.own_runs(choice.quick):
        for name in () if out.exists() else study.needs:
            load(name, 0)  # data that are missing leave no folder behind
        return _run_own(study, out, choice, sign, report)
    chosen = _chosen(study, choice)
    with _pool_of(cluster) as pool:
        if not out.exists():  # what is amiss from the start leaves no folder behind
            for config in chosen.values():
                load(config.data, config.data_seed)
            if cluster is not None:
                check_room(pool(), cluster, chosen.values())
        folder = StudyFolder(out, study, quick=choice.quick)
        if not chosen:
            _compute(folder, choice.quick, lambda share: report(Progress(study.name, "", None, share)))
        _borrow(folder, choice.quick)
        parts = _missing(folder, chosen, load)
        runner = Runner(folder, sign, Shares(parts, report), load, train)
        failed = _here(runner, parts) if cluster is None or not parts else Elsewhere(runner, pool(), cluster)(parts)
    left = list(dict.fromkeys(part.name for part in all_missing_parts(folder, chosen)))
    return Ended(
        reason=sign.reason or ("given up" if failed else "finished") if left else "finished",
        idle=bool(chosen) and not parts,
        left=left,
        diverged=grouped((row.run, row.seed) for row, _ in diverged(study.main.read(out))),
        figures=draw_study(study, out),
        failed=failed,
    )


@contextmanager
def _pool_of(cluster: Cluster | None) -> Iterator[Callable[[], Pool]]:
    """Opens the cluster's pool when it is first asked for it, and closes it in the end."""
    with ExitStack() as stack:

        @cache
        def pool() -> Pool:
            assert cluster is not None
            return stack.enter_context(cluster.open())

        yield pool


def _missing(folder: StudyFolder, chosen: Mapping[str, RunConfig], load: Load) -> list[Part]:
    """What is not done yet; what is amiss with it is told before hours of training."""
    parts = all_missing_parts(folder, chosen)
    for part in parts:
        folder.refuse_other_arithmetic(part.name, part.config.arithmetic)
        load(part.config.data, part.config.data_seed)
        gather(part.folder)
    return parts


def _here(runner: Runner, parts: Sequence[Part]) -> dict[str, str]:
    """Train and measure in this process, to the end or to a stop sign; nothing is given up."""
    for group in groups(parts):
        if runner.sign.check() or not runner.carry_out(group):
            break
    return {}


def _run_own(study: Study, out: Path, choice: Choice, sign: StopSign, report: Callable[[Progress], None]) -> Ended:
    """Carry out the runs of a study that trains by itself."""
    runs = chosen_runs(study.name, study.own_runs(choice.quick), choice.only, choice.seeds)
    folder = StudyFolder(out, study, quick=choice.quick)
    idle = not missing_seeds(folder, runs)
    lost = carry_out(folder, runs, sign, lambda run, share: report(Progress(run, "", None, share)), choice.device)
    left = [(run, seed) for run, seed in missing_seeds(folder, runs) if seed not in lost.get(run, ())]
    return Ended(
        reason=sign.reason or "finished" if left else "finished",
        idle=idle,
        left=list(dict.fromkeys(run for run, _ in left)),
        diverged=lost,
        figures=draw_study(study, out),
    )


def _compute(folder: StudyFolder, quick: bool, share: Share) -> None:
    """All tables of a study that trains nothing."""
    made, begun = environment("cpu"), monotonic()
    tables = folder.study.compute(quick, share)
    folder.add(tables, {folder.study.name: {**made, "finished": now(), "seconds": round(monotonic() - begun, 3)}})


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
