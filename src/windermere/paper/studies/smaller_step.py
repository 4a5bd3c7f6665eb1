"""Whether training with a smaller step corrects a model that has adapted to its step (section 5, Figure 5 (c, d)).

After a check that fails, Algorithm 2 halves the step, and by that alone the same weights come closer to the flow. So
each model is scored with both steps at the check, and beside it goes a control, trained on with the step that failed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from windermere.paper.figures.forks_figure import Fork, ForksFigure, draw_forks
from windermere.paper.studies.adaptation import QUICK, step_runs
from windermere.paper.studies.critical import is_full_length
from windermere.paper.studies.forks import BEFORE, SAME, SMALLER, ForkRow, WayRow, follow
from windermere.paper.studies.measuring import part_to_test
from windermere.paper.studies.rows import MAIN, Table, Tables
from windermere.paper.studies.running import load_sets
from windermere.paper.studies.statistics import against, judged
from windermere.paper.studies.study import Finding, Share, Study, data_name
from windermere.paper.training import RunConfig, paper_settings
from windermere.records import write_atomically

FORKS, WAY = Table(MAIN, ForkRow), Table("way", WayRow)
CLAIM = "a model that has adapted to its step is corrected by training with a smaller one"
QUICK_SEEDS = (0, 1)
NOTE = """\
Test accuracy in percent: means over the seeds, of each seed over all of its checks that failed, and in brackets the
lowest and the highest seed. At a failing check the same weights are scored with its step h and with h/2. From there two
copies go on for as long as it is to the next review, on the same batches: one with h/2, one with h. The flow is rk4
with 256 steps.
"""


def configs(data: str, quick: bool) -> dict[str, RunConfig]:
    """Algorithm 2 with Euler steps; a quick study has the first pair and two seeds."""
    found = {n: c for n, c in step_runs(data, quick).items() if c.adapt == "paper" and c.solver.method == "euler"}
    usual = {name: c for name, c in found.items() if quick or c.lr == paper_settings(data, c.solver)["lr"]}
    if not quick:
        return usual
    name, config = next(iter(usual.items()))
    return {name: RunConfig(**{**vars(config), "seeds": QUICK[data].get("seeds", QUICK_SEEDS)})}


def compute(data: str, quick: bool, share: Share, device: str = "cpu") -> Tables:
    """On any of the paper's data sets; those of images want a GPU. Quick ones are tested on fewer images."""
    way, forks, runs = list[WayRow](), list[ForkRow](), configs(data, quick)
    for number, (name, config) in enumerate(runs.items()):
        training_set, test_set = load_sets(config.data, config.data_seed)
        on_device, tested = RunConfig(**{**vars(config), "device": device}), part_to_test(config, test_set)
        for found in follow(name, on_device, training_set, tested, _part(share, number, len(runs))):
            way += found.way
            forks += found.forks
    return Tables({FORKS: sorted(forks, key=_place), WAY: sorted(way, key=_place)})


def _part(share: Share, number: int, of: int) -> Callable[[float], None]:
    return lambda done: share((number + done) / of)


def _place(row: ForkRow | WayRow) -> tuple[str, int, int]:
    return row.run, row.seed, row.iteration


# ---------------------------------------------------------------------------------------------------------
# What was found


@dataclass(frozen=True)
class Forks:
    """All forks of one run."""

    rows: Sequence[ForkRow]

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self.rows})

    def by_seed(self, moment: str, number: Callable[[ForkRow], float]) -> list[float]:
        """For each seed, the mean over its failing checks."""
        found = [row for row in self.rows if row.moment == moment]
        return [fmean(number(row) for row in found if row.seed == seed) for seed in self.seeds]

    @property
    def gains(self) -> list[float]:
        """For each seed, how much higher the flow scores after training with the smaller step than with the same."""
        smaller, same = (self.by_seed(moment, _flow) for moment in (SMALLER, SAME))
        return [a - b for a, b in zip(smaller, same, strict=True)]

    @property
    def checks(self) -> int:
        return sum(row.moment == BEFORE for row in self.rows)


def _flow(row: ForkRow) -> float:
    return row.flow


def _own_gap(row: ForkRow) -> float:
    return row.own - row.flow


def _halved_gap(row: ForkRow) -> float:
    return row.halved - row.flow


def forks_by_run(tables: Tables) -> dict[str, Forks]:
    names = dict.fromkeys(row.run for row in tables[FORKS])
    return {name: Forks([row for row in tables[FORKS] if row.run == name]) for name in names}


