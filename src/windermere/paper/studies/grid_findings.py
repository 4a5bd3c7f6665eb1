"""What the grids' tables say of the claims of Section 3 and Appendix B. A mean is followed by the spread over seeds."""

from collections.abc import Collection, Iterator, Sequence
from itertools import dropwhile
from math import sqrt
from statistics import fmean, stdev, variance

from windermere.paper.studies.critical import (
    PRINTED,
    THRESHOLD,
    Check,
    Entry,
    Grid,
    Model,
    Printed,
    grids_in,
    short_number,
)
from windermere.paper.studies.rows import GridRow
from windermere.paper.studies.study import Finding, seed_count

MIDPOINT = Check(method="midpoint", factor=0.5)
"""The method by which Algorithm 2 checks Euler's."""

LEAST_DECLINE = 0.01
CHANCE = 0.5
"""The accuracy of guessing on spheres. It stands for a seed that diverged, or on which its own solver fails."""
TOO_FEW = "too few trained entries of the grid are there"


def fixed_findings(rows: Sequence[GridRow], unfinished: Collection[str] = ()) -> Iterator[Finding]:
    """`unfinished` are the grids that more runs are planned for, or longer ones: they may show a claim, and a
    counter-example; what is said of all of a grid they leave open."""
    for name, grid in grids_in(rows).items():
        whole = name not in unfinished
        yield _drops(grid, whole)
        yield _own(grid, whole)
        if grid.first.method == "euler" and grid.first.data in PRINTED:
            yield _critical(grid, whole)


def adaptive_findings(rows: Sequence[GridRow], unfinished: Collection[str] = ()) -> Iterator[Finding]:
    for name, grid in grids_in(rows).items():
        trained, whole = (grid.first.data, grid.first.method), name not in unfinished
        yield _no_drop(grid, whole) if trained == ("mnist", "dopri54") else _drops(grid, whole)
        if grid.first.gradient == "adjoint":
            yield _poor_at_large_tolerances(grid, whole)
        elif trained == ("sphere2", "dopri54"):
            yield _declines(grid, whole)
        else:
            yield _own(grid, whole)


# ---------------------------------------------------------------------------------------------------------
# Claims


def _drops(grid: Grid, whole: bool) -> Finding:
    """Some precision costs more than the threshold under the check solver; the finest does under no solver as fine."""
    claim = (
        f"trained coarsely, accuracy drops by more than {THRESHOLD:g} under a finer solver; trained finely, it does not"
    )
    if len(there := grid.trained()) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=grid.title)
    worst, finest, critical = max(there[:-1], key=_mean_drop), there[-1], grid.critical()
    ours = (
        f"under {grid.check}, the largest drop is {_drop(worst)} at {_at(worst, grid)}; at {_at(finest, grid)} it is "
        f"{_drop(finest)}; critical {'tolerance' if grid.adaptive else 'steps'}: {critical}"
    )
    if critical.passes is not None:
        ours += f"; from there on, solvers at least as fine differ by {_off(grid, critical.passes)}"
    shown = _mean_drop(worst) > THRESHOLD and all(entry.passes for entry in _under_all(grid, finest.precision))
    return Finding(claim=claim, ours=ours, agrees=shown if shown or whole else None, case=grid.title)


def _no_drop(grid: Grid, whole: bool) -> Finding:
    claim = "this is the exception: there is no drop under a finer solver at any tolerance"
    if not (there := grid.trained()):
        return Finding(claim=claim, ours="no seed trained", agrees=None, case=grid.title)
    worst = max(there, key=_mean_drop)
    ours = f"under {grid.check}, the largest drop is {_drop(worst)}, at {_at(worst, grid)}"
    return Finding(claim=claim, ours=ours, agrees=_for_all(_mean_drop(worst) <= THRESHOLD, whole), case=grid.title)


def _own(grid: Grid, whole: bool) -> Finding:
    """No clear dependence: all means within the threshold by which accuracies are the same. The paper itself allows for
    visible trends, as it did not tune the learning rate for each precision: smaller ones are told."""
    claim = "tested with the training solver, accuracy shows no clear dependence on the step or tolerance"
    if len(there := grid.trained()) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=grid.title)
    low, high = (end(there, key=lambda entry: fmean(entry.own)) for end in (min, max))
    told = (f"{mean_and_spread(entry.own)} at {_at(entry, grid)}" for entry in (low, high))
    holds = _for_all(fmean(high.own) - fmean(low.own) <= THRESHOLD, whole)
    return Finding(claim=claim, ours=f"from {' to '.join(told)}{_trend(there)}", agrees=holds, case=grid.title)


