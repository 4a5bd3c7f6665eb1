"""A pool in this process, whose processes die and hang when they are told to; and a process that carries out work."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.paper.studies.small import SEEDS, SMALL
from tests.paper.training.small import a_config, some_spheres
from windermere.errors import UsageError
from windermere.paper.cluster.pool import Beat, Cluster, Pool
from windermere.paper.cluster.work import Ending, Lost, Resources, Work, carry_out
from windermere.paper.studies.running import Choice, Ended, run_study
from windermere.paper.training import Report, StopSign
from windermere.solvers import FixedStep


class Died(BaseException):
    """What the end of a process is here: nothing after it is done, but that locks are freed."""


@dataclass
class PoolHere:
    """Carries out one work after the other. `fates` says for each attempt in turn after which iteration it dies (a
    number), is never heard of again ("hangs"), ends with an error (that), or that nothing happens to it (None)."""

    fates: Sequence[int | str | Lost | None] = ()
    waiting: deque[tuple[str, Work]] = field(default_factory=deque)
    labels: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    reason: str | None = None
    beaten: dict[str, Beat] = field(default_factory=dict)
    seen: Callable[[Work, Report], None] = lambda work, report: None

    def check(self, resources: Resources) -> None:
        if resources.gpus:
            raise UsageError("there is no GPU")

    def submit(self, label: str, work: Work) -> None:
        self.waiting.append((label, work))
        self.labels.append(label)

    def wait(self, seconds: float) -> Sequence[tuple[str, Ending]]:
        if not self.waiting:
            return []
        label, work = self.waiting.popleft()
        at = self.labels.index(label)
        fate = self.fates[at] if at < len(self.fates) else None
        self.beaten[label] = Beat("here", {})
        if fate == "hangs":
            return []
        return [(label, fate if isinstance(fate, Lost) else self._carry_out(label, work, fate))]

    def _carry_out(self, label: str, work: Work, dies: object) -> Ending:
        sign = StopSign()

        def report(index: int, now: Report) -> None:
            self.beaten[label] = Beat("here", {index: now})
            self.seen(work, now)
            sign.reason = self.reason  # type: ignore[assignment]
            if now.iteration == dies:
                raise Died

        try:
            return carry_out(work, label, work.sets, sign=sign, report=report)
        except Died:
            return Lost("its process died")

    def beats(self) -> Mapping[str, Beat]:
        beaten, self.beaten = self.beaten, {}
        return beaten

    def abandon(self, label: str) -> None:
        self.abandoned.append(label)

    def stop(self, reason: str, unbegun: Sequence[str]) -> None:
        self.reason = reason
        left = [(label, Lost("it was cancelled")) for label in unbegun]
        self.waiting.clear()
        self.wait = lambda seconds: [left.pop()] if left else []  # type: ignore[method-assign]


@contextmanager
def opened(pool: Pool) -> Iterator[Pool]:
    yield pool


def ran_elsewhere(out: Path, pool: Pool, told: list[str], *, sign: StopSign | None = None) -> Ended:
    """The small study, by a pool."""
    cluster = Cluster(open=lambda: opened(pool), tell=told.append)
    return run_study(SMALL, out, Choice(seeds=SEEDS), sign=sign, cluster=cluster)


def some_work(*runs: Path, iterations: int = 60) -> Work:
    """Each run trains by itself, though in one work."""
    configs = tuple(
        a_config(solver=FixedStep.of("euler", steps=1 + i), iterations=iterations, log_every=1, checkpoint_every=4)
        for i in range(len(runs))
    )
    return Work(runs=runs, configs=configs, sets=some_spheres(), resources=Resources())


if __name__ == "__main__":  # RUN LABEL: carries out an attempt, and writes a line for each iteration
    run, label = Path(sys.argv[1]), sys.argv[2]
    work = some_work(run)

    def tell(index: int, now: Report) -> None:
        print(str(now.iteration).ljust(4096), flush=True)  # a pipe holds sixteen

    carry_out(work, label, work.sets, sign=StopSign(), report=tell)
