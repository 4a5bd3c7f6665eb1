"""What the findings of grids say of entries and seeds: means and spreads, drops, halves, and where an entry stands."""

from collections.abc import Iterable, Sequence
from itertools import dropwhile
from statistics import fmean, stdev

from windermere.paper.studies.critical import THRESHOLD, Entry, Grid, Model, short_number
from windermere.paper.studies.rows import grouped
from windermere.paper.studies.study import ONE_SEED, seed_count

CHANCE = 0.5
"""The accuracy of guessing on spheres. It stands for a seed that diverged, or on which its own solver fails."""


def under_all(grid: Grid, coarsest: float) -> list[Entry]:
    """The entries trained with this precision or a finer one, under each solver of equal or smaller error."""
    by_check = (grid.entries(check) for check in grid.finer_checks)
    fine = (dropwhile(lambda entry: entry.precision != coarsest, same) for same in by_check)
    return [entry for same in fine for entry in same if entry.trained]


def differences(grid: Grid, coarsest: float) -> str:
    """How far at most: a mean may hide a seed."""
    found = under_all(grid, coarsest)
    mean, one = max(e.gap for e in found), max(abs(model.drop) for e in found for model in e.trained)
    several = any(len(entry.trained) > 1 for entry in found)
    return f"{mean:.3f} at most" + (f" in the mean over seeds, and by {one:.3f} for one seed" if several else "")


def halves(grid: Grid) -> tuple[dict[int, float], dict[int, float], str]:
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


def of_several_seeds(grid: Grid) -> list[Entry]:
    """The entries of more than one seed, where there are two of them; else all that any seed trained."""
    several = [entry for entry in grid.trained() if len(entry.trained) > 1]
    return several if len(several) > 1 else grid.trained()


def is_of_one_seed(there: Sequence[Entry]) -> bool:
    return any(len(entry.trained) < 2 for entry in there)


def apart_because(grid: Grid, there: Sequence[Entry]) -> str:
    return grid.apart or (ONE_SEED if is_of_one_seed(there) else "")


def mean_drop(entry: Entry) -> float:
    return fmean(model.drop for model in entry.trained)


def drop_of(entry: Entry) -> str:
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


def place_of(entry: Entry, grid: Grid) -> str:
    if grid.adaptive:
        return f"tolerance {short_number(entry.precision)}"
    return "1 step" if entry.precision == 1 else f"{entry.precision:g} steps"
