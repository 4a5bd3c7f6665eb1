"""What the grids' tables say of the claims of Section 3 and Appendix B. A mean is followed by the spread over seeds."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import dropwhile
from math import log2
from statistics import fmean, stdev

from windermere.paper.studies.critical import (
    PRINTED,
    THRESHOLD,
    Check,
    Entry,
    Grid,
    Model,
    Printed,
    did_train,
    grid_name,
    grids_in,
    short_number,
)
from windermere.paper.studies.rows import GridRow, grouped
from windermere.paper.studies.statistics import against, judged, slope, told
from windermere.paper.studies.study import ONE_SEED, Finding, seed_count

MIDPOINT = Check(method="midpoint", factor=0.5)
"""The method by which Algorithm 2 checks Euler's."""

NO_DEPENDENCE = 0.02
"""A change over a whole grid that is no clear dependence: about as much as seeds differ by."""
LEAST_DECLINE = 0.01
CHANCE = 0.5
"""The accuracy of guessing on spheres. It stands for a seed that diverged, or on which its own solver fails."""
TOO_FEW = "too few trained entries of the grid are there"
NOT_WHOLE = "not trained with all of the grid"


def fixed_findings(
    rows: Sequence[GridRow], unfinished: Collection[str] = (), *, everyone: bool = False
) -> Iterator[Finding]:
    """`unfinished` are the grids that more runs are planned for, or longer ones: they may show a claim, and a
    counter-example; what is said of all of a grid they leave open. `everyone` averages seeds that did not train too."""
    for name, grid in grids_in(rows, everyone=everyone).items():
        whole = name not in unfinished
        yield _drops(grid, whole)
        yield _own(grid, whole)
        if grid.first.method == "euler" and grid.first.data in PRINTED:
            yield _critical(grid, whole)


def adaptive_findings(
    rows: Sequence[GridRow], unfinished: Collection[str] = (), *, everyone: bool = False
) -> Iterator[Finding]:
    for name, grid in grids_in(rows, everyone=everyone).items():
        trained, whole = (grid.first.data, grid.first.method), name not in unfinished
        yield _no_drop(grid, whole) if trained == ("mnist", "dopri54") else _drops(grid, whole)
        if grid.first.gradient == "adjoint":
            yield _lower("with the adjoint, accuracy is relatively low at large tolerances", grid, whole, finer=False)
        elif trained == ("sphere2", "dopri54"):
            yield _lower("performance declines at small tolerances", grid, whole, finer=True)
        else:
            yield _own(grid, whole)


def with_others_left_out(
    tell: Callable[..., Iterator[Finding]], rows: Sequence[GridRow], unfinished: Collection[str] = ()
) -> dict[str, list[Finding]]:
    """What the findings of a grid would be if seeds that did not train counted, and if they counted nowhere, not even
    with the precisions at which they trained; nothing where all trained."""
    lost = {(grid_name(r.data, r.method, r.lr), r.seed) for r in rows if r.own and not did_train(r)}
    if not lost:
        return {}
    without = [row for row in rows if (grid_name(row.data, row.method, row.lr), row.seed) not in lost]
    return {
        "every seed": list(tell(rows, unfinished, everyone=True)),
        "these seeds nowhere": list(tell(without, unfinished)),
    }


# ---------------------------------------------------------------------------------------------------------
# Claims


def _drops(grid: Grid, whole: bool) -> Finding:
    """Some precision costs more than the threshold under the check solver; the finest does under no solver as fine."""
    claim = (
        f"trained coarsely, accuracy drops by more than {THRESHOLD:g} under a finer solver; trained finely, it does not"
    )
    if len(there := _of_several_seeds(grid)) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=grid.title, brief="too few")
    worst, finest, critical = max(there[:-1], key=_mean_drop), there[-1], grid.critical()
    ours = (
        f"under {grid.check}, the largest drop is {_drop(worst)} at {_at(worst, grid)}; at {_at(finest, grid)} it is "
        f"{_drop(finest)}; critical {'tolerance' if grid.adaptive else 'steps'}: {critical}"
    )
    if critical.passes is not None:
        ours += f"; from there on, solvers at least as fine differ by {_off(grid, critical.passes)}"
    fine = [entry for entry in _under_all(grid, finest.precision) if entry.precision == finest.precision]
    if _is_of_one_seed(there):
        shown = _mean_drop(worst) > THRESHOLD and all(entry.passes for entry in _under_all(grid, finest.precision))
        agrees, told_of = shown if shown or whole else None, ""
    else:
        agrees, told_of = _tested_drop(worst, fine, len(there) - 1)
        agrees = agrees if agrees or whole else None
    apart, brief = _apart(grid, there), f"{_drop(worst)} at {_at(worst, grid)}"
    return Finding(claim=claim, ours=ours + told_of, agrees=agrees, case=grid.title, apart=apart, brief=brief + told_of)


