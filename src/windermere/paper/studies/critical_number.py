"""At how many steps models begin to pass the check, between the numbers that were trained, and how sure that is."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from math import comb, log2
from statistics import fmean

import numpy as np

from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.critical_rows import CheckRow

GROUP = 5
"""As many seeds as the paper has."""
RESAMPLES = 2000
Gaps = Mapping[int, Mapping[int, float]]
"""By numbers of steps and seeds."""


def gaps_by_steps(rows: Sequence[CheckRow], of: Callable[[CheckRow], float]) -> Gaps:
    """The gaps of those numbers of steps, from coarse to fine, that have the most seeds."""
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row.steps or 0, {})[row.seed] = of(row)
    most = max(map(len, found.values()), default=0)
    return {steps: gaps for steps, gaps in sorted(found.items()) if len(gaps) == most}


def seeds_of_all(gaps: Gaps) -> list[int]:
    return sorted(set.intersection(*(set(own) for own in gaps.values()))) if gaps else []


def crossing(gaps: Gaps, seeds: Sequence[int] | None = None) -> float | None:
    """Where the line through the mean gaps, over the logarithm of steps, last falls to the threshold; of some seeds,
    which may be there more than once."""
    chosen = seeds_of_all(gaps) if seeds is None else seeds
    if not chosen:
        return None
    means = [(log2(steps), fmean(own[seed] for seed in chosen)) for steps, own in gaps.items()]
    for (coarse, above), (fine, below) in reversed(list(pairwise(means))):
        if above > THRESHOLD >= below:
            return float(2 ** (coarse + (fine - coarse) * (above - THRESHOLD) / (above - below)))
    return None


def crossing_within(gaps: Gaps) -> tuple[float, float]:
    """A 95% interval of that, by a bootstrap of seeds."""
    seeds, stream = seeds_of_all(gaps), np.random.default_rng(0)
    drawn = (crossing(gaps, stream.choice(seeds, len(seeds)).tolist()) for _ in range(RESAMPLES))
    found = [place for place in drawn if place is not None]
    return float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))


def failing_groups(gaps: Sequence[float]) -> float:
    """The share of all groups of five seeds whose mean gap is above the threshold."""
    fail = sum(sum(group) > GROUP * (THRESHOLD + 1e-9) for group in combinations(gaps, GROUP))
    return fail / comb(len(gaps), GROUP)