def _critical(grid: Grid, whole: bool) -> Finding:
    printed = PRINTED[grid.first.data]
    ours, midpoint = grid.critical(), grid.critical(MIDPOINT)
    return Finding(
        claim="the critical number of steps is as printed (ours agrees if some number in its bracket is within a "
        "factor of two)",
        ours=f"{ours} (printed: {printed.fails}-{printed.passes}), checked by {ours.check}; "
        f"{midpoint} by {MIDPOINT} ({seeds_of(grid)})"
        if ours.check
        else "no seed trained",
        agrees=within_a_factor_of_two(ours.fails, ours.passes, printed) if whole else None,
        case=grid.title,
    )


def within_a_factor_of_two(fails: float | None, passes: float | None, printed: Printed) -> bool | None:
    """Whether two brackets, ours and the paper's, can hold critical numbers less than a factor of two apart. A bracket
    goes from a number of steps that fails to one that passes."""
    if passes is None:
        return None if fails is None else (False if fails >= 2 * printed.passes else None)
    return passes * 2 > printed.fails and (fails or 0) < 2 * printed.passes


def _for_all(holds: bool, whole: bool) -> bool | None:
    """Whether a claim about every entry holds: one that breaks it is enough."""
    return holds if whole or not holds else None


def _declines(grid: Grid, whole: bool) -> Finding:
    coarse, fine, ours = _halves(grid)
    holds = is_lower(fine, coarse) if whole else None
    return Finding(claim="performance declines at small tolerances", ours=ours, agrees=holds, case=grid.title)


def _poor_at_large_tolerances(grid: Grid, whole: bool) -> Finding:
    coarse, fine, ours = _halves(grid)
    holds = is_lower(coarse, fine) if whole else None
    claim = "with the adjoint, accuracy is relatively low at large tolerances"
    return Finding(claim=claim, ours=ours, agrees=holds, case=grid.title)


def left_out(rows: Sequence[GridRow]) -> str:
    """Words that say which seeds are left out of all means."""
    models = [model for grid in grids_in(rows).values() for entry in grid.entries() for model in entry.models]
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


def _under_all(grid: Grid, coarsest: float) -> list[Entry]:
    """The entries trained with this precision or a finer one, under each solver of equal or smaller error."""
    by_check = (grid.entries(check) for check in grid.finer_checks)
    fine = (dropwhile(lambda entry: entry.precision != coarsest, same) for same in by_check)
    return [entry for same in fine for entry in same if entry.trained]


def _off(grid: Grid, coarsest: float) -> str:
    """How far at most: a mean may hide a seed."""
    found = _under_all(grid, coarsest)
    mean, one = max(e.gap for e in found), max(abs(model.drop) for e in found for model in e.trained)
    several = any(len(entry.trained) > 1 for entry in found)
    return f"{mean:.3f} at most" + (f" in the mean over seeds, and by {one:.3f} for one seed" if several else "")


def _halves(grid: Grid) -> tuple[list[float], list[float], str]:
    """Accuracies at large and at small tolerances, of all seeds: leaving out those that learnt little, or diverged,
    would hide what is asked."""
    there = grid.entries()
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
    coarse, fine = ([own for entry in half for own in entry.own] for half in halves)
    if not is_lower(coarse, fine) and not is_lower(fine, coarse):
        return ""
    way = f"from {fmean(coarse):.3f} in the coarse half of the grid to {fmean(fine):.3f} in the fine"
    return f"; there is a trend, {way}"


def mean_and_spread(values: Sequence[float]) -> str:
    """Mean, and standard deviation where there are several."""
    mean = round(fmean(values), 3) + 0.0  # no negative zero
    return f"{mean:.3f} " + ("(one seed)" if len(values) == 1 else f"± {stdev(values):.3f}")


def seeds_of(grid: Grid) -> str:
    """How many trained, in an entry that any did."""
    return seed_count(*(len(entry.trained) for entry in grid.trained()))


def _at(entry: Entry, grid: Grid) -> str:
    if grid.adaptive:
        return f"tolerance {short_number(entry.precision)}"
    return "1 step" if entry.precision == 1 else f"{entry.precision:g} steps"
