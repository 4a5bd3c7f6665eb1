"""What long work shows while it runs: a bar on a terminal, plain lines elsewhere. All of it on standard error."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from windermere.auditing import AuditProgress
from windermere.cli.console import stderr
from windermere.paper.studies.measuring import steps_at
from windermere.paper.studies.runner import Progress
from windermere.paper.training import Report, StopSign


def _mean(values: Sequence[float] | None, form: str) -> str:
    return "-" if values is None else format(fmean(values), form)


def describe(report: Report, precision_name: str) -> str:
    """The numbers that matter, averaged over members."""
    if precision_name == "step":
        precision = f"steps {_mean([steps_at(p) for p in report.precision], '.0f')}"
    else:
        precision = f"tol {_mean(report.precision, '.2g')}"
    return (
        f"loss {_mean(report.loss, '.4f')}  acc {_mean(report.accuracy, '.3f')}  "
        f"test {_mean(report.test_accuracy, '.3f')}  {precision}  evals/it {_mean(report.evaluations, '.1f')}"
    )


class _TrainingBar(Bar):
    """The bar, and below it the numbers: beside it they would push iteration and time left off 80 columns.

    An iteration can take long, so a stop sign that was raised is shown at once, and not only when it is obeyed.
    """

    sign = StopSign()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield from (Text(task.fields["numbers"]) for task in self.tasks)
        if self.sign.reason is not None:
            yield Text(f"{self.sign.reason}: stopping after this iteration, with a checkpoint")


@contextmanager
def training_progress(
    title: str, iterations: int, precision_name: str, sign: StopSign | None = None
) -> Iterator[Callable[[Report], None]]:
    """A bar that is fed with reports; off a terminal, a line for every twentieth of the way."""
    if not stderr.is_terminal:
        write = _line_writer(title, precision_name)
        yield lambda report: write(report, "")
        return
    columns = (TextColumn(title, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _TrainingBar(*columns, console=stderr) as progress:
        progress.sign = sign or StopSign()
        task = progress.add_task("", total=iterations, numbers="")
        yield lambda report: progress.update(task, completed=report.iteration, numbers=describe(report, precision_name))


def _line_writer(title: str, precision_name: str) -> Callable[[Report, str], None]:
    shown = -1

    def write(report: Report, more: str) -> None:
        nonlocal shown
        share = 20 * report.iteration // report.iterations
        if share != shown:  # less than shown where a study comes to more seeds of the same run
            shown = share
            left = report.seconds / report.iteration * (report.iterations - report.iteration)
            where = f"{title}  {report.iteration}/{report.iterations}"
            stderr.print(f"{where}  {describe(report, precision_name)}  {left:.0f} s left{more}", soft_wrap=True)

    return write


@contextmanager
def study_progress(title: str, sign: StopSign) -> Iterator[Callable[[Progress], None]]:
    """A bar over all runs of a study, with the time left, and the numbers of the run that is at work; off a terminal,
    a line for every twentieth of each run."""
    if not stderr.is_terminal:
        yield _study_lines()
        return
    columns = (TextColumn(title, markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with _TrainingBar(*columns, console=stderr) as bar:
        bar.sign = sign
        task = bar.add_task("", total=1.0, numbers="")
        at_work: dict[str, str] = {}

        def show(now: Progress) -> None:
            if now.report is None:
                at_work.pop(now.name, None)
            else:
                if not now.where:  # one after the other
                    at_work.clear()
                place = f"{_titled(now)} {now.report.iteration}/{now.report.iterations}"
                at_work[now.name] = f"{place}  {describe(now.report, now.precision_name)}"
            bar.update(task, completed=now.share, numbers=_few(list(at_work.values())))

        yield show


def _titled(now: Progress) -> str:
    return f"{now.name} on {now.where}" if now.where else now.name


def _few(lines: Sequence[str], most: int = 8) -> str:
    more = [f"... and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])


def _study_lines() -> Callable[[Progress], None]:
    """A line writer for each run, which tells of all the study as well how much is done, and the time left."""
    writers: dict[str, Callable[[Report, str], None]] = {}
    begun: tuple[float, float] | None = None

    def write(now: Progress) -> None:
        nonlocal begun
        if now.report is None:  # computed at once, which takes a minute at most, or over
            return
        begun = begun or (time.monotonic(), now.share)
        seconds, done = time.monotonic() - begun[0], now.share - begun[1]
        left = f", {seconds / done * max(0.0, 1 - now.share):.0f} s left" if done > 0 else ""
        writer = writers.setdefault(_titled(now), _line_writer(_titled(now), now.precision_name))
        writer(now.report, f"; of the study {100 * now.share:.0f}% done{left}")

    return write


@contextmanager
def download_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over all bytes of a download."""
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=stderr, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def describe_audit(now: AuditProgress) -> str:
    """The phase, the solver and the batch that are at work, and the evaluations so far."""
    solver = "" if now.solver is None else f": {now.solver}"
    batches = "" if now.batches is None else f" of {now.batches}"
    return f"{now.phase}{solver}, batch {now.batch}{batches}, {now.evaluations:.0f} evaluations a sample"


@contextmanager
def audit_progress() -> Iterator[Callable[[AuditProgress], None]]:
    """A line that tells what an audit is at, and is gone when it is done; off a terminal nothing."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bar(*columns, console=stderr, disable=not stderr.is_terminal, transient=True) as progress:
        task = progress.add_task("reading the model", total=None)
        yield lambda now: progress.update(task, description=describe_audit(now))
