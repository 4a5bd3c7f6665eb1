"""A study whose parts are trained and measured by other processes, on this machine or on many.

Who trains with whom, what is measured and which rows that gives is decided as for a study in one process, by the same
functions: so the tables are the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from windermere.errors import DivergedError
from windermere.paper.cluster.driver import Driver
from windermere.paper.cluster.pool import Cluster, Pool
from windermere.paper.cluster.work import Carried, Diverged, Ending, Lost, Resources, Sets, Work
from windermere.paper.studies.parts import Part, groups
from windermere.paper.studies.runner import Measured, Runner, joined, measured
from windermere.paper.studies.study import Study
from windermere.paper.training import Report, RunConfig


def check_room(pool: Pool, cluster: Cluster, configs: Iterable[RunConfig]) -> None:
    """Refuse runs that would wait for ever."""
    for resources in {Resources.of(config, cluster.gpu_share) for config in configs}:
        pool.check(resources)


@dataclass(frozen=True)
class Measuring:
    """Measures each run where it was trained."""

    study: Study
    parts: tuple[Part, ...]

    def __call__(self, index: int, folder: Path, sets: Sets) -> Measured:
        return measured(self.study, self.parts[index], folder, sets, together=len(self.parts))


@dataclass
class Elsewhere:
    """Hands out the parts of a study, and adds the rows that come back."""

    runner: Runner
    pool: Pool
    cluster: Cluster
    _arrived: list[Measured] = field(default_factory=list)
    _next: float = 0.0
    """When the tables are written again."""

    def __call__(self, parts: Sequence[Part]) -> dict[str, str]:
        """Train and measure; returns why parts were given up, by name."""
        self.parts, given = {part.folder: part for part in parts}, self.cluster
        check_room(self.pool, given, [part.config for part in parts])
        driver = Driver(self.pool, self.runner.sign, given.patience, tell=given.tell, watch=self._watch)
        try:
            driver.drive(self._works(parts), self._settle)
        finally:
            self._add()
        return driver.failed

    def _works(self, parts: Sequence[Part]) -> Iterator[Work]:
        for group in groups(parts):
            config = group[0].config
            yield Work(
                runs=tuple(part.folder for part in group),
                configs=tuple(part.config for part in group),
                sets=self.runner.sets(config),
                resources=Resources.of(config, self.cluster.gpu_share),
                make=Measuring(self.runner.folder.study, tuple(group)),
            )

    def _add(self) -> None:
        """Add all rows that have come. With very many, writing the tables takes time: a tenth of it, and no more."""
        begun = monotonic()
        if self._arrived:
            self.runner.folder.add(*joined(self._arrived))
            self._arrived.clear()
        self._next = monotonic() + 9 * (monotonic() - begun)

    def _watch(self, work: Work, index: int, where: str, report: Report) -> None:
        self.runner.shares.at(self.parts[work.runs[index]], report, where)

    def _settle(self, ended: Sequence[tuple[Work, Ending]]) -> Iterable[Work]:
        left = list[Part]()
        for work, ending in ended:
            parts = [self.parts[run] for run in work.runs]
            made = ending.made if isinstance(ending, Carried) else [None] * len(parts)
            self._arrived += [rows for rows in made if rows is not None]
            for part, rows in zip(parts, made, strict=True):
                self.runner.shares.over(part, finished=rows is not None)
            if isinstance(ending, Diverged):
                run = work.runs[ending.index]
                error = DivergedError(ending.why, run=run, seeds=ending.seeds, iteration=ending.iteration)
                left += self.runner.without_diverged(parts, error)
            elif isinstance(ending, Lost):
                left += parts
        if monotonic() >= self._next:
            self._add()
        self.parts |= {part.folder: part for part in left}
        return self._works(left) if left else ()
