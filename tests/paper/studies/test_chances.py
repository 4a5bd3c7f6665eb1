"""What numbers of seeds can tell, against what is known otherwise."""

import pytest
from scipy import stats

from windermere.paper.studies.chances import best_threshold, fisher, holm, told_apart, told_apart_within, wilson


@pytest.mark.parametrize(("found", "of"), [(0, 5), (3, 10), (10, 10), (27, 30)])
def test_wilsons_interval_is_scipys(found: int, of: int) -> None:
    known = stats.binomtest(found, of).proportion_ci(method="wilson")
    assert wilson(found, of) == pytest.approx((known.low, known.high), abs=1e-4)


def test_of_no_seeds_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("counts", [(5, 5, 0, 5), (3, 5, 2, 5), (0, 4, 0, 7), (6, 10, 1, 30)])
def test_fishers_test_is_scipys(counts: tuple[int, int, int, int]) -> None:
    a, n, b, m = counts
    known = stats.fisher_exact([[a, n - a], [b, m - b]]).pvalue
    assert fisher(*counts) == pytest.approx(known)


def test_holm_corrects_the_smallest_most_and_keeps_their_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_a_number_tells_apart_as_often_as_mann_and_whitney_count() -> None:
    yes, no = [0.9, 0.4, 0.7], [0.1, 0.4, 0.5, 0.2]
    known = stats.mannwhitneyu(yes, no).statistic / 12
    assert told_apart([*yes, *no], [True] * 3 + [False] * 4) == pytest.approx(known)
    assert told_apart(yes, [True] * 3) is None


def test_its_interval_holds_it_and_shrinks_to_it_where_seeds_are_alike() -> None:
    values, tied = [0.9, 0.1, 0.8, 0.3, 0.4, 0.5], [True, False] * 3
    low, high = told_apart_within(values, tied, [0, 0, 1, 1, 2, 2]) or (0, 0)
    assert low < (told_apart(values, tied) or 0) <= high
    assert told_apart_within([1.0, 0.0] * 3, tied, [0, 0, 1, 1, 2, 2]) == (1.0, 1.0)


def test_the_best_threshold_lies_between_the_kinds_it_tells_apart() -> None:
    assert best_threshold([0.1, 0.2, 0.6, 0.8], [False, False, True, True]) == pytest.approx(0.4)
    assert best_threshold([0.1, 0.7, 0.6, 0.8], [False, False, True, True]) == pytest.approx(0.35)
    assert best_threshold([0.1, 0.2], [True, True]) is None
