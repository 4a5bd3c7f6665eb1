"""Intervals of paired differences."""

from math import inf

import numpy as np
import pytest

from windermere.auditing.statistics import Gap, in_units, mean_ratio, over_times, paired_gap


def test_no_difference_among_few_samples_does_not_prove_that_there_is_none() -> None:
    few, many = (paired_gap(np.ones(n), np.ones(n)) for n in (10, 1000))
    assert few.exceeds(0.1) is None
    assert many.exceeds(0.1) is False


def test_the_interval_covers_the_true_difference_about_95_times_in_100() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        first = (generator.random(200) < 0.9).astype(float)
        flipped = generator.random(200) < 0.12
        second = np.where(flipped, 1 - first, first)
        gap = paired_gap(first, second)
        covered += gap.low <= 0.9 - (0.9 * 0.88 + 0.1 * 0.12) <= gap.high
    assert 0.92 <= covered / 400 <= 0.98


def test_the_interval_of_right_and_wrong_is_agresti_and_mins_worked_out_by_hand() -> None:
    """Of 100 samples 10 gained and 4 lost; half a sample more in each of the four cells makes 10.5, 4.5 and 102."""
    first, second = np.zeros(100), np.zeros(100)
    first[:10], second[10:14] = 1, 1
    gap, half = paired_gap(first, second), 1.96 * np.sqrt(15 - 6**2 / 102) / 102
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.06, 6 / 102 - half, 6 / 102 + half), rel=1e-12)


def test_a_difference_counts_in_either_direction() -> None:
    worse, better = np.zeros(500), np.ones(500)
    assert paired_gap(worse, better).exceeds(0.1) is True
    assert paired_gap(better, worse).exceeds(0.1) is True


