"""What adapted runs say of the paper's claims."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from statistics import fmean, stdev

from windermere.paper.studies.adaptation_runs import Adapted, adapted_runs, runs_by, spent, swing
from windermere.paper.studies.critical import THRESHOLD, is_full_length
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finding, data_name, seed_count

FLUCTUATES = log2(1.1)
"""A swing (standard deviation of log2) of one raise of Algorithm 2."""


@dataclass(frozen=True)
class Printed:
    """A mean and a standard deviation of accuracy over five seeds, and evaluations per iteration."""

    accuracy: float
    spread: float
    cost: float


PAPER = {"sphere2": Printed(0.989, 0.006, 100.5), "cifar10": Printed(0.550, 0.008, 21.9)}
"""Table 1, of Algorithm 2 with Euler steps checked by midpoint."""


SHOWN = {"mnist": [("euler", "midpoint")]}
"""The pairs that the paper shows, for data sets where it shows only some: findings about other pairs are our own."""
FAR_FEWER = 2
"""A factor between numbers of steps."""
TOO_MANY = 2
"""A factor of all evaluations over those once settled: more would be owed to a first step that is too small."""
SAME_COST = 0.25
"""Two costs that differ by no more of the paper's are the same: seeds differ by far more."""


def spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def percent(values: Sequence[float]) -> str:
    """The mean over seeds, and its spread where there are several."""
    around = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{around} %"


def is_same(values: Sequence[float], mean: float, around: float) -> bool:
    """Whether a mean over seeds is as printed: no further away than both spreads together."""
    return abs(fmean(values) - mean) <= around + spread(values)


def span(values: Sequence[float], form: str = "{:.1f}") -> str:
    """The range of the seeds' values in words, from the lowest to the highest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def by_seed(values: Sequence[float], form: str = "{:.1f}") -> str:
    """The span of the seeds' values in words, or that there is one seed only."""
    return f"seeds {span(values, form)}" if len(values) > 1 else "one seed"


def _with_span(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f} ({by_seed(values, '{:.2f}')})"


def step_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    return [
        *_against_table1(runs),
        *_first_steps(runs),
        *_fluctuations(runs, "number of steps"),
        *_corrections(runs),
        *_flows(runs),
        *_orders(runs),
        *_steady(runs),
    ]


def tolerance_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    return [
        *_fluctuations(runs, "tolerance"),
        *_evaluations(runs),
        *_different_ends(runs),
        *_flows(runs),
        *_steady(runs),
    ]


def _told(agrees: bool, *runs: Adapted) -> bool | None:
    return agrees if all(is_full_length(row.data, row.iterations) for run in runs for row in run.rows) else None


def _of_run(run: Adapted, claim: str, ours: str, agrees: bool) -> Finding:
    """A claim about one pair of methods."""
    beyond = _is_beyond(run)
    told = None if beyond else _told(agrees, run)
    return Finding(claim=claim, ours=ours, agrees=told, beyond=beyond, case=_case(run))


def _case(run: Adapted) -> str:
    return f"{data_name(run.first.data)}, {run.who}"


def _is_beyond(run: Adapted) -> bool:
    pair = (run.first.method, run.first.check)
    return pair not in SHOWN.get(run.first.data, [pair])


