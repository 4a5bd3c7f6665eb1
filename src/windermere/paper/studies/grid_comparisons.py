"""What the grids of several studies say together: claims of Appendix B about MNIST, and all of them in one figure."""

from collections.abc import Collection, Iterable, Sequence
from math import inf
from statistics import fmean

from windermere.paper.figures.losses_figure import LossCurve, LossPanel
from windermere.paper.studies.critical import Critical, Grid, did_train, grids_in
from windermere.paper.studies.grid_entries import mean_and_spread, seeds_of
from windermere.paper.studies.grid_findings import LEAST_DECLINE
from windermere.paper.studies.rows import GridRow, grouped
from windermere.paper.studies.statistics import Sample, judged, welch
from windermere.paper.studies.study import ONE_SEED, Finding


def lower_than_with_fixed_steps(
    adaptive: Sequence[GridRow], fixed: Sequence[GridRow], *, unfinished: Collection[str]
) -> Finding:
    """Overall: of all entries, whatever their precision, each as the mean of its seeds that trained. Coarse ones, which
    may have more seeds, count no more than fine ones."""
    ours, theirs = (_by_entry(rows) for rows in (adaptive, fixed))
    some, others = ([fmean(entry) for entry in grid] for grid in (ours, theirs))
    return Finding(
        claim="with adaptive solvers accuracy is lower, overall, than with fixed steps",
        ours=f"tested with the training solver, {_over_entries(ours)} against {_over_entries(theirs)}",
        agrees=None if unfinished else _is_lower(some, others),
        case="MNIST",
        apart=ONE_SEED if max(map(len, ours), default=1) == 1 else "",
    )


def _is_lower(some: Sequence[float], others: Sequence[float]) -> bool | None:
    """By Welch's test over entries, and by enough to speak of."""
    if len(some) < 2 or len(others) < 2:
        return None
    by = welch(Sample.of(others), Sample.of(some))
    return judged(by.above() if by.value > LEAST_DECLINE else 1.0, by.below(LEAST_DECLINE))


def _by_entry(rows: Sequence[GridRow]) -> list[list[float]]:
    trained = ((row.run, row.accuracy) for row in rows if row.own and row.accuracy is not None and did_train(row))
    return list(grouped(trained).values())


def _over_entries(grid: Sequence[Sequence[float]]) -> str:
    if len(grid) > 1:
        return f"{mean_and_spread([fmean(entry) for entry in grid])} over {len(grid)} entries"
    return mean_and_spread(grid[0]) if grid else "none yet"


def fewer_critical_steps(mnist: Sequence[GridRow], *others: Sequence[GridRow], unfinished: Collection[str]) -> Finding:
    """Whether Euler's method has fewer critical steps on MNIST than on the other data sets."""
    own, *rest = ([grid for name, grid in grids_in(rows).items() if _is_euler(name)] for rows in (mnist, *others))
    grids = [grid for some in (own, *rest) for grid in some if not grid.apart]
    found = {f"{grid.title} ({seeds_of(grid)})": grid.critical() for grid in grids}
    whole = all((own, *rest)) and not any(map(_is_euler, unfinished))
    return Finding(
        claim="the critical number of steps is low (the paper has a 'low critical step size', and thinks that dopri54 "
        "shows no drop there for that reason): we ask whether it is below the others",
        ours="; ".join(f"{name}: {critical}" for name, critical in found.items()) or "no grid of Euler's is there",
        agrees=_is_below_all(*found.values()) if whole else None,
        case="MNIST",
    )


def _is_euler(grid: str) -> bool:
    return grid.startswith("euler")


def _is_below_all(one: Critical, *others: Critical) -> bool | None:
    """Whether one critical number is below all others; None where the brackets that hold them cannot tell."""
    if all((one.passes or inf) <= (other.fails or 0) for other in others):
        return True
    return False if any((one.fails or 0) >= (other.passes or inf) for other in others) else None


def loss_panels(studies: Iterable[Sequence[GridRow]]) -> list[LossPanel]:
    """A panel for each data set: how much accuracy the finest solver takes from the models that trained."""
    curves = ((grid.name, _loss_curve(grid)) for rows in studies for grid in grids_in(rows).values())
    panels = grouped((name, curve) for name, curve in curves if curve.costs)
    return [LossPanel(title=name, curves=of_panel) for name, of_panel in panels.items()]


def _loss_curve(grid: Grid) -> LossCurve:
    there, costs = grid.trained(), {row.key: row.cost or 0.0 for row in grid.rows if row.own}
    return LossCurve(
        method=grid.first.method,
        costs=[fmean(costs[model.run, model.seed] for model in entry.trained) for entry in there],
        losses=[[model.drop for model in entry.trained] for entry in there],
    )