def _tested_drop(worst: Entry, fine: Sequence[Entry], tried: int) -> tuple[bool | None, str]:
    """One-sided tests over seeds: that the largest drop, of so many that were tried, is above the threshold, and that
    the finest entry's gap is below it under every solver."""
    drop = against([model.drop for model in worst.trained], THRESHOLD)
    gaps = [against([abs(model.drop) for model in entry.trained], THRESHOLD) for entry in fine]
    above, below = min(1.0, tried * drop.above()), max(gap.below() for gap in gaps)
    fails = min(drop.below(), len(gaps) * min(gap.above() for gap in gaps))
    agrees = judged(max(above, below), fails)
    if drop.value <= 0:  # a drop that is not seen is none
        agrees = False
    return agrees, f" ({told(above)} for the drop, of {tried} {'entry' if tried == 1 else 'entries'})"


def _no_drop(grid: Grid, whole: bool) -> Finding:
    claim = "this is the exception: there is no drop under a finer solver at any tolerance"
    if not (there := grid.trained()):
        return Finding(claim=claim, ours="no seed trained", agrees=None, case=grid.title)
    worst = max(there, key=_mean_drop)
    ours, apart = f"under {grid.check}, the largest drop is {_drop(worst)}, at {_at(worst, grid)}", _apart(grid, there)
    holds: bool | None = _mean_drop(worst) <= THRESHOLD
    if not _is_of_one_seed(there):
        largest = against([model.drop for model in worst.trained], THRESHOLD)
        holds = judged(largest.below(), len(there) * largest.above())  # the largest of so many
    agrees = holds if whole or not holds else None
    return Finding(claim=claim, ours=ours, agrees=agrees, case=grid.title, apart=apart, brief=_drop(worst))


def _own(grid: Grid, whole: bool) -> Finding:
    """No clear dependence: seed by seed, the line through a grid's accuracies does not rise or fall, and all means are
    within the threshold by which accuracies are the same."""
    claim = "tested with the training solver, accuracy shows no clear dependence on the step or tolerance"
    if len(there := grid.trained()) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=grid.title, brief="too few")
    low, high = (end(there, key=lambda entry: fmean(entry.own)) for end in (min, max))
    told_of = (f"{mean_and_spread(entry.own)} at {_at(entry, grid)}" for entry in (low, high))
    ours, changes = f"from {' to '.join(told_of)}", _changes(there)
    apart = fmean(high.own) - fmean(low.own)
    close = apart <= THRESHOLD
    if len(changes) < 2:
        agrees: bool | None = close if whole or not close else None
        return Finding(claim=claim, ours=ours, agrees=agrees, case=grid.title, apart=grid.apart or ONE_SEED, brief=ours)
    over, brief = against(changes), f"from coarse to fine it changes by {mean_and_spread(changes)}"
    depends = over.p if abs(over.value) > NO_DEPENDENCE else 1.0
    ours += f"; along the line through each seed's entries, {brief} ({seed_count(len(changes))}, {told(over.p)})"
    agrees = False if not close else judged(over.within(NO_DEPENDENCE), depends) if whole else None
    brief += "" if close else f", and means are up to {apart:.3f} apart"
    return Finding(claim=claim, ours=ours, agrees=agrees, case=grid.title, apart=grid.apart, brief=brief)


def _changes(there: Sequence[Entry]) -> list[float]:
    """For each seed that trained in three entries and in half of the grid, how much its line changes over all of it."""
    places = [log2(entry.precision) for entry in there]
    found = grouped(
        (model.seed, (place, model.own or 0.0))
        for place, entry in zip(places, there, strict=True)
        for model in entry.trained
    )
    lines = [own for own in found.values() if len(own) >= max(3, len(there) / 2)]
    return [(places[-1] - places[0]) * slope(*zip(*own, strict=True)) for own in lines]