def _against_table1(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in runs_by(runs, "paper", "euler", "midpoint"):
        accuracy, cost = run.accuracy, run.costs
        if (printed := PAPER.get(run.first.data)) is None:
            continue
        yield Finding(
            claim="Algorithm 2's accuracy is as printed",
            ours=f"{percent(accuracy)} ({seed_count(len(accuracy))}) where {100 * printed.accuracy:.1f} ± "
            f"{100 * printed.spread:.1f} % is printed",
            agrees=_told(is_same(accuracy, printed.accuracy, printed.spread), run),
            case=_case(run),
        )
        yield Finding(
            claim="Algorithm 2 takes as many evaluations per iteration as printed, all checks included",
            ours=f"{fmean(cost):.1f}, {by_seed(cost)}, where {printed.cost} is printed",
            agrees=_told(abs(fmean(cost) / printed.cost - 1) <= SAME_COST, run),
            case=_case(run),
        )


def _fluctuations(runs: Sequence[Adapted], what: str) -> Iterator[Finding]:
    for run in runs_by(runs, "paper"):
        if swings := run.swings:
            yield _of_run(
                run,
                f"the {what} fluctuates to the end",
                f"once settled, its log2 has a standard deviation of {_swinging(swings)}",
                fmean(swings) > FLUCTUATES,
            )


def _swinging(swings: Sequence[float]) -> str:
    """The swings in words; where seeds disagree, also how many of them are above the limit."""
    above = sum(one > FLUCTUATES for one in swings)
    some = f": above {FLUCTUATES:.2f} in {above} of {len(swings)}" if 0 < above < len(swings) else ""
    return f"{fmean(swings):.2f}, {by_seed(swings, '{:.2f}')}{some}"


def _evaluations(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """Findings about the number of evaluations, which with fixed steps follows from the number of steps."""
    for run in runs_by(runs, "paper"):
        if swings := [swing(rates) for rates in run.rates]:
            low, high = min(map(min, run.rates)), max(map(max, run.rates))
            yield _of_run(
                run,
                "the number of evaluations fluctuates to the end, too",
                f"once settled, from {low:.0f} to {high:.0f} per iteration; its log2 has a standard deviation of "
                + _swinging(swings),
                fmean(swings) > FLUCTUATES,
            )


def _first_steps(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """One that is far too small is paid for until it has grown."""
    for run in runs_by(runs, "paper"):
        if settled := [fmean(rates) for rates in run.rates]:
            first = [next(row.precision for row in c if row.evaluations_forward is not None) for c in run.by_seed]
            in_all = [evaluations / iteration for iteration, evaluations in (spent(c)[-1] for c in run.by_seed)]
            yield _of_run(
                run,
                "the first step, after Hairer's rule, is not too small for the algorithm to be useful",
                f"training begins with {span(first, '{:.0f}')} steps ({seed_count(len(first))}), and settles around "
                f"{span(run.centres)}; without its checks it takes "
                f"{fmean(in_all):.1f} evaluations per iteration in all, and {fmean(settled):.1f} once settled",
                fmean(in_all) <= TOO_MANY * fmean(settled),
            )


def _flows(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in runs_by(runs, "paper"):
        gaps, within = run.gaps, sum(gap <= THRESHOLD for gap in run.gaps)
        counted = f"; within {THRESHOLD:g} in {within} of {len(gaps)} seeds" if len(gaps) > 1 else ""
        yield _of_run(
            run,
            f"adapted, the model stays a flow: finer solvers score the same to within {THRESHOLD:g}",
            f"at the end, the finer solver that differs most is {100 * fmean(gaps):.1f} points away "
            f"({by_seed([100 * gap for gap in gaps])}){counted}",
            fmean(gaps) <= THRESHOLD,
        )


def _corrections(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """Most reviews pass, so that most do after a failed one says little: they must do so as often as all."""
    for run in runs_by(runs, "paper"):
        every = [review for failed in run.failed for review in failed]
        after = [then for failed in run.failed for now, then in pairwise(failed) if now]
        if after:
            yield _of_run(
                run,
                "a model that has adapted to its step is corrected by training with a smaller one",
                f"{sum(every)} of {len(every)} reviews failed ({seed_count(len(run.failed))}); the next one passed "
                f"{after.count(False)} times of {len(after)}",
                fmean(after) <= fmean(every),
            )


def _orders(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """Compares the steps of Euler and of midpoint under Algorithm 2 with the same check and learning rate."""
    euler, midpoint = (runs_by(runs, "paper", method, "rk4") for method in ("euler", "midpoint"))
    if not euler or not midpoint or not (many := euler[0].centres) or not (few := midpoint[0].centres):
        return
    beyond = _is_beyond(midpoint[0])
    fewer = _told(fmean(few) < fmean(many) / FAR_FEWER, euler[0], midpoint[0])
    yield Finding(
        claim="with midpoint as the training solver, Algorithm 2 fluctuates around far fewer steps than with Euler",
        ours=f"once settled, around {fmean(few):.1f} steps of midpoint ({by_seed(few)}) against "
        f"{fmean(many):.1f} of Euler ({by_seed(many)})",
        agrees=None if beyond else fewer,
        beyond=beyond,
        case=data_name(euler[0].first.data),
    )


def _different_ends(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in runs_by(runs, "paper"):
        if len(centres := run.centres) > 1:
            apart, swing = stdev(map(log2, centres)), fmean(run.swings)
            yield _of_run(
                run,
                "for different seeds, the tolerance fluctuates around different final values",
                f"once settled, around {span(centres, '{:.1e}')}: log2 has a standard deviation of {apart:.2f} "
                f"between seeds, and of {swing:.2f} within one",
                apart > swing,
            )


def _steady(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """The paper's future work: an algorithm without the oscillations."""
    for run in runs_by(runs, "steady"):
        pair = (run.first.method, run.first.check or "")
        beside = next((paper for paper in runs_by(runs, "paper", *pair) if paper.first.lr == run.first.lr), None)
        if beside is None or not (ours := run.swings) or not (theirs := beside.swings):
            continue
        yield Finding(
            claim="left to future work: adaptation that does not oscillate",
            ours=f"swings {_with_span(ours)} against {_with_span(theirs)}, evaluations per iteration "
            f"{fmean(run.costs):.1f} against {fmean(beside.costs):.1f}, accuracy "
            f"{percent(run.accuracy)} against {percent(beside.accuracy)}, distance to finer "
            f"solvers {100 * fmean(run.gaps):.1f} points against {100 * fmean(beside.gaps):.1f}",
            agrees=None,
            beyond=True,
            case=_case(run),
        )
