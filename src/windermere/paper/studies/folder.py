"""A study's folder: tables that runs add their rows to, and where each of them was made.

study.json       which study it is, and whether the quick one
table.csv, ...   what was measured; a run's seed with rows in table.csv is done
provenance.json  of each run: commit, versions, device, date, seconds
runs/            run folders, with checkpoints and weights; not for git
*.png            drawn from the tables
"""

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from windermere.errors import FolderTakenError, RunError, UsageError, WindermereError
from windermere.paper.studies.rows import RunRow, Table, Tables, grouped
from windermere.paper.studies.study import Study
from windermere.records import (
    RowFile,
    damaged,
    not_in_use,
    open_file,
    other_files,
    reached,
    read_json,
    storing,
    write_json,
)

if sys.platform != "win32":
    import fcntl

ABOUT, PROVENANCE, RUNS, LOCK = "study.json", "provenance.json", "runs", ".lock"
R = TypeVar("R")
Key: TypeAlias = tuple[str, int]
"""A run's name and a seed."""


class StudyFolder:
    """Where a study's results are. Every file is replaced in one step, table.csv as the last."""

    def __init__(self, path: Path, study: Study, *, quick: bool) -> None:
        """Makes the folder, or refuses one that holds something else."""
        self.path, self.study = path, study
        self.iterations = {name: config.iterations for name, config in study.runs(quick).items()}
        self.order = {name: k for k, name in enumerate(study.planned(quick))}
        self._files: dict[Table[Any], RowFile[Any]] = {}
        self._done: tuple[Sequence[Any], frozenset[Key]] = (), frozenset()
        about = {"study": study.name, "quick": quick}
        with storing(path, "created"):
            if (path / ABOUT).exists():
                _refuse_another(path, about)
                self._refuse_other_lengths(path)
                read_provenance(path)
                self._tidy_up()
                return
            # They would be taken for tables of the study. One that was killed at once leaves the folder of its runs.
            refuse_other_files(path, (RUNS, "notes.md"))
            (path / RUNS).mkdir(parents=True, exist_ok=True)
        write_json(path / ABOUT, about)

    def _refuse_other_lengths(self, path: Path) -> None:
        """Rows of runs that this version of the study trains for longer, or less long, are not its own."""
        for row in about_runs(self.study.main.read(path)):
            planned, found = self.iterations.get(row.run), getattr(row, "iterations", None)
            if planned is not None and found not in (None, planned):
                raise FolderTakenError(
                    f"{path} has rows of '{row.run}' after {found} iterations, and this version of the "
                    f"study trains it for {planned}: take this one away, or choose another folder"
                )

    @property
    def runs(self) -> Path:
        return self.path / RUNS

    def done(self) -> frozenset[Key]:
        rows = self._file(self.study.main).read()
        if rows is not self._done[0]:  # it is asked for each run
            self._done = rows, frozenset(row.key for row in about_runs(rows))
        return self._done[1]

    def begun(self) -> dict[str, list[Path]]:
        """The folders of its runs, by the run's name."""
        return grouped((run_of(path.name), path) for path in sorted(self.runs.glob("[!.]*_seeds-*")))

    def add(self, tables: Tables, made: Mapping[str, Any]) -> None:
        """Add rows, in the place of earlier ones of the same runs and seeds, and by name how they were `made`."""
        with _alone(self.runs):
            write_json(self.path / PROVENANCE, dict(sorted({**read_provenance(self.path), **made}.items())))
            for table in sorted(tables, key=lambda table: table == self.study.main):
                self._file(table).write(self._joined(self._file(table).read(), tables[table]))

    def _file(self, table: Table[R]) -> RowFile[R]:
        return self._files.setdefault(table, table.file(self.path))

    def _joined(self, before: Sequence[R], fresh: Sequence[R]) -> list[R]:
        """Rows sorted by run and seed, so that tables are the same in whatever order the runs were done. Fresh ones
        take the place of all that were there of their seeds; rows that are about no run, that of all rows."""
        keys = {_key(row) for row in fresh}

        def place(row: R) -> tuple[int, int]:
            run, seed = _key(row)
            return self.order.get(run, len(self.order)), seed

        return sorted([*(row for row in before if _key(row) not in keys), *fresh], key=place)

    def merge(self, other: Path) -> tuple[int, int]:
        """Take over what another folder of the same study has and this one has not: seeds of runs that are done, and
        run folders that are not here or less far. Returns how many of each."""
        _refuse_another(other, read_json(self.path / ABOUT))
        self._refuse_other_lengths(other)
        done = self.done()
        tables, made = self.without_done(read_tables(other, self.study), read_provenance(other))
        for name, how in made.items():
            self.refuse_other_arithmetic(run_of(name), arithmetic_of(how))
        self.add(tables, made)
        begun = [path for path in sorted((other / RUNS).glob("[!.]*")) if reached(path) > self._reached(path.name)]
        for path in begun:
            self._take_over(path)
        return len(self.done() - done), len(begun)

    def without_done(self, tables: Tables, made: Mapping[str, Any]) -> tuple[Tables, dict[str, dict[str, Any]]]:
        """The rows, among those measured elsewhere, of seeds that are not done here, and how these seeds were made."""
        done = self.done()
        fresh = {table: [row for row in about_runs(rows) if row.key not in done] for table, rows in tables.items()}
        taken = {row.key for row in fresh[self.study.main]}
        return (
            Tables({table: rows for table, rows in fresh.items() if rows}),
            {name: how for name, how in made.items() if taken & set(_keys_of(name))},
        )

    def arithmetics(self, run: str) -> set[str]:
        """The arithmetic of this run's seeds, as a set: it has one element, or none before the first seed is done."""
        return {arithmetic_of(how) for name, how in read_provenance(self.path).items() if run_of(name) == run}

    def refuse_other_arithmetic(self, run: str, arithmetic: str) -> None:
        """The seeds of a run are averaged, so all of them must be trained in the same arithmetic."""
        for held in self.arithmetics(run) - {arithmetic}:
            raise FolderTakenError(
                f"{self.path} has seeds of '{run}' in {held}, and others would be in {arithmetic}: say "
                f"arithmetic={held!r}, or choose another folder"
            )

    def _reached(self, name: str) -> int:
        return reached(self.runs / name) if (self.runs / name).exists() else -1

    def _take_over(self, path: Path) -> None:
        """Puts a copy of a run's folder in the place of one with fewer iterations; neither may be in use. If the
        process is killed in between, one of the two is left, and `_tidy_up` puts it where it belongs."""
        here, partial, old = (self.runs / name for name in (path.name, *_beside(path.name)))
        with storing(here, "written"), _alone(self.runs), not_in_use(path), not_in_use(here):
            _remove(partial)
            shutil.copytree(path, partial)
            if here.exists():
                here.rename(old)
            partial.rename(here)
            _remove(old)

    def _tidy_up(self) -> None:
        """Puts in order what a process left that was killed while it took over a run."""
        if not any(self.runs.glob(".*.*")):
            return
        with storing(self.runs, "written"), _alone(self.runs):
            for old in self.runs.glob(".*.old"):
                here = self.runs / old.name[1:].removesuffix(".old")
                if not here.exists():
                    old.rename(here)
                _remove(old)
            for partial in self.runs.glob(".*.partial"):
                _remove(partial)


