"""The tests by which claims are judged, beside SciPy's."""

from math import inf

import pytest
from scipy import special, stats

from windermere.paper.studies.statistics import (
    LEVEL,
    Sample,
    against,
    between_groups,
    f_tail,
    incomplete_beta,
    slope,
    student_tail,
    surely,
    told,
    welch,
)

ONE, OTHER = [0.981, 0.994, 0.95, 0.99, 0.97], [0.99, 0.96, 0.9]


@pytest.mark.parametrize("a", [0.5, 1.0, 2.3, 40.0])
@pytest.mark.parametrize("b", [0.5, 3.0, 17.5])
@pytest.mark.parametrize("x", [0.0, 1e-9, 0.2, 0.5, 0.9, 1 - 1e-9, 1.0])
def test_the_incomplete_beta_function_is_scipys(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("t", [-inf, -30.0, -1.2, 0.0, 0.3, 4.6, 30.0, inf])
@pytest.mark.parametrize("freedom", [1, 2.63, 4, 30])
def test_the_tail_of_students_t_is_scipys(t: float, freedom: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-9, abs=1e-15)


def test_the_tail_of_f_is_scipys() -> None:
    assert f_tail(3.7, 4, 5) == pytest.approx(stats.f.sf(3.7, 4, 5), rel=1e-11)
    assert f_tail(inf, 4, 5) == 0


def test_welchs_test_is_scipys() -> None:
    found, theirs = welch(Sample.of(ONE), Sample.of(OTHER)), stats.ttest_ind(ONE, OTHER, equal_var=False)
    assert found.p == pytest.approx(theirs.pvalue)
    assert found.freedom == pytest.approx(theirs.df)
    assert found.above() == pytest.approx(stats.ttest_ind(ONE, OTHER, equal_var=False, alternative="greater").pvalue)


def test_a_mean_is_compared_with_a_number_as_scipy_does() -> None:
    assert against(ONE, 0.99).p == pytest.approx(stats.ttest_1samp(ONE, 0.99).pvalue)


def test_equivalence_is_two_one_sided_tests() -> None:
    margin = 0.05
    lower = stats.ttest_1samp([x + margin for x in ONE], 0.97, alternative="greater").pvalue
    upper = stats.ttest_1samp([x - margin for x in ONE], 0.97, alternative="less").pvalue
    assert against(ONE, 0.97).within(margin) == pytest.approx(max(lower, upper))


def test_groups_are_compared_as_scipy_does() -> None:
    groups = [[1.0, 1.2], [0.9, 1.4], [2.0, 2.2]]
    assert between_groups(groups) == pytest.approx(stats.f_oneway(*groups).pvalue)
    assert between_groups([[1.0, 1.0], [2.0, 2.0]]) == 0
    assert between_groups([[1.0, 1.0], [1.0, 1.0]]) == 1


def test_a_slope_is_scipys() -> None:
    assert slope([0, 1, 2, 5], [1.0, 0.8, 0.9, 0.1]) == pytest.approx(
        stats.linregress([0, 1, 2, 5], [1, 0.8, 0.9, 0.1])[0]
    )


def test_samples_that_do_not_vary_differ_or_do_not() -> None:
    same, other = Sample(0.9, 0.0, 3), Sample(0.8, 0.0, 3)
    assert (welch(same, same).p, welch(same, other).p) == (1, 0)
    assert (welch(same, same).within(0.01), welch(same, other).within(0.01)) == (0, 1)


@pytest.mark.parametrize(("p", "words"), [(1e-5, "p < 0.001"), (0.0432, "p = 0.043"), (0.456, "p = 0.46")])
def test_p_values_have_as_many_digits_as_tell_something(p: float, words: str) -> None:
    assert told(p) == words


def test_a_limit_is_surely_passed_where_a_one_sided_test_says_so_of_every_group() -> None:
    assert surely(0.9, [0.99, 0.98, 0.97], [0.95, 0.96, 0.95]) is True
    assert surely(0.9, [0.99, 0.98, 0.97], [0.99, 0.6, 0.95]) is None
    assert surely(0.9, [0.99, 0.98, 0.97], [0.5, 0.52, 0.51]) is False
    assert surely(0.9, [0.91]) is True  # of one seed, by itself


def test_that_one_of_many_groups_is_below_a_limit_is_corrected_for_how_many_there_are() -> None:
    above, below = [0.99, 0.98, 0.97], [0.88, 0.85, 0.87]
    assert LEVEL / 2 < stats.ttest_1samp(below, 0.9, alternative="less").pvalue < LEVEL
    assert surely(0.9, below) is False
    assert surely(0.9, above, below) is None
