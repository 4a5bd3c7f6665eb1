"""Numbers are written with the digits that they need."""

import pytest

from windermere.report.numbers import Digits, rough, share, two_digits


@pytest.mark.parametrize(
    ("threshold", "written"),
    [
        (0.1, {1.0: "1.000", 0.645: "0.645", 0.0025: "0.003", 0.0: "0.000"}),
        (0.05, {0.64512: "0.645"}),
        (1e-4, {0.64512: "0.64512"}),
    ],
)
def test_accuracies_have_three_decimals_and_more_only_for_a_threshold_below_them(
    threshold: float, written: dict[float, str]
) -> None:
    assert {value: Digits(threshold, shares=True)(value) for value in written} == written


@pytest.mark.parametrize(
    ("threshold", "written"),
    [
        (0.000123927, {2.21e-5: "2.21e-05", 0.02712345: "0.02712", 0.0: "0.00000"}),
        (0.3, {-4.65789: "-4.658", 0.0123456: "0.0123", 1e-7: "1e-07"}),
        (50.0, {1234.56: "1235", 0.9123: "0.912", 12.34: "12.3"}),
        (0.0, {0.5: "0.500"}),
        (0.1, {1.23456789e30: "1.23457e+30", float("inf"): "inf"}),
    ],
)
def test_other_scores_have_three_digits_and_those_that_tell_them_apart_by_the_threshold(
    threshold: float, written: dict[float, str]
) -> None:
    assert {value: Digits(threshold, shares=False)(value) for value in written} == written


@pytest.mark.parametrize("threshold", [10.0**k for k in range(-9, 9)])
@pytest.mark.parametrize("score", [0.0, 1.0, -7.0, 12.0])
def test_scores_that_the_threshold_tells_apart_are_never_written_alike(threshold: float, score: float) -> None:
    digits = Digits(threshold, shares=False)
    assert digits(score) != digits(score + 1.01 * threshold)
    assert digits(score) != digits(score - 1.01 * threshold)


@pytest.mark.parametrize(
    ("threshold", "limit"), [(0.1, "0.1"), (0.000123927, "0.000124"), (0.3, "0.3"), (50.0, "50"), (12345.0, "12345")]
)
def test_a_threshold_is_written_in_three_digits(threshold: float, limit: str) -> None:
    assert Digits(threshold, shares=False).limit == limit


@pytest.mark.parametrize(
    ("value", "written"), [(0.0031, "0.0031"), (99.6, "100"), (453.0, "450"), (-4230.0, "-4,200"), (2.1e7, "2.1e+07")]
)
def test_sizes_have_two_digits_and_seldom_powers_of_ten(value: float, written: str) -> None:
    assert two_digits(value) == written


def test_a_gap_shows_its_sign() -> None:
    assert Digits(0.1, shares=True)(0.0, signed=True) == "+0.000"
    assert Digits(0.1, shares=False)(-1e-5, signed=True) == "-1e-05"


def test_what_is_not_known_is_a_dash() -> None:
    assert {Digits(0.1, shares=True)(None), share(None), rough(None), rough(float("nan"))} == {"-"}