def _critical(grid: Grid, whole: bool) -> Finding:
    printed = PRINTED[grid.first.data]
    ours, midpoint = grid.critical(), grid.critical(MIDPOINT)
    return Finding(
        claim="on the test set, the critical number of steps is as printed (ours agrees if some number in its bracket "
        "is within a factor of two)",
        ours=f"{ours} (printed: {printed.fails}-{printed.passes}), checked by {ours.check}; "
        f"{midpoint} by {MIDPOINT} ({seeds_of(grid)})"
        if ours.check
        else "no seed trained",
        agrees=within_a_factor_of_two(ours.fails, ours.passes, printed) if whole else None,
        case=grid.title,
        apart=grid.apart,
        brief=str(ours),
    )


def within_a_factor_of_two(fails: float | None, passes: float | None, printed: Printed) -> bool | None:
    """Whether two brackets, ours and the paper's, can hold critical numbers less than a factor of two apart. A bracket
    goes from a number of steps that fails to one that passes."""
    if passes is None:
        return None if fails is None else (False if fails >= 2 * printed.passes else None)
    return passes * 2 > printed.fails and (fails or 0) < 2 * printed.passes


def _lower(claim: str, grid: Grid, whole: bool, *, finer: bool) -> Finding:
    """Whether each seed's accuracy is lower in the finer half of a grid than in the other, or the other way round."""
    coarse, fine, ours = _halves(grid)
    some, others = (fine, coarse) if finer else (coarse, fine)
    by = [others[seed] - some[seed] for seed in some if seed in others]
    if len(by) < 2:
        return Finding(claim=claim, ours=ours, agrees=None, case=grid.title, apart=grid.apart or ONE_SEED)
    lower = against(by)
    agrees = judged(lower.above() if lower.value > LEAST_DECLINE else 1.0, lower.below(LEAST_DECLINE))
    brief = f"seed by seed lower by {mean_and_spread(by)} ({seed_count(len(by))}, {told(lower.above())})"
    if not whole:  # two halves of a part of the grid say something else
        return Finding(claim=claim, ours=ours, agrees=None, case=grid.title, apart=grid.apart, brief=NOT_WHOLE)
    ours = f"{ours}; {brief}"
    return Finding(claim=claim, ours=ours, agrees=agrees, case=grid.title, apart=grid.apart, brief=brief)


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


def _halves(grid: Grid) -> tuple[dict[int, float], dict[int, float], str]:
    """By seed, accuracies at large and at small tolerances; of all seeds: leaving out those that learnt little, or
    diverged, would hide what is asked."""
    there = grid.entries()
    words = ", ".join(f"{_of_all(entry)} at {short_number(entry.precision)}" for entry in there)
    middle = len(there) // 2
    halves = (there[:middle], there[len(there) - middle :])
    coarse, fine = (_by_seed(model for entry in half for model in entry.models) for half in halves)
    if all(model.own is None for entry in there for model in entry.models):
        coarse, fine = {}, {}  # nothing to compare
    return coarse, fine, f"all seeds, tested with the training solver: {words}"


def _by_seed(models: Iterable[Model]) -> dict[int, float]:
    """Mean accuracies with their own solvers."""
    found = grouped((model.seed, CHANCE if model.own is None else model.own) for model in models)
    return {seed: fmean(own) for seed, own in found.items()}


def _of_all(entry: Entry) -> str:
    own = [model.own for model in entry.models if model.own is not None]
    failed = len(entry.models) - len(own)
    words = [*([mean_and_spread(own)] if own else []), *([f"{failed} failed"] if failed else [])]
    return " and ".join(words)


def _of_several_seeds(grid: Grid) -> list[Entry]:
    """The entries of more than one seed, where there are two of them; else all that any seed trained."""
    several = [entry for entry in grid.trained() if len(entry.trained) > 1]
    return several if len(several) > 1 else grid.trained()


def _is_of_one_seed(there: Sequence[Entry]) -> bool:
    return any(len(entry.trained) < 2 for entry in there)


def _apart(grid: Grid, there: Sequence[Entry]) -> str:
    return grid.apart or (ONE_SEED if _is_of_one_seed(there) else "")


def _mean_drop(entry: Entry) -> float:
    return fmean(model.drop for model in entry.trained)


def _drop(entry: Entry) -> str:
    """The drop in words; where seeds disagree, also how many of them are above the threshold."""
    drops = [model.drop for model in entry.trained]
    above = sum(drop > THRESHOLD for drop in drops)
    some = f" (above {THRESHOLD:g} in {above} of {len(drops)} seeds)" if 0 < above < len(drops) else ""
    return f"{mean_and_spread(drops)}{some}"


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