def _beside(name: str) -> tuple[str, str]:
    """Two names beside a run's folder: that of a copy being made, and that of the folder which the copy replaces."""
    return f".{name}.partial", f".{name}.old"


def run_of(name: str) -> str:
    """The name of the run that a folder, or an entry of the provenance, belongs to. Both are called "run_seeds-0-1"; an
    entry that another study lent begins with that study's name and a slash."""
    return name.rpartition("/")[2].partition("_seeds-")[0]


def _keys_of(name: str) -> list[Key]:
    """The seeds that an entry of the provenance is about."""
    return [(run_of(name), int(seed)) for seed in name.partition("_seeds-")[2].split("-") if seed.isdecimal()]


def arithmetic_of(made: Mapping[str, Any]) -> str:
    return str(made.get("arithmetic", "float32"))


def read_tables(path: Path, study: Study) -> Tables:
    """All tables of a study's folder."""
    return Tables({table: table.read(path) for table in study.tables})


def about_runs(rows: Iterable[Any]) -> list[RunRow]:
    return [row for row in rows if isinstance(row, RunRow)]


def seeds_by_run(rows: Iterable[RunRow]) -> dict[str, set[int]]:
    return {run: set(seeds) for run, seeds in grouped((row.run, row.seed) for row in rows).items()}


