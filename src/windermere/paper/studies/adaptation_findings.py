"""What adapted runs say of the paper's claims."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import log2
from statistics import fmean, stdev

from windermere.paper.studies.adaptation_runs import Adapted, adapted_runs, fluctuates, runs_by, spent, swing
from windermere.paper.studies.audits import outcomes
from windermere.paper.studies.chances import wilson
from windermere.paper.studies.critical import PRINTED, THRESHOLD
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.statistics import (
    LEVEL,
    Sample,
    against,
    between_groups,
    is_same,
    judged,
    told,
    welch,
)
from windermere.paper.studies.study import Finding, data_name, of_ours, seed_count

SHOWN = {"mnist": [("euler", "midpoint")]}
"""The pairs that the paper shows, for data sets where it shows only some: findings about other pairs are our own."""
FAR_FEWER = 2
"""A factor between numbers of steps."""
TOO_MANY = 2
"""A factor of all evaluations over those once settled: more would be owed to a first step that is too small."""
SAME_COST = log2(1.25)
"""Two costs that differ by no more of the paper's are the same: seeds differ by far more."""
SAME_ACCURACY = 0.01
"""Two mean accuracies that differ by no more are equivalent: a point, which is about what the paper's seeds spread."""


def spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def percent(values: Sequence[float]) -> str:
    """The mean over seeds, and its spread where there are several."""
    around = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{around} %"


def span(values: Sequence[float], form: str = "{:.1f}") -> str:
    """The range of the seeds' values in words, from the lowest to the highest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def by_seed(values: Sequence[float], form: str = "{:.1f}") -> str:
    """The span of the seeds' values in words, or that there is one seed only."""
    return f"seeds {span(values, form)}" if len(values) > 1 else "one seed"


Told = tuple[str, str, bool | None]
"""A claim about one run, what we found, and whether it agrees."""


def step_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    told = (_first_steps, partial(_fluctuations, "number of steps"), _flows)
    return [*_against_table1(runs), *_of_the_paper(runs, told), *_corrections(runs), *_orders(runs), *_steady(runs)]


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


def _finding(claim: str, ours: str, agrees: bool | None, *runs: Adapted, case: str) -> Finding:
    """Runs that are shorter than the paper's leave a claim open; one about a pair that it does not show is ours."""
    pair, full = (runs[0].first.method, runs[0].first.check), all(run.is_full_length for run in runs)
    beyond = pair not in SHOWN.get(runs[0].first.data, [pair])
    told_of, apart = agrees if full and not beyond else None, next((run.apart for run in runs if run.apart), "")
    return Finding(claim=claim, ours=ours, agrees=told_of, beyond=beyond, case=case, apart=apart)


def _case(run: Adapted) -> str:
    return f"{data_name(run.first.data)}, {run.who}"


