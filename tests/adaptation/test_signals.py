"""Signals: how far apart two outputs are, and which numbers a score may hold."""

from math import inf, nan
from typing import Any

import pytest
import torch

from windermere.adaptation import Score
from windermere.adaptation.signals import error_ratio, moved_mass, relative_distance
from windermere.errors import UsageError


def logits(*rows: tuple[float, ...]) -> torch.Tensor:
    """Of given probabilities."""
    return torch.tensor(rows, dtype=torch.float64).log()


def test_of_a_sure_model_the_mass_that_moves_is_the_total_variation() -> None:
    sure = logits((1.0, 1e-300), (1e-300, 1.0))
    assert float(moved_mass(sure, logits((0.9, 0.1), (1e-300, 1.0)))) == pytest.approx(0.05)
    three = torch.eye(3, dtype=torch.float64).clamp(min=1e-300).log()
    assert float(moved_mass(three, three.roll(1, dims=0))) == pytest.approx(1.0)


@pytest.mark.parametrize("ones", [1, 13, 64, 127])
def test_of_a_sure_model_it_is_the_same_however_its_classes_are_balanced(ones: int) -> None:
    first = torch.arange(128) < ones
    sure = torch.stack([first, ~first], dim=-1).double().clamp(min=1e-300).log()
    moved = sure.clone()
    moved[:2] = sure[:2].flip(-1)
    assert float(moved_mass(sure, moved)) == pytest.approx(2 / 128)


def test_a_model_that_says_nothing_is_held_to_next_to_nothing() -> None:
    nothing = torch.zeros(8, 2, dtype=torch.float64)
    assert float(moved_mass(nothing, nothing)) == 0.0
    assert float(moved_mass(nothing, nothing + torch.tensor([1e-7, 0.0]))) < 1e-4
    one_class = torch.tensor([[100.0, -100.0]] * 8, dtype=torch.float64)
    assert float(moved_mass(one_class, one_class.roll(1, dims=-1))) == pytest.approx(1.0)


def test_of_an_unsure_model_it_is_relative_to_what_tells_inputs_apart() -> None:
    unsure = logits((0.51, 0.49), (0.49, 0.51))
    assert float(moved_mass(unsure, logits((0.509, 0.491), (0.49, 0.51)))) == pytest.approx(0.0005 / 0.02)


def test_signals_go_member_by_member_and_need_something_to_compare() -> None:
    a, b = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for signal in (moved_mass, relative_distance):
        alone = torch.stack([signal(a[s], b[s]) for s in range(3)])
        torch.testing.assert_close(signal(a, b, members=True), alone)
        with pytest.raises(UsageError, match=r"told apart: give \[members, samples, values\]"):
            signal(a[0], b[0], members=True)
        with pytest.raises(UsageError, match="told apart"):
            signal(a[0, :1], b[0, :1])
        with pytest.raises(UsageError, match=r"outputs must be tensors, not ndarray and Tensor: call torch.as_tensor"):
            signal(a.numpy(), b)
    with pytest.raises(UsageError, match="told apart"):
        moved_mass(a[0, :, :1], b[0, :, :1])


@pytest.mark.parametrize("mean", [0.0, 50.0])
def test_outputs_that_shift_by_a_tenth_of_their_spread_are_a_tenth_apart_wherever_they_lie(mean: float) -> None:
    outputs = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]], dtype=torch.float64) + mean
    assert float(relative_distance(outputs, outputs + 0.1)) == pytest.approx(0.1)