def diverged(rows: Iterable[Any]) -> list[tuple[RunRow, int]]:
    """The rows of seeds that diverged, and in which iteration each did."""
    ended = ((row, getattr(row, "diverged_at", None)) for row in about_runs(rows))
    return [(row, at) for row, at in ended if at is not None]


def is_quick(path: Path) -> bool:
    """Whether a folder holds a study that was scaled down."""
    return (path / ABOUT).exists() and bool(read_json(path / ABOUT).get("quick"))


def refuse_another_study(path: Path, study: Study) -> None:
    """Refuses a folder that holds another study, whether quick or not."""
    if (path / ABOUT).exists():
        found = read_json(path / ABOUT)
        _refuse_another(path, {**(found if isinstance(found, dict) else {}), "study": study.name})


@contextmanager
def from_tables(path: Path) -> Iterator[None]:
    """Tables are read as they were written: where one was changed by hand or cut, that is said."""
    try:
        yield
    except WindermereError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path, f"a table lacks what belongs there: {type(error).__name__} {error}") from error


def refuse_unless_folder_of(path: Path, study: Study, *, quick: bool) -> None:
    """Refuses to merge unless the study trains runs in folders and the folder is one of that study."""
    if not study.runs(quick):
        how = "does its runs in one folder" if study.planned(quick) else "is computed at once"
        raise UsageError(f"'{study.name}' {how}, so there is nothing to merge: copy its folder")
    _refuse_another(path, {"study": study.name, "quick": quick})


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def _alone(runs: Path) -> Iterator[None]:
    """Processes that do different runs of one study take turns, or one would write over what another has added. Where
    there are no locks (Windows, some network disks) it goes on without one."""
    with storing(runs, "written"):
        runs.mkdir(exist_ok=True)  # git does not keep it
    with open_file(runs / LOCK, "a", "written") as lock:
        if sys.platform != "win32":
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_provenance(path: Path) -> dict[str, dict[str, Any]]:
    if not (path / PROVENANCE).exists():
        return {}
    made = read_json(path / PROVENANCE)
    if not isinstance(made, dict) or not all(isinstance(how, dict) for how in made.values()):
        raise damaged(path / PROVENANCE, "it does not say of each run how it was made")
    return made


def _refuse_another(path: Path, about: Mapping[str, Any]) -> None:
    if not (path / ABOUT).exists():
        raise RunError(f"{path} is no study's folder: name one that `windermere study run` has written")
    if not isinstance(found := read_json(path / ABOUT), dict):
        raise damaged(path / ABOUT, "it does not say which study this is")
    if found != about:
        held, wanted = (f"{'quick ' if a.get('quick') else ''}study '{a.get('study')}'" for a in (found, about))
        same = ", or give quick=True" if found == {**about, "quick": True} else ""
        raise RunError(f"{path} holds the {held}, not the {wanted}: choose another folder{same}")


def refuse_other_files(path: Path, own: Collection[str]) -> None:
    """Refuses a folder that holds files other than its own; hidden files do not count."""
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    if others := [name for name in names if name not in own and not name.startswith(".")]:
        raise other_files(path, others[0])


def _key(row: object) -> Key:
    """The seed that a row is about; all rows about none have one key."""
    return row.key if isinstance(row, RunRow) else ("", 0)
