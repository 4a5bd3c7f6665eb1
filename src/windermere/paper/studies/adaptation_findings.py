"""What adapted runs say of the paper's claims."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import log2
from statistics import fmean, stdev

from windermere.paper.studies.adaptation_runs import Adapted, adapted_runs, runs_by, spent, swing
from windermere.paper.studies.critical import PRINTED, THRESHOLD, PrintedMean
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finding, data_name, seed_count

FLUCTUATES = log2(1.1)
"""A swing (standard deviation of log2) of one raise of Algorithm 2."""
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


def is_same(values: Sequence[float], printed: PrintedMean) -> bool:
    """Whether a mean over seeds is as printed: no further away than both spreads together."""
    return abs(fmean(values) - printed.mean) <= printed.spread + spread(values)


def span(values: Sequence[float], form: str = "{:.1f}") -> str:
    """The range of the seeds' values in words, from the lowest to the highest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def by_seed(values: Sequence[float], form: str = "{:.1f}") -> str:
    """The span of the seeds' values in words, or that there is one seed only."""
    return f"seeds {span(values, form)}" if len(values) > 1 else "one seed"


def _with_span(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f} ({by_seed(values, '{:.2f}')})"


Told = tuple[str, str, bool]
"""A claim about one run, what we found, and whether it agrees."""


def step_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    told = (_first_steps, partial(_fluctuations, "number of steps"), _corrections, _flows)
    return [*_against_table1(runs), *_of_the_paper(runs, told), *_orders(runs), *_steady(runs)]


def tolerance_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    told = (partial(_fluctuations, "tolerance"), _evaluations, _different_ends, _flows)
    return [*_of_the_paper(runs, told), *_steady(runs)]


def _of_the_paper(runs: Sequence[Adapted], told: Iterable[Callable[[Adapted], Told | None]]) -> Iterator[Finding]:
    """What is told of every run of the paper's algorithms, claim by claim."""
    for tell in told:
        for run in runs_by(runs, "paper"):
            if found := tell(run):
                claim, ours, agrees = found
                yield _finding(claim, ours, agrees, run, case=_case(run))


def _finding(claim: str, ours: str, agrees: bool, *runs: Adapted, case: str) -> Finding:
    """Runs that are shorter than the paper's leave a claim open; one about a pair that it does not show is ours."""
    pair, full = (runs[0].first.method, runs[0].first.check), all(run.is_full_length for run in runs)
    beyond = pair not in SHOWN.get(runs[0].first.data, [pair])
    return Finding(claim=claim, ours=ours, agrees=agrees if full and not beyond else None, beyond=beyond, case=case)


def _case(run: Adapted) -> str:
    return f"{data_name(run.first.data)}, {run.who}"


