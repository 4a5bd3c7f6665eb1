"""One run that is trained elsewhere."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from windermere.errors import DivergedError, RunError
from windermere.paper.cluster.driver import Driver
from windermere.paper.cluster.pool import Cluster
from windermere.paper.cluster.work import Carried, Diverged, Ending, Resources, Sets, Work
from windermere.paper.training import Report, RunConfig, StopSign, TrainingOutcome, hold_run
from windermere.records import reached


def train_elsewhere(
    config: RunConfig,
    sets: Sets,
    run: Path,
    cluster: Cluster,
    *,
    resume: bool,
    sign: StopSign,
    report: Callable[[Report], None] = lambda now: None,
) -> TrainingOutcome:
    """Train a run, a new one or one that goes on, to the end or to a stop sign."""
    found, places = list[TrainingOutcome](), list[str]()

    def settle(ended: Sequence[tuple[Work, Ending]]) -> Iterable[Work]:
        ((work, ending),) = ended
        if isinstance(ending, Diverged):
            raise DivergedError(ending.why, run=run, seeds=ending.seeds, iteration=ending.iteration)
        if isinstance(ending, Carried):
            found.extend(ending.outcomes)
            return ()
        return [work]

    def watch(work: Work, index: int, where: str, now: Report) -> None:
        if where not in places[-1:]:
            places.append(where)
            cluster.tell(f"{run.name} is trained on {where}")
        report(now)

    resources = Resources.of(config, cluster.gpu_share)
    with cluster.open() as pool:
        pool.check(resources)
        with hold_run(run, config, resume=resume):
            pass
        driver = Driver(pool, sign, patience=cluster.patience, tell=cluster.tell, watch=watch)
        driver.drive([Work(runs=(run,), configs=(config,), sets=sets, resources=resources)], settle)
    for why in driver.failed.values():
        raise RunError(f"{why}; what was reached is in {run}")
    if found:
        return found[0]
    return TrainingOutcome(finished=False, reason=sign.reason or "terminated", iteration=reached(run), test=None)
