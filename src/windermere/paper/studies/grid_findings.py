"""What the grids' tables say of the claims of Section 3 and Appendix B. A mean is followed by the spread over seeds."""

from collections.abc import Collection, Iterator, Sequence
from itertools import dropwhile
from math import sqrt
from statistics import fmean, stdev, variance

from windermere.paper.studies.critical import (
    THRESHOLD,
    Check,
    Entry,
    Model,
    critical_steps,
    entries,
    finer_checks,
    finest_check,
    short_number,
)
from windermere.paper.studies.study import Finding, data_name, seed_count
from windermere.records import Row

PRINTED_BRACKET = {"sphere2": (64, 128), "cifar10": (16, 32)}
"""Table 1: the numbers of Euler steps around the critical one (which as evaluations it gives as 65-129 and 17-33)."""
MIDPOINT = Check(method="midpoint", factor=0.5)
"""The method by which Algorithm 2 checks Euler's."""

LEAST_DECLINE = 0.01
CHANCE = 0.5
"""The accuracy of guessing on spheres. It stands for a seed that diverged, or on which its own solver fails."""
TOO_FEW = "too few trained entries of the grid are there"


def grids_in(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each grid, by a name for it: its training method, and on CIFAR-10 the learning rate."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row['method']}-lr{short_number(row['lr'])}" if row["data"] == "cifar10" else str(row["method"])
        found.setdefault(name, []).append(row)
    return found


def fixed_findings(rows: Sequence[Row], unfinished: Collection[str] = ()) -> Iterator[Finding]:
    """`unfinished` are the grids that more runs are planned for, or longer ones: they may show a claim, and a
    counter-example; what is said of all of a grid they leave open."""
    for name, grid in grids_in(rows).items():
        whole = name not in unfinished
        yield _drops(grid, "steps", whole)
        yield _own(grid, "steps", whole)
        if grid[0]["method"] == "euler" and grid[0]["data"] in PRINTED_BRACKET:
            yield _critical(grid, whole)


def adaptive_findings(rows: Sequence[Row], unfinished: Collection[str] = ()) -> Iterator[Finding]:
    for name, grid in grids_in(rows).items():
        data, method, gradient = (grid[0][name] for name in ("data", "method", "gradient"))
        whole = name not in unfinished
        yield _no_drop(grid, whole) if (data, method) == ("mnist", "dopri54") else _drops(grid, "tolerance", whole)
        if gradient == "adjoint":
            yield _poor_at_large_tolerances(grid, whole)
        elif (data, method) == ("sphere2", "dopri54"):
            yield _declines(grid, whole)
        else:
            yield _own(grid, "tolerance", whole)


# ---------------------------------------------------------------------------------------------------------
# Claims


def _drops(grid: Sequence[Row], name: str, whole: bool) -> Finding:
    """Some precision costs more than the threshold under the check solver; the finest does under no solver as fine."""
    check, there = _there(grid)
    claim = (
        f"trained coarsely, accuracy drops by more than {THRESHOLD:g} under a finer solver; trained finely, it does not"
    )
    if len(there) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=title(grid))
    worst, finest = max(there[:-1], key=_mean_drop), there[-1]
    critical = critical_steps(grid, grid[0]["method"])
    ours = (
        f"under {check}, the largest drop is {_drop(worst)} at {_at(worst, name)}; at {_at(finest, name)} it is "
        f"{_drop(finest)}; critical {name}: {critical}"
    )
    if critical.passes is not None:
        ours += f"; from there on, solvers at least as fine differ by {_off(grid, critical.passes)}"
    shown = _mean_drop(worst) > THRESHOLD and all(entry.passes for entry in _under_all(grid, finest.precision))
    return Finding(claim=claim, ours=ours, agrees=shown if shown or whole else None, case=title(grid))


def _no_drop(grid: Sequence[Row], whole: bool) -> Finding:
    check, there = _there(grid)
    claim = "this is the exception: there is no drop under a finer solver at any tolerance"
    if not there:
        return Finding(claim=claim, ours="no seed trained", agrees=None, case=title(grid))
    worst = max(there, key=_mean_drop)
    ours = f"under {check}, the largest drop is {_drop(worst)}, at {_at(worst, 'tolerance')}"
    holds = _for_all(_mean_drop(worst) <= THRESHOLD, whole)
    return Finding(claim=claim, ours=ours, agrees=holds, case=title(grid))