def test_more_samples_than_were_predicted_settle_it() -> None:
    generator = np.random.default_rng(1)
    first = np.ones(200)
    second = (generator.random(200) > 0.13).astype(float)
    gap = paired_gap(first, second)
    assert gap.exceeds(0.1) is None
    more = int(gap.more_samples(0.1))
    assert paired_gap(second, first).more_samples(0.1) == more
    copies = -(-(200 + more) // 200) + 1
    assert paired_gap(np.tile(first, copies), np.tile(second, copies)).exceeds(0.1) is not None


def test_the_interval_of_five_real_scores_is_worked_out_by_hand() -> None:
    """Differences of 0 to 4: mean 2, standard error sqrt 0.5, and Student's 2.776 for 4 degrees of freedom."""
    gap = paired_gap(np.arange(1.0, 6.0), np.ones(5))
    assert (gap.low, gap.high) == pytest.approx((2 - 2.776 * 0.5**0.5, 2 + 2.776 * 0.5**0.5), abs=0.01)


def test_three_real_scores_are_as_sure_as_they_say() -> None:
    """The normal interval would cover the truth 81 times in 100."""
    draws = np.random.default_rng(3).normal(1.0, 1.0, (400, 3))
    gaps = [paired_gap(each, np.zeros(3)) for each in draws]
    assert sum(gap.low <= 1 <= gap.high for gap in gaps) >= 0.92 * 400


def test_real_scores_get_the_normal_interval() -> None:
    generator = np.random.default_rng(2)
    first, second = generator.normal(1.0, 1.0, 1000), generator.normal(0.5, 1.0, 1000)
    gap = paired_gap(first, second)
    assert gap.value == pytest.approx(0.5, abs=0.15)
    assert gap.high - gap.low == pytest.approx(2 * 1.96 * np.sqrt(2 / 1000), rel=0.1)


@pytest.mark.parametrize("threshold", [5e-324, 1e-200, 1e308])
def test_the_samples_that_a_threshold_takes_are_a_number_however_extreme_it_is(threshold: float) -> None:
    """Squares of what lies between overflow."""
    more = paired_gap(np.ones(10), np.ones(10)).more_samples(threshold)
    assert more == (inf if threshold < 1 else 0)


def test_the_interval_of_a_ratio_of_errors_covers_the_truth_about_as_often_as_it_says() -> None:
    """Log-normal errors, of which a few are huge, and another solver's, 1.3 times as large with noise of their own."""
    generator, covered = np.random.default_rng(0), 0
    for _ in range(300):
        own = generator.lognormal(0.0, 1.0, 200)
        other = 1.3 * own * generator.lognormal(0.0, 0.5, 200) / np.exp(0.125)
        ratio = mean_ratio(other, own)
        covered += ratio.low <= 1.3 <= ratio.high
    assert 0.88 <= covered / 300 <= 0.98


@pytest.mark.parametrize(
    ("above", "below", "interval"),
    [
        ([1e-14, *[0.0] * 19], [1.0] * 20, (0.0, 1e-12)),
        ([1.0] * 20, [1.0, *[0.0] * 19], (1.0, inf)),
        ([1.0] * 20, [0.0] * 20, (inf, inf)),
        ([0.0] * 20, [1.0] * 20, (0.0, 0.0)),
    ],
)
def test_a_ratio_of_errors_of_which_most_are_zero_has_an_interval(
    above: list[float], below: list[float], interval: tuple[float, float]
) -> None:
    ratio = mean_ratio(np.array(above), np.array(below))
    low, high = interval
    assert low <= ratio.low <= ratio.value <= ratio.high <= high


def test_times_without_a_score_are_no_scores_of_nothing() -> None:
    """Nothing was measured in the second half: as blocks of time these would halve the difference."""
    values = np.ones((3, 40))
    values[:, 20:] = np.nan
    assert paired_gap(values, np.zeros((3, 40))).value == 1.0


def test_errors_that_overflow_for_a_while_are_still_compared_with_others() -> None:
    above = np.full((5, 40), 2.0)
    above[:, 20:] = np.inf
    ratio = mean_ratio(above, np.ones((5, 40)))
    assert (ratio.value, ratio.samples, ratio.blocks) == (2.0, 5, False)


def test_a_ratio_that_a_few_samples_make_has_an_interval_from_nothing_on() -> None:
    """One resample in twenty has none of the three."""
    above = np.zeros(300)
    above[:3] = 1.0
    assert mean_ratio(above, np.ones(300)).low == 0


def test_the_samples_that_are_missing_are_counted_by_the_end_that_is_open() -> None:
    skew = Gap(value=0.2, low=0.0, high=0.21, samples=100)
    assert skew.exceeds(0.1) is None
    assert skew.more_samples(0.1) == 300  # half of an end of 0.2 is 0.1


def test_few_samples_with_scores_by_time_are_judged_by_blocks_and_many_by_sample() -> None:
    assert in_units(np.ones((3, 40)))[1]
    assert len(in_units(np.ones((3, 40)))[0]) == 21
    assert not in_units(np.ones((20, 40)))[1]
    assert not in_units(np.ones((3, 5)))[1]


def test_blocks_that_persist_widen_their_interval() -> None:
    generator = np.random.default_rng(0)
    independent = generator.normal(size=(1, 400))
    walk = np.cumsum(independent, axis=1)
    walk = (walk - walk.mean()) / walk.std()
    wide, narrow = (paired_gap(each, np.zeros((1, 400))) for each in (walk, independent))
    assert wide.blocks
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)


def test_what_is_not_a_number_is_left_out_of_the_means() -> None:
    values = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, 5.0]])
    assert over_times(values).tolist() == [2.0, 5.0]


def test_nothing_over_nothing_is_the_same() -> None:
    ratio = mean_ratio(np.zeros(30), np.zeros(30))
    assert (ratio.value, ratio.low, ratio.high) == (1.0, 1.0, 1.0)
    assert mean_ratio(np.full(30, 1e-9), np.zeros(30), floor=1e-6).value == 1.0


@pytest.mark.parametrize("samples", [30, 1000])
def test_hits_at_each_time_have_the_interval_of_their_means(samples: int) -> None:
    """A sample that is right at 9 of 10 times is not wrong: all samples differ by a tenth, and none by more."""
    first, second = np.ones((samples, 10)), np.ones((samples, 10))
    second[:, 3] = 0
    gap = paired_gap(first, second)
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.1, 0.1, 0.1))


def test_samples_that_are_right_or_wrong_at_all_times_are_right_or_wrong() -> None:
    first, second = np.ones(50), np.repeat([1.0, 0.0], 25)
    whole, by_time = paired_gap(first, second), paired_gap(np.tile(first[:, None], 3), np.tile(second[:, None], 3))
    assert (by_time.low, by_time.high) == (whole.low, whole.high)
