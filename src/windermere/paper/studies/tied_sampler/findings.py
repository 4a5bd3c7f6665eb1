"""What the study's table says: who is tied, from how many steps on nobody is, and what controllers change.

The rule of the critical number: the smallest number of Euler steps of the grid from which on, there and with all more
steps, no seed is tied. A model is tied if its samples under the flow are surely worse than those of its own solver, by
more than is allowed: by the 95% interval of their difference, from the same noise, beyond the noise of as many real
samples (energy) or beyond half of the own shortfall (reward; of images, of real ones' shortfall if that is more).
"Harmed" is a flow that is surely worse than before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from windermere.paper.studies.critical import ends
from windermere.paper.studies.rows import Tables, grouped
from windermere.paper.studies.study import Finding, of_ours, seed_count
from windermere.paper.studies.tied_sampler.image_runs import SMALL, UNET, WHOLE
from windermere.paper.studies.tied_sampler.rows import TUNED, TunedRow
from windermere.paper.studies.tied_sampler.runs import CONTROLLERS, LONG, LONGER, LOSSES

PLANAR = (("gaussians", "mlp"), ("moons", "mlp"), ("gaussians", "concatsquash"))
IMAGES = ((SMALL, UNET), (WHOLE, UNET))
SETTINGS = (*PLANAR, *IMAGES)
NAMES = {
    "gaussians": "8 Gaussians",
    "moons": "two moons",
    "mlp": "MLP",
    "concatsquash": "ConcatSquash",
    SMALL: "MNIST at 14 x 14",
    WHOLE: "MNIST",
    UNET: "U-Net",
}


def of_setting(rows: Iterable[TunedRow], data: str, network: str, loss: str) -> list[TunedRow]:
    """The rows of one setting that were tuned for the usual time."""
    asked = (data, network, loss)
    return [row for row in rows if (row.data, row.network, row.loss) == asked and not row.run.endswith(LONG)]


def constant(rows: Iterable[TunedRow], method: str) -> dict[int, list[TunedRow]]:
    """The rows that were tuned through so many steps of a method, by that number."""
    return dict(sorted(grouped((row.steps, row) for row in rows if row.through == f"{method}-{row.steps}").items()))


def critical_steps(by_steps: dict[int, list[TunedRow]], failed: Callable[[TunedRow], bool]) -> tuple[int, int]:
    """The most steps with which any seed failed, and the next of the grid, from which on none does; 0 where there is no
    such number."""
    fails, passes = ends((n, not any(map(failed, rows))) for n, rows in sorted(by_steps.items()))
    return fails or 0, passes or 0


def sampler_findings(tables: Tables) -> list[Finding]:
    rows = tables[TUNED]
    found = [finding for setting in SETTINGS for loss in LOSSES for finding in _of_steps(rows, *setting, loss)]
    return [*found, *_of_length(rows), *_of_controllers(rows)]


def _case(data: str, network: str, loss: str) -> str:
    return f"{NAMES[data]}, {NAMES[network]}, {loss}"


def _of_steps(rows: Sequence[TunedRow], data: str, network: str, loss: str) -> Iterator[Finding]:
    euler = constant(of_setting(rows, data, network, loss), "euler")
    if not euler:
        return
    case, seeds = _case(data, network, loss), seed_count(*map(len, euler.values()))
    yield of_ours(
        "How many samplers that are tuned through n Euler steps are tied to them.",
        f"{_shares(euler, _tied)} ({seeds}); {_unsure(euler)}",
        case,
    )
    kinds = (("tied", _tied), ("harmed", _harmed), ("TIED by the audit", _audited_tied))
    yield of_ours(
        "From how many Euler steps on none is.",
        "; ".join(f"{name}: {_bracket(critical_steps(euler, failed))}" for name, failed in kinds),
        case,
    )


def _tied(row: TunedRow) -> bool:
    return row.tied is True


def _harmed(row: TunedRow) -> bool:
    return row.harmed is True


def _audited_tied(row: TunedRow) -> bool:
    return row.audit == "TIED"


def _shares(by_steps: dict[int, list[TunedRow]], ask: Callable[[TunedRow], bool]) -> str:
    return ", ".join(f"{sum(map(ask, some))} of {len(some)} with {n}" for n, some in by_steps.items())


def _unsure(by_steps: dict[int, list[TunedRow]]) -> str:
    counts = {n: sum(row.tied is None for row in some) for n, some in by_steps.items()}
    told = ", ".join(f"{count} with {n}" for n, count in counts.items() if count)
    return f"not sure: {told}" if told else "all are sure"


def _bracket(ends: tuple[int, int]) -> str:
    """The last number of steps that fails, and the first from which on none does."""
    last, first = ends
    if not last:
        return "none at any"
    return f"{last}-{first}" if first else f"above {last}, the most that was tried"


def _ends(by_steps: dict[int, list[TunedRow]]) -> str:
    told = (f"{n}: {_mean(some, 'own')} and {_mean(some, 'flow')}" for n, some in by_steps.items())
    return f"own and flow after, by steps, {', '.join(told)}"


def _mean(rows: Sequence[TunedRow], what: str) -> str:
    return f"{fmean(getattr(row, what) for row in rows):.3g}"


def _of_length(rows: Sequence[TunedRow]) -> Iterator[Finding]:
    """Whether tuning for longer ties models that were not tied."""
    for loss in LOSSES:
        long = constant([row for row in rows if row.run.endswith(LONG) and row.loss == loss], "euler")
        if not long:
            continue
        usual = constant(of_setting(rows, *SETTINGS[0], loss), "euler")
        beside = {n: [row for row in usual.get(n, ()) if row.seed in {r.seed for r in long[n]}] for n in long}
        same = {n: some for n, some in beside.items() if some}
        told = "; ".join(
            f"{words}: {_shares(some, _tied)}, {_ends(some)}"
            for words, some in (("so", long), ("in the usual time", same))
            if some
        )
        yield of_ours(
            f"Tied after {LONGER} times as many iterations.",
            f"{told} ({seed_count(*map(len, long.values()))})",
            _case(*SETTINGS[0], loss),
        )


def _of_controllers(rows: Sequence[TunedRow]) -> Iterator[Finding]:
    for setting in SETTINGS:
        for loss in LOSSES:
            some = of_setting(rows, *setting, loss)
            for name in CONTROLLERS:
                if mine := [row for row in some if row.through == name]:
                    case = f"{_case(*setting, loss)}, {name}"
                    claim = "Whether a controller, begun with a step of 1/4, prevents it."
                    yield of_ours(claim, _controlled(mine), case)


def _controlled(rows: Sequence[TunedRow]) -> str:
    audits = ", ".join(f"{count} {name}" for name, count in sorted(Counter(row.audit for row in rows).items()))
    steps, costs = sorted(row.steps for row in rows), [row.evaluations for row in rows]
    tied, unsure = sum(map(_tied, rows)), sum(row.tied is None for row in rows)
    ends = f"{steps[0]}" if steps[0] == steps[-1] else f"{steps[0]} to {steps[-1]}"
    return (
        f"{tied} of {len(rows)} tied, {unsure} not sure, {sum(map(_harmed, rows))} harmed; audits: {audits}; own "
        f"{_mean(rows, 'own')}, flow {_mean(rows, 'flow')}; {fmean(costs):.1f} evaluations per iteration, {ends} "
        "steps at the end"
    )