def _own(grid: Sequence[Row], name: str, whole: bool) -> Finding:
    """No clear dependence: all means within the threshold by which accuracies are the same. The paper itself allows for
    visible trends, as it did not tune the learning rate for each precision: smaller ones are told."""
    _, there = _there(grid)
    claim = "tested with the training solver, accuracy shows no clear dependence on the step or tolerance"
    if len(there) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=title(grid))
    low, high = min(there, key=_mean_own), max(there, key=_mean_own)
    ours = f"from {_own_accuracy(low)} at {_at(low, name)} to {_own_accuracy(high)} at {_at(high, name)}{_trend(there)}"
    holds = _for_all(_mean_own(high) - _mean_own(low) <= THRESHOLD, whole)
    return Finding(claim=claim, ours=ours, agrees=holds, case=title(grid))


def _critical(grid: Sequence[Row], whole: bool) -> Finding:
    low, high = PRINTED_BRACKET[grid[0]["data"]]
    ours, midpoint = critical_steps(grid, "euler"), critical_steps(grid, "euler", MIDPOINT)
    return Finding(
        claim="the critical number of steps is as printed (ours agrees if some number in its bracket is within a "
        "factor of two)",
        ours=f"{ours} (printed: {low}-{high}), checked by {ours.check}; {midpoint} by {MIDPOINT} ({seeds_of(grid)})"
        if ours.check
        else "no seed trained",
        agrees=within_a_factor_of_two(ours.fails, ours.passes, low, high) if whole else None,
        case=title(grid),
    )


def within_a_factor_of_two(fails: float | None, passes: float | None, low: int, high: int) -> bool | None:
    """Whether two brackets, ours and the paper's, can hold critical numbers less than a factor of two apart. A bracket
    goes from a number of steps that fails to one that passes."""
    if passes is None:
        return None if fails is None else (False if fails >= 2 * high else None)
    return passes * 2 > low and (fails or 0) < 2 * high


def _for_all(holds: bool, whole: bool) -> bool | None:
    """Whether a claim about every entry holds: one that breaks it is enough."""
    return holds if whole or not holds else None


def _declines(grid: Sequence[Row], whole: bool) -> Finding:
    coarse, fine, ours = _halves(grid)
    holds = is_lower(fine, coarse) if whole else None
    return Finding(claim="performance declines at small tolerances", ours=ours, agrees=holds, case=title(grid))


def _poor_at_large_tolerances(grid: Sequence[Row], whole: bool) -> Finding:
    coarse, fine, ours = _halves(grid)
    holds = is_lower(coarse, fine) if whole else None
    claim = "with the adjoint, accuracy is relatively low at large tolerances"
    return Finding(claim=claim, ours=ours, agrees=holds, case=title(grid))


def left_out(rows: Sequence[Row]) -> str:
    """Words that say which seeds are left out of all means."""
    models = [model for grid in grids_in(rows).values() for entry in _entries(grid) for model in entry.models]
    left = [model for model in models if not model.trained]
    if not left:
        return f"All {len(models)} models trained."
    return f"{len(left)} of {len(models)} models did not train and are in no mean: {'; '.join(map(_why, left))}."


def _why(model: Model) -> str:
    if model.diverged_at is not None:
        return f"{model.run} seed {model.seed} (diverged at iteration {model.diverged_at})"
    accuracy = "its own solver fails" if model.own is None else f"{model.own:.3f}"
    return f"{model.run} seed {model.seed} ({accuracy})"


# ---------------------------------------------------------------------------------------------------------
# Numbers


def _entries(grid: Sequence[Row]) -> list[Entry]:
    method = grid[0]["method"]
    return entries(grid, method, finest_check(grid, method))


def _there(grid: Sequence[Row]) -> tuple[Check, list[Entry]]:
    return finest_check(grid, grid[0]["method"]), [entry for entry in _entries(grid) if entry.trained]


def _under_all(grid: Sequence[Row], coarsest: float) -> list[Entry]:
    """The entries trained with this precision or a finer one, under each solver of equal or smaller error."""
    method = grid[0]["method"]
    by_check = (entries(grid, method, check) for check in finer_checks(grid, method))
    fine = (dropwhile(lambda entry: entry.precision != coarsest, same) for same in by_check)
    return [entry for same in fine for entry in same if entry.trained]


