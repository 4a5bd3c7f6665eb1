"""What the grids' tables say of the claims of Section 3 and Appendix B. A mean is followed by the spread over seeds."""

from collections.abc import Callable, Collection, Iterator, Sequence
from math import log2
from statistics import fmean

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
)
from windermere.paper.studies.grid_entries import (
    apart_because,
    differences,
    drop_of,
    halves,
    is_of_one_seed,
    mean_and_spread,
    mean_drop,
    of_several_seeds,
    place_of,
    seeds_of,
    under_all,
)
from windermere.paper.studies.rows import GridRow, grouped
from windermere.paper.studies.statistics import against, judged, slope, told
from windermere.paper.studies.study import ONE_SEED, Finding, seed_count

MIDPOINT = Check(method="midpoint", factor=0.5)
"""The method by which Algorithm 2 checks Euler's."""

NO_DEPENDENCE = 0.02
"""A change over a whole grid that is no clear dependence: about as much as seeds differ by."""
LEAST_DECLINE = 0.01
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


def _drops(grid: Grid, whole: bool) -> Finding:
    """Some precision costs more than the threshold under the check solver; the finest does under no solver as fine."""
    claim = (
        f"trained coarsely, accuracy drops by more than {THRESHOLD:g} under a finer solver; trained finely, it does not"
    )
    if len(there := of_several_seeds(grid)) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=grid.title, brief="too few")
    worst, finest, critical = max(there[:-1], key=mean_drop), there[-1], grid.critical()
    ours = (
        f"under {grid.check}, the largest drop is {drop_of(worst)} at {place_of(worst, grid)}; at "
        f"{place_of(finest, grid)} it is {drop_of(finest)}; critical {'tolerance' if grid.adaptive else 'steps'}: "
        f"{critical}"
    )
    if critical.passes is not None:
        ours += f"; from there on, solvers at least as fine differ by {differences(grid, critical.passes)}"
    fine = [entry for entry in under_all(grid, finest.precision) if entry.precision == finest.precision]
    if is_of_one_seed(there):
        shown = mean_drop(worst) > THRESHOLD and all(entry.passes for entry in under_all(grid, finest.precision))
        agrees, told_of = shown if shown or whole else None, ""
    else:
        agrees, told_of = _tested_drop(worst, fine, len(there) - 1)
        agrees = agrees if agrees or whole else None
    apart, brief = apart_because(grid, there), f"{drop_of(worst)} at {place_of(worst, grid)}"
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
    worst = max(there, key=mean_drop)
    ours = f"under {grid.check}, the largest drop is {drop_of(worst)}, at {place_of(worst, grid)}"
    apart = apart_because(grid, there)
    holds: bool | None = mean_drop(worst) <= THRESHOLD
    if not is_of_one_seed(there):
        largest = against([model.drop for model in worst.trained], THRESHOLD)
        holds = judged(largest.below(), len(there) * largest.above())  # the largest of so many
    agrees = holds if whole or not holds else None
    return Finding(claim=claim, ours=ours, agrees=agrees, case=grid.title, apart=apart, brief=drop_of(worst))


def _own(grid: Grid, whole: bool) -> Finding:
    """No clear dependence: seed by seed, the line through a grid's accuracies does not rise or fall, and all means are
    within the threshold by which accuracies are the same."""
    claim = "tested with the training solver, accuracy shows no clear dependence on the step or tolerance"
    if len(there := grid.trained()) < 2:
        return Finding(claim=claim, ours=TOO_FEW, agrees=None, case=grid.title, brief="too few")
    low, high = (end(there, key=lambda entry: fmean(entry.own)) for end in (min, max))
    told_of = (f"{mean_and_spread(entry.own)} at {place_of(entry, grid)}" for entry in (low, high))
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
    coarse, fine, ours = halves(grid)
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