def _against_table1(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in runs_by(runs, "paper", "euler", "midpoint"):
        accuracy, cost = run.accuracy, run.costs
        if (printed := PRINTED.get(run.first.data)) is None:
            continue
        yield _finding(
            "Algorithm 2's accuracy is as printed",
            f"{percent(accuracy)} ({seed_count(len(accuracy))}) where {printed.adapted} is printed",
            is_same(accuracy, printed.adapted),
            run,
            case=_case(run),
        )
        yield _finding(
            "Algorithm 2 takes as many evaluations per iteration as printed, all checks included",
            f"{fmean(cost):.1f}, {by_seed(cost)}, where {printed.cost} is printed",
            abs(fmean(cost) / printed.cost - 1) <= SAME_COST,
            run,
            case=_case(run),
        )


def _fluctuations(what: str, run: Adapted) -> Told | None:
    if not (swings := run.swings):
        return None
    ours = f"once settled, its log2 has a standard deviation of {_swinging(swings)}"
    return f"the {what} fluctuates to the end", ours, fmean(swings) > FLUCTUATES


def _swinging(swings: Sequence[float]) -> str:
    """The swings in words; where seeds disagree, also how many of them are above the limit."""
    above = sum(one > FLUCTUATES for one in swings)
    some = f": above {FLUCTUATES:.2f} in {above} of {len(swings)}" if 0 < above < len(swings) else ""
    return f"{fmean(swings):.2f}, {by_seed(swings, '{:.2f}')}{some}"


def _evaluations(run: Adapted) -> Told | None:
    """Findings about the number of evaluations, which with fixed steps follows from the number of steps."""
    if not (swings := [swing(rates) for rates in run.rates]):
        return None
    low, high = min(map(min, run.rates)), max(map(max, run.rates))
    ours = f"once settled, from {low:.0f} to {high:.0f} per iteration; its log2 has a standard deviation of "
    claim = "the number of evaluations fluctuates to the end, too"
    return claim, ours + _swinging(swings), fmean(swings) > FLUCTUATES


def _first_steps(run: Adapted) -> Told | None:
    """One that is far too small is paid for until it has grown."""
    if not (settled := [fmean(rates) for rates in run.rates]):
        return None
    first = [next(row.precision for row in c if row.evaluations_forward is not None) for c in run.by_seed]
    in_all = [evaluations / iteration for iteration, evaluations in (spent(c)[-1] for c in run.by_seed)]
    ours = (
        f"training begins with {span(first, '{:.0f}')} steps ({seed_count(len(first))}), and settles around "
        f"{span(run.centres)}; without its checks it takes "
        f"{fmean(in_all):.1f} evaluations per iteration in all, and {fmean(settled):.1f} once settled"
    )
    claim = "the first step, after Hairer's rule, is not too small for the algorithm to be useful"
    return claim, ours, fmean(in_all) <= TOO_MANY * fmean(settled)


def _flows(run: Adapted) -> Told:
    gaps, within = run.gaps, sum(gap <= THRESHOLD for gap in run.gaps)
    counted = f"; within {THRESHOLD:g} in {within} of {len(gaps)} seeds" if len(gaps) > 1 else ""
    ours = (
        f"at the end, the finer solver that differs most is {100 * fmean(gaps):.1f} points away "
        f"({by_seed([100 * gap for gap in gaps])}){counted}"
    )
    claim = f"adapted, the model stays a flow: finer solvers score the same to within {THRESHOLD:g}"
    return claim, ours, fmean(gaps) <= THRESHOLD


def _corrections(run: Adapted) -> Told | None:
    """Most reviews pass, so that most do after a failed one says little: they must do so as often as all."""
    every = [review for failed in run.failed for review in failed]
    after = [then for failed in run.failed for now, then in pairwise(failed) if now]
    if not after:
        return None
    ours = (
        f"{sum(every)} of {len(every)} reviews failed ({seed_count(len(run.failed))}); the next one passed "
        f"{after.count(False)} times of {len(after)}"
    )
    claim = "a model that has adapted to its step is corrected by training with a smaller one"
    return claim, ours, fmean(after) <= fmean(every)


def _orders(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """Compares the steps of Euler and of midpoint under Algorithm 2 with the same check and learning rate."""
    euler, midpoint = (runs_by(runs, "paper", method, "rk4") for method in ("euler", "midpoint"))
    if not euler or not midpoint or not (many := euler[0].centres) or not (few := midpoint[0].centres):
        return
    yield _finding(
        "with midpoint as the training solver, Algorithm 2 fluctuates around far fewer steps than with Euler",
        f"once settled, around {fmean(few):.1f} steps of midpoint ({by_seed(few)}) against "
        f"{fmean(many):.1f} of Euler ({by_seed(many)})",
        fmean(few) < fmean(many) / FAR_FEWER,
        midpoint[0],
        euler[0],
        case=data_name(euler[0].first.data),
    )


def _different_ends(run: Adapted) -> Told | None:
    if len(centres := run.centres) < 2:
        return None
    apart, within = stdev(map(log2, centres)), fmean(run.swings)
    ours = (
        f"once settled, around {span(centres, '{:.1e}')}: log2 has a standard deviation of {apart:.2f} "
        f"between seeds, and of {within:.2f} within one"
    )
    return "for different seeds, the tolerance fluctuates around different final values", ours, apart > within


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