def _off(grid: Sequence[Row], coarsest: float) -> str:
    """How far at most: a mean may hide a seed."""
    found = _under_all(grid, coarsest)
    mean, one = max(e.gap for e in found), max(abs(model.drop) for e in found for model in e.trained)
    several = any(len(entry.trained) > 1 for entry in found)
    return f"{mean:.3f} at most" + (f" in the mean over seeds, and by {one:.3f} for one seed" if several else "")


def _halves(grid: Sequence[Row]) -> tuple[list[float], list[float], str]:
    """Accuracies at large and at small tolerances, of all seeds: leaving out those that learnt little, or diverged,
    would hide what is asked."""
    there = _entries(grid)
    words = ", ".join(f"{_of_all(entry)} at {short_number(entry.precision)}" for entry in there)
    middle = len(there) // 2
    coarse, fine = (
        [CHANCE if model.own is None else model.own for entry in part for model in entry.models]
        for part in (there[:middle], there[len(there) - middle :])
    )
    if all(model.own is None for entry in there for model in entry.models):
        coarse, fine = [], []  # nothing to compare
    return coarse, fine, f"all seeds, tested with the training solver: {words}"


def _of_all(entry: Entry) -> str:
    own = [model.own for model in entry.models if model.own is not None]
    failed = len(entry.models) - len(own)
    words = [*([mean_and_spread(own)] if own else []), *([f"{failed} failed"] if failed else [])]
    return " and ".join(words)


def is_lower(some: Sequence[float], others: Sequence[float]) -> bool | None:
    """Enough to speak of, and by more than two standard errors of the difference; None where it is by less."""
    if len(some) < 2 or len(others) < 2:
        return None
    if fmean(others) - fmean(some) <= LEAST_DECLINE:
        return False
    error = sqrt(variance(some) / len(some) + variance(others) / len(others))
    return True if fmean(others) - fmean(some) > 2 * error else None


def _mean_drop(entry: Entry) -> float:
    return fmean(model.drop for model in entry.trained)


def _mean_own(entry: Entry) -> float:
    return fmean(model.own or 0.0 for model in entry.trained)


def _drop(entry: Entry) -> str:
    """The drop in words; where seeds disagree, also how many of them are above the threshold."""
    drops = [model.drop for model in entry.trained]
    above = sum(drop > THRESHOLD for drop in drops)
    some = f" (above {THRESHOLD:g} in {above} of {len(drops)} seeds)" if 0 < above < len(drops) else ""
    return f"{mean_and_spread(drops)}{some}"


def _trend(there: Sequence[Entry]) -> str:
    """Words for the trend from a grid's coarse half to its fine half; empty where both halves are equally accurate."""
    middle = len(there) // 2
    halves = (there[:middle], there[len(there) - middle :])
    coarse, fine = ([model.own or 0.0 for entry in half for model in entry.trained] for half in halves)
    if not is_lower(coarse, fine) and not is_lower(fine, coarse):
        return ""
    way = f"from {fmean(coarse):.3f} in the coarse half of the grid to {fmean(fine):.3f} in the fine"
    return f"; there is a trend, {way}"


def _own_accuracy(entry: Entry) -> str:
    return mean_and_spread([model.own or 0.0 for model in entry.trained])


def mean_and_spread(values: Sequence[float]) -> str:
    """Mean, and standard deviation where there are several."""
    mean = round(fmean(values), 3) + 0.0  # no negative zero
    return f"{mean:.3f} " + ("(one seed)" if len(values) == 1 else f"± {stdev(values):.3f}")


def seeds_of(grid: Sequence[Row]) -> str:
    """How many trained, in an entry that any did."""
    return seed_count(*(len(entry.trained) for entry in _there(grid)[1]))


def _at(entry: Entry, name: str) -> str:
    if name == "steps":
        return "1 step" if entry.precision == 1 else f"{entry.precision:g} steps"
    return f"tolerance {short_number(entry.precision)}"


def title(grid: Sequence[Row]) -> str:
    """What was trained on what, in words."""
    data, *how = data_title(grid).split(", ")
    return ", ".join([f"{data} trained with {grid[0]['method']}", *how])


def data_title(grid: Sequence[Row]) -> str:
    """A grid's data set, with the adjoint and the learning rate where they tell grids apart; the method is left out."""
    first = grid[0]
    data = data_name(first["data"])
    adjoint = ", adjoint" if first["gradient"] == "adjoint" else ""
    rate = f", learning rate {short_number(first['lr'])}" if first["data"] == "cifar10" else ""
    return f"{data}{adjoint}{rate}"
