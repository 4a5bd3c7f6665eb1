"""What numbers of seeds can tell: intervals of shares, many tests at once, how well a number tells two kinds apart."""

from collections.abc import Sequence
from math import comb, sqrt

import numpy as np
from numpy.typing import NDArray

CONFIDENT = 1.96
"""Standard deviations on either side: a 95% interval."""
RESAMPLES = 2000


def wilson(found: int, of: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share.

    >>> tuple(round(end, 3) for end in wilson(10, 10))
    (0.722, 1.0)
    """
    if of == 0:
        return 0.0, 1.0
    share, z = found / of, CONFIDENT * CONFIDENT / of
    centre, half = share + z / 2, sqrt(z * share * (1 - share) + z * z / 4)
    return max(0.0, (centre - half) / (1 + z)), min(1.0, (centre + half) / (1 + z))


def fisher(found: int, of: int, others_found: int, of_others: int) -> float:
    """Fisher's exact test: the two-sided p-value of two shares.

    >>> round(fisher(6, 10, 0, 10), 3)
    0.011
    """
    all_found = found + others_found
    ways = [comb(of, k) * comb(of_others, all_found - k) for k in range(min(of, all_found) + 1)]
    as_rare = sum(each for each in ways if each <= ways[found])
    return as_rare / comb(of + of_others, all_found)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, in the order given."""
    order, corrected, worst = np.argsort(p_values), [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = worst
    return corrected


def told_apart(values: Sequence[float], positive: Sequence[bool]) -> float | None:
    """The chance that a number is larger for one of the positive than for one of the others (the area under the ROC
    curve); None where there is only one kind. Equal numbers count a half."""
    own = np.asarray(values, dtype=np.float64)
    chosen = np.asarray(positive, dtype=bool)
    yes, no = own[chosen], own[~chosen]
    if not yes.size or not no.size:
        return None
    larger, equal = yes[:, None] > no, yes[:, None] == no
    return float((larger + equal / 2).mean())


def told_apart_within(
    values: Sequence[float], positive: Sequence[bool], clusters: Sequence[int]
) -> tuple[float, float] | None:
    """A 95% interval of that, by a bootstrap of clusters (seeds), whose members are not independent."""
    own, chosen, of = np.asarray(values), np.asarray(positive), np.asarray(clusters)
    places = {cluster: np.flatnonzero(of == cluster) for cluster in np.unique(of)}
    stream, found = np.random.default_rng(0), list[float]()
    for _ in range(RESAMPLES):
        drawn: NDArray[np.int64] = np.concatenate([places[c] for c in stream.choice(list(places), len(places))])
        area = told_apart(own[drawn].tolist(), chosen[drawn].tolist())
        if area is not None:
            found.append(area)
    return (float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))) if found else None


def best_threshold(values: Sequence[float], positive: Sequence[bool]) -> float | None:
    """The number above which most of the positive lie and below which most of the others do: where both shares, added,
    are largest. None where there is only one kind."""
    own, chosen = np.asarray(values, dtype=np.float64), np.asarray(positive, dtype=bool)
    if chosen.all() or not chosen.any():
        return None
    places = np.unique(own)
    middles = (places[:-1] + places[1:]) / 2 if len(places) > 1 else places
    told = [(own[chosen] > place).mean() + (own[~chosen] <= place).mean() for place in middles]
    return float(middles[int(np.argmax(told))])