def test_a_score_that_is_not_one_number_is_named() -> None:
    with pytest.raises(UsageError, match=r"a score's distance is one number, not something of shape \[5\]"):
        Score(value=0.5, distance=torch.zeros(5))
    with pytest.raises(UsageError, match="a score's value is one number, not something of type str"):
        Score(value="high")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a score's value is one number, not something of type NoneType"):
        Score(value=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a score's evaluations is one number, not something of type NoneType"):
        Score(value=0.5, evaluations=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a score's value is one number, not something of type int"):
        Score(value=10**400)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"distance": -0.1}, "distance is at least 0, not -0.1"),
        ({"steps": -1}, "steps is at least 0, not -1"),
        ({"evaluations": -1}, "evaluations is at least 0, not -1"),
        ({"steps": 2.5}, "steps is a whole number, not 2.5"),
        ({"evaluations": inf}, "evaluations is a whole number, not inf"),
        ({"steps": nan}, "steps is a whole number, not nan"),
    ],
)
def test_a_score_holds_no_number_that_a_solve_cannot_have(numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=f"a score's {words}"):
        Score(value=0.5, **numbers)


def test_a_distance_of_pixels_or_of_unlike_outputs_is_refused_rather_than_taken_over_other_axes() -> None:
    pixels = torch.randn(5, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(UsageError, match=r"\[5, 2, 3, 3\] have too many axes.*movedim\(1, -1\)\.flatten\(0, -2\)"):
        moved_mass(pixels, pixels)
    for signal in (moved_mass, relative_distance):
        with pytest.raises(UsageError, match=r"shapes \[4, 2\] and \[4, 3\] cannot be compared"):
            signal(torch.zeros(4, 2), torch.zeros(4, 3))
    flat = pixels.movedim(1, -1).flatten(0, -2)
    assert float(moved_mass(flat, flat)) == 0.0


def test_a_series_is_not_taken_for_an_ensemble_and_is_told_how_to_become_vectors() -> None:
    """[samples, times, values] or [times, samples, values]: either could be meant, and an ensemble as well."""
    times, samples = 5, 6
    series = torch.randn(samples, times, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for signal in (moved_mass, relative_distance):
        with pytest.raises(UsageError, match=r"\[6, 5, 2\] have too many axes to know .* need members=True"):
            signal(series, series)
    with pytest.raises(UsageError, match=r"by outputs\.flatten\(1\), .* by outputs\.movedim\(1, 0\)\.flatten\(1\)"):
        relative_distance(series, series)
    shifted, time_first = 1.1 * series + 0.1, series.movedim(1, 0)
    told = relative_distance(series.flatten(1), shifted.flatten(1))
    assert told.shape == ()
    assert told == relative_distance(time_first.movedim(1, 0).flatten(1), shifted.flatten(1))


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def test_an_error_ratio_is_how_far_outputs_move_relative_to_the_models_own_error() -> None:
    targets, error, moved = torch.randn(3, 6, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trained, checked = targets + 0.1 * error, targets + 0.1 * error + 0.02 * moved
    ratio = float(error_ratio(trained, checked, targets))
    assert ratio == pytest.approx(0.2 * rms(moved) / rms(error))
    assert float(error_ratio(trained - targets, checked - targets)) == pytest.approx(ratio)
    assert 1 - ratio <= rms(checked - targets) / rms(trained - targets) <= 1 + ratio
    each = error_ratio(trained, checked, targets, members=True)
    assert each.tolist() == pytest.approx([float(error_ratio(trained[s], checked[s], targets[s])) for s in range(6)])


def test_an_exact_model_is_not_asked_for_more_than_float32_resolves() -> None:
    targets = torch.linspace(1, 2, 8)[:, None]
    assert float(error_ratio(targets, targets + 1e-7, targets)) < 0.1
    assert float(error_ratio(targets, targets + 1e-3, targets)) > 100


def test_an_error_ratio_of_other_shapes_is_refused_rather_than_broadcast() -> None:
    outputs = torch.zeros(4, 1)
    with pytest.raises(UsageError, match=r"shape \[4, 1\] need targets of the same shape, not targets of shape \[4\]"):
        error_ratio(outputs, outputs, torch.zeros(4))
    with pytest.raises(UsageError, match="need targets of the same shape, not float"):
        error_ratio(outputs, outputs, 0.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"shapes \[4, 1\] and \[4\] cannot be compared"):
        error_ratio(outputs, torch.zeros(4))