def findings(data: str, tables: Tables) -> list[Finding]:
    last = max((row.iteration for row in tables[WAY]), default=0)
    every = min((row.iteration for row in tables[WAY]), default=0)
    return [
        _finding(data, run, forks, full=is_full_length(data, last), every=every)
        for run, forks in forks_by_run(tables).items()
        if len(forks.seeds) > 1
    ]


def _finding(data: str, run: str, forks: Forks, *, full: bool, every: int) -> Finding:
    gains, gain = forks.gains, against(forks.gains)
    gaps = [(BEFORE, _own_gap), (BEFORE, _halved_gap), (SMALLER, _halved_gap), (SAME, _own_gap)]
    at, alone, after, control = (100 * fmean(forks.by_seed(*gap)) for gap in gaps)
    ours = (
        f"trained for {every} iterations with half the step, models score {100 * fmean(gains):.1f} points higher "
        f"under the flow than a control trained on with the same (seeds {_span(gains)}; paired t-test, "
        f"{len(gains)} seeds: p = {gain.p:.1g}). The gap to the flow is {at:.1f} points at the {forks.checks} failing "
        f"checks, {alone:.1f} of the same weights with half the step, and {after:.1f} after training with it; the "
        f"control's is {control:.1f}"
    )
    return Finding(
        claim=CLAIM,
        ours=ours,
        agrees=judged(gain.above(), gain.below()) if full else None,
        case=f"{data_name(data)}, {methods(run)}, against a control",
    )


def methods(run: str) -> str:
    """ "euler/midpoint", of "sphere2-euler-midpoint-paper-0.1"."""
    return "/".join(run.split("-")[1:3])


def _span(values: Sequence[float]) -> str:
    return f"{100 * min(values):.1f} to {100 * max(values):.1f}"


def markdown(tables: Tables) -> str:
    lines = ["| | moment | scored with h | with h/2 | by the flow |", "|---|---|---|---|---|"]
    for run, forks in forks_by_run(tables).items():
        for moment, words in (
            (BEFORE, f"{methods(run)} | at {forks.checks} failing checks"),
            (SMALLER, " | trained on with h/2"),
            (SAME, " | trained on with h (control)"),
        ):
            cells = [forks.by_seed(moment, number) for number in (lambda r: r.own, lambda r: r.halved, _flow)]
            lines.append(f"| {words} | {' | '.join(f'{100 * fmean(c):.1f} ({_span(c)})' for c in cells)} |")
    return "\n".join([*lines, "", NOTE])


# ---------------------------------------------------------------------------------------------------------
# The figure and the study


def draw(data: str, tables: Tables, folder: Path) -> list[Path]:
    if not tables[FORKS]:
        return []
    write_atomically(folder / "forks.md", markdown(tables).encode())
    paths = [folder / f"{methods(run).replace('/', '-')}.png" for run in forks_by_run(tables)]
    for run, path in zip(forks_by_run(tables), paths, strict=True):
        title = f"{data_name(data)}, Algorithm 2, {methods(run)}"
        draw_forks(figure_of(tables, run, title), path)
    return [*paths, folder / "forks.md"]


def figure_of(tables: Tables, run: str, title: str) -> ForksFigure:
    """All seeds' gains, and the first seed's way."""
    forks, way = forks_by_run(tables)[run], [row for row in tables[WAY] if row.run == run]
    first = min(row.seed for row in way)
    own = [row for row in way if row.seed == first]
    moments = [forks.by_seed(moment, _flow) for moment in (BEFORE, SMALLER, SAME)]
    return ForksFigure(
        title=title,
        seed=first,
        seeds=forks.seeds,
        iterations=[row.iteration for row in own],
        steps=[row.steps for row in own],
        accuracy=[row.accuracy for row in own],
        forks=list(_marked([row for row in forks.rows if row.seed == first])),
        every=own[0].iteration,
        flow=list(zip(*moments, strict=True)),
    )


def _marked(rows: Sequence[ForkRow]) -> Iterator[Fork]:
    by_check: dict[int, dict[str, ForkRow]] = {}
    for row in rows:
        by_check.setdefault(row.iteration, {})[row.moment] = row
    for iteration, moments in by_check.items():
        before, after = moments[BEFORE], moments[SMALLER]
        yield Fork(
            iteration=iteration,
            own=(before.own, after.halved),
            midpoint=(before.midpoint, after.midpoint),
            rk4=(before.rk4, after.rk4),
        )


def _study(data: str) -> Study:
    return Study(
        name=f"smaller-step-{data}",
        paper="Figure 5 (c, d)",
        what=f"{data_name(data)}: checks of Algorithm 2 that fail, and what training with a smaller step changes",
        tables=(FORKS, WAY),
        compute=partial(compute, data),
        draw=partial(draw, data),
        findings=partial(findings, data),
    )


SMALLER_STEP = _study("sphere2")