def _against_table1(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in runs_by(runs, "paper", "euler", "midpoint"):
        accuracy, cost = run.accuracy, run.costs
        if (printed := PRINTED.get(run.first.data)) is None:
            continue
        same, tests = is_same(accuracy, printed.adapted, SAME_ACCURACY)
        yield _finding(
            "Algorithm 2's accuracy is as printed",
            f"{percent(accuracy)} ({seed_count(len(accuracy))}) where {printed.adapted} is printed"
            + _in_brackets(tests),
            same,
            run,
            case=_case(run),
        )
        cheap, tests = _is_same_cost(cost, printed.cost)
        yield _finding(
            "Algorithm 2 takes as many evaluations per iteration as printed, all checks included",
            f"{fmean(cost):.1f}, {by_seed(cost)}, where {printed.cost} is printed{_in_brackets(tests)}",
            cheap,
            run,
            case=_case(run),
        )


def _in_brackets(tests: str) -> str:
    return f" ({tests})" if tests else ""


def _is_same_cost(costs: Sequence[float], printed: float) -> tuple[bool | None, str]:
    """Costs are compared by their logarithms, with a number that is printed without a spread."""
    logs = [log2(cost) for cost in costs]
    if len(logs) < 2:
        return abs(logs[0] - log2(printed)) <= SAME_COST, ""
    apart = against(logs, log2(printed))
    equivalent = apart.within(SAME_COST)
    return judged(equivalent, apart.p), f"t-test {told(apart.p)}, equivalence {told(equivalent)}"


def _fluctuations(what: str, run: Adapted) -> Told | None:
    if not (swings := run.swings):
        return None
    ours = f"once settled, its log2 has a standard deviation of {_swinging(swings, run.fluctuating)}"
    return f"the {what} fluctuates to the end", ours, _of_seeds(run.fluctuating)


def _of_seeds(holds: Sequence[bool]) -> bool | None:
    """Whether a claim about single seeds holds for all of them, or for fewer than half."""
    return True if all(holds) else False if 2 * sum(holds) < len(holds) else None


def _swinging(swings: Sequence[float], fluctuating: Sequence[bool]) -> str:
    """The swings in words, and how many seeds fluctuate."""
    which = "fluctuates" if len(fluctuating) == 1 else "fluctuate"
    return f"{fmean(swings):.2f} ({by_seed(swings, '{:.2f}')}; {sum(fluctuating)} of {len(fluctuating)} {which})"


def _evaluations(run: Adapted) -> Told | None:
    """Findings about the number of evaluations, which with fixed steps follows from the number of steps."""
    if not run.rates:
        return None
    swings, fluctuating = [swing(rates) for rates in run.rates], [fluctuates(rates) for rates in run.rates]
    low, high = min(map(min, run.rates)), max(map(max, run.rates))
    ours = f"once settled, from {low:.0f} to {high:.0f} per iteration; its log2 has a standard deviation of "
    claim = "the number of evaluations fluctuates to the end, too"
    return claim, ours + _swinging(swings, fluctuating), _of_seeds(fluctuating)


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
    factors = [log2(every / late) for every, late in zip(in_all, settled, strict=True)]
    if len(factors) < 2:
        return claim, ours, factors[0] <= log2(TOO_MANY)
    apart = against(factors, log2(TOO_MANY))
    ours += f": {2 ** fmean(factors):.2f} times as many ({told(apart.below())} for fewer than {TOO_MANY})"
    return claim, ours, judged(apart.below(), apart.above())


def _flows(run: Adapted) -> Told:
    """By the audit of every seed; on images, which are not audited, by the finer solvers of the tests."""
    claim = f"adapted, the model stays a flow: finer solvers score the same to within {THRESHOLD:g}"
    gaps, within = run.gaps, sum(gap <= THRESHOLD for gap in run.gaps)
    counted = f"; within {THRESHOLD:g} in {within} of {len(gaps)} seeds" if len(gaps) > 1 else ""
    ours = (
        f"at the end, the finer solver that differs most is {100 * fmean(gaps):.1f} points away "
        f"({by_seed([100 * gap for gap in gaps])}){counted}"
    )
    if not run.audits:
        return claim, f"not audited; {ours}", _of_seeds([gap <= THRESHOLD for gap in gaps])
    said = [row.outcome for row in run.audits]
    by_its_seed = ", ".join(f"{row.seed} {row.outcome}" for row in run.audits)
    agrees = True if set(said) == {"FLOW"} else False if "TIED" in said else None
    low, high = wilson(said.count("FLOW"), len(said))
    share = f"share of FLOW {low:.2f} to {high:.2f}"
    return claim, f"audits: {outcomes(run.audits)} ({share}; seeds {by_its_seed}); {ours}", agrees


def _corrections(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """A review that follows a failed one looks with half the step, at which the same weights may have passed already:
    that it passes tells nothing of training."""
    for run in runs_by(runs, "paper"):
        every = [review for failed in run.failed for review in failed]
        after = [then for failed in run.failed for now, then in pairwise(failed) if now]
        if after:
            yield of_ours(
                "the review after a failed one, which looks with half the step, passes",
                f"{sum(every)} of {len(every)} reviews failed ({seed_count(len(run.failed))}); the next one "
                f"passed {after.count(False)} times of {len(after)}",
                _case(run),
            )


def _orders(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """Compares the steps of Euler and of midpoint under Algorithm 2 with the same check and learning rate."""
    euler, midpoint = (runs_by(runs, "paper", method, "rk4") for method in ("euler", "midpoint"))
    if not euler or not midpoint or not (many := euler[0].centres) or not (few := midpoint[0].centres):
        return
    logs = [[log2(centre) for centre in centres] for centres in (many, few)]
    agrees: bool | None = fmean(few) < fmean(many) / FAR_FEWER
    tests = ""
    if min(map(len, logs)) > 1:
        apart = welch(*map(Sample.of, logs))
        agrees = judged(apart.above(log2(FAR_FEWER)), apart.below(log2(FAR_FEWER)))
        tests = f"Welch {told(apart.above(log2(FAR_FEWER)))} for fewer than half"
    yield _finding(
        "with midpoint as the training solver, Algorithm 2 fluctuates around far fewer steps than with Euler",
        f"once settled, around {fmean(few):.1f} steps of midpoint ({by_seed(few)}) against "
        f"{fmean(many):.1f} of Euler ({by_seed(many)}){_in_brackets(tests)}",
        agrees,
        midpoint[0],
        euler[0],
        case=data_name(euler[0].first.data),
    )


def _different_ends(run: Adapted) -> Told | None:
    """By an analysis of variance: two halves of the time since it settled, for each seed."""
    if len(blocks := run.blocks) < 2:
        return None
    apart, within, p = stdev(map(log2, run.centres)), fmean(run.swings), between_groups(blocks)
    ours = (
        f"once settled, around {span(run.centres, '{:.1e}')}: log2 has a standard deviation of {apart:.2f} "
        f"between seeds, and of {within:.2f} within one ({told(p)})"
    )
    return (
        "for different seeds, the tolerance fluctuates around different final values",
        ours,
        True if p < LEVEL else None,
    )


def _steady(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """The paper's future work: an algorithm without the oscillations."""
    for run in runs_by(runs, "steady"):
        pair = (run.first.method, run.first.check or "")
        beside = next((paper for paper in runs_by(runs, "paper", *pair) if paper.first.lr == run.first.lr), None)
        if beside is None or not (ours := run.swings) or not (theirs := beside.swings):
            continue
        yield of_ours(
            "left to future work: adaptation that does not oscillate",
            f"swings {_swinging(ours, run.fluctuating)} against "
            f"{_swinging(theirs, beside.fluctuating)}, evaluations per iteration "
            f"{fmean(run.costs):.1f} against {fmean(beside.costs):.1f}, accuracy "
            f"{percent(run.accuracy)} against {percent(beside.accuracy)}, distance to finer "
            f"solvers {100 * fmean(run.gaps):.1f} points against {100 * fmean(beside.gaps):.1f}"
            + (f"; audits {outcomes(run.audits)} against {outcomes(beside.audits)}" if run.audits else "")
            + f" ({seed_count(len(run.costs))} against {len(beside.costs)})",
            _case(run),
        )
