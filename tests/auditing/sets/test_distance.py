"""Distances of sets: what they measure, against slow references and exact values, and how sure they are."""

from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import energy_distance, wasserstein_distance
from torch import Tensor

import windermere as wm
from windermere.auditing.sets import pairs, set_gap
from windermere.errors import AuditError, UnknownNameError, UsageError

KINDS = ("energy", "sliced-wasserstein", "mmd", "frechet")


def normal(n: int, seed: int, width: int = 2) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def folded(mean: float, deviation: float) -> float:
    """E|x| of a normal distribution."""
    ratio = mean / deviation
    return deviation * sqrt(2 / pi) * exp(-(ratio**2) / 2) + mean * erf(ratio / sqrt(2))


def exact_energy(mean: float, deviation: float) -> float:
    """Of N(mean, deviation) from N(0, 1)."""
    return 2 * folded(mean, sqrt(1 + deviation**2)) - folded(0, sqrt(2)) - folded(0, sqrt(2) * deviation)


def test_energy_is_unbiased_and_its_mean_over_all_pairs_is_scipys() -> None:
    x, y = normal(60, 0, 1), normal(50, 1, 1) + 0.4
    found = wm.SetDistance("energy").distance(x, y).value
    with_itself = energy_distance(x[:, 0], y[:, 0]) ** 2
    inner = [float((z - z.T).abs().mean()) for z in (x, y)]
    excluded = sum(mean * (n / (n - 1) - 1) for mean, n in zip(inner, (60, 50), strict=True))
    assert found == pytest.approx(with_itself - excluded, abs=1e-12)


def test_sliced_wasserstein_in_one_dimension_is_scipys_also_for_sets_of_two_sizes() -> None:
    x, y = normal(60, 0, 1), normal(37, 1, 1) * 1.5
    found = wm.SetDistance("sliced-wasserstein").distance(x, y).value
    assert found == pytest.approx(wasserstein_distance(x[:, 0], y[:, 0]), abs=1e-12)


def test_the_mmd_is_that_of_the_kernels_written_out() -> None:
    x, y = normal(40, 0), normal(30, 1) + 0.5
    median = float(torch.pdist(y).median())

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squares = torch.cdist(a, b).square()
        return torch.stack([(-squares / (2 * (f * median) ** 2)).exp() for f in pairs.BANDWIDTHS]).mean(dim=0)

    def inner(a: Tensor) -> float:
        return float((kernel(a, a).sum() - len(a)) / (len(a) * (len(a) - 1)))

    slow = inner(x) + inner(y) - 2 * float(kernel(x, y).mean())
    assert wm.SetDistance("mmd").distance(x, y).value == pytest.approx(slow, abs=1e-12)


def test_the_frechet_distance_is_that_of_two_normal_distributions() -> None:
    x, y = normal(20_000, 0), normal(20_000, 1) * torch.tensor([2.0, 1.0]) + torch.tensor([0.0, 3.0])
    assert wm.SetDistance("frechet").distance(x, y).value == pytest.approx(1 + 9, abs=0.2)


def test_blocks_of_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = normal(100, 0), normal(90, 1)
    whole = wm.SetDistance("mmd").distance(x, y)
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 700)
    parts = wm.SetDistance("mmd").distance(x, y)
    assert [parts.value, parts.low] == pytest.approx([whole.value, whole.low], abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_influences_are_how_the_distance_changes_without_a_sample(kind: str) -> None:
    x, y = normal(200, 0) + 0.5, normal(180, 1)
    target = wm.SetDistance(kind).against(y)
    whole = target.measure(x)
    without = [(target.measure(torch.cat([x[:i], x[i + 1 :]])).value - whole.value) * -199 for i in range(60)]
    mine = (whole.of_generated - whole.of_generated.mean())[:60].numpy()
    assert np.corrcoef(mine, without)[0, 1] > 0.99
    assert float(np.std(without)) == pytest.approx(float(np.std(mine)), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_influences_of_real_samples_are_how_the_distance_changes_without_one(kind: str) -> None:
    x, y = normal(200, 0) * 1.4 + 0.5, normal(180, 1)
    distance = wm.SetDistance(kind)
    whole = distance.against(y).measure(x)
    lost = [distance.distance(x, torch.cat([y[:i], y[i + 1 :]])).value for i in range(60)]
    without = (np.array(lost) - whole.value) * -179
    mine = (whole.of_data - whole.of_data.mean())[:60].numpy()
    # the median, and with it the kernels, moves a little without a sample
    assert np.corrcoef(mine, without)[0, 1] > (0.9 if kind == "mmd" else 0.99)


@pytest.mark.parametrize("kind", KINDS)
def test_two_sets_of_one_distribution_are_seldom_called_different(kind: str) -> None:
    called = 0
    for seed in range(25):
        target = wm.SetDistance(kind).against(normal(150, 2 * seed))
        called += target.measure(normal(100, 2 * seed + 1)).value > target.noise(100)
    assert called <= 5  # one or two are to be expected; more than five have a chance of 0.1%


@pytest.mark.parametrize("kind", KINDS)
def test_a_shifted_set_is_called_different(kind: str) -> None:
    target = wm.SetDistance(kind).against(normal(300, 0))
    assert target.measure(normal(300, 1) + 0.5).value > 3 * target.noise(300)


def test_the_intervals_of_paired_gaps_hold_the_exact_one() -> None:
    exact = exact_energy(0.5, 1.3) - exact_energy(0.4, 1.1)
    held = 0
    for seed in range(60):
        z = normal(200, 2 * seed, 1)
        gap = wm.SetDistance("energy").gap(1.3 * z + 0.5, 1.1 * z + 0.4, normal(200, 2 * seed + 1, 1))
        held += gap.low <= exact <= gap.high
    assert held >= 52  # 57 are to be expected


def test_pairing_makes_a_gap_far_surer_than_the_distances_are() -> None:
    z, data = normal(300, 0), normal(300, 1)
    target = wm.SetDistance("energy").against(data)
    own, other = target.measure(z + 0.5), target.measure(z + 0.49)
    gap, alone = set_gap(own, other), own.interval()
    assert gap.low > 0
    assert gap.high - gap.low < 0.1 * (alone.high - alone.low)


def test_the_same_set_has_no_gap_at_all() -> None:
    z, data = normal(50, 0), normal(50, 1)
    gap = wm.SetDistance("energy").gap(z, z.clone(), data)
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["energy", "sliced-wasserstein"])
def test_everything_is_decided_by_the_seed(kind: str) -> None:
    x, y = normal(100, 0, 3), normal(100, 1, 3)

    def found(seed: int) -> tuple[Any, float]:
        distance = wm.SetDistance(kind, seed=seed)
        return distance.distance(x, y), distance.noise(y, 100)

    assert found(3) == found(3)
    assert found(3)[1] != found(4)[1]


def test_noise_shrinks_as_sets_grow() -> None:
    target = wm.SetDistance("energy").against(normal(400, 0))
    assert target.noise(400) == pytest.approx(target.noise(100) * (2 / 400) / (1 / 100 + 1 / 400))


def test_features_get_samples_as_the_data_are_and_decide_what_is_compared() -> None:
    seen: set[torch.dtype] = set()

    def first_pixel(images: Tensor) -> Tensor:
        seen.add(images.dtype)
        return images[:, 0, 0]

    images = normal(300, 0, 16).reshape(300, 4, 4).float()
    other = images.clone()
    other[:, 1:] += 5
    distance = wm.SetDistance("energy", features=first_pixel)
    assert distance.distance(other.double(), images).value == distance.distance(images, images).value
    assert seen == {torch.float32}


def test_many_features_are_projected_onto_the_same_directions_for_all_sets() -> None:
    x, y = normal(60, 0, 2000), normal(60, 1, 2000)
    near, far = (wm.SetDistance("energy").distance(z, y).value for z in (x, x + 0.5))
    exact = float(2 * torch.cdist(x + 0.5, y).mean() - sum(torch.pdist(z).mean() for z in (x, y)))
    assert far == pytest.approx(exact, rel=0.15)
    assert abs(near) < 0.1 * far


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: wm.SetDistance("enrgy"), UnknownNameError, "did you mean 'energy'"),
        (lambda: wm.SetDistance("energy", seed=-1), UsageError, "seed"),
        (lambda: wm.SetDistance().distance(normal(5, 0), normal(50, 0)), UsageError, "5 samples"),
        (lambda: wm.SetDistance().against(normal(0, 0)), UsageError, "0 samples"),
        (lambda: wm.SetDistance().against(torch.zeros(50, 0)), UsageError, "no entries"),
        (lambda: wm.SetDistance().distance(normal(50, 0, 3), normal(50, 0)), UsageError, "same shape"),
        (lambda: wm.SetDistance().distance("text", normal(50, 0)), UsageError, "array of samples"),
        (lambda: wm.SetDistance().distance(normal(50, 0) / 0, normal(50, 0)), AuditError, "not finite"),
        (lambda: wm.SetDistance().gap(normal(50, 0), normal(40, 0), normal(50, 0)), UsageError, "same size"),
        (lambda: wm.SetDistance(features=lambda x: x.sum()).against(normal(50, 0)), UsageError, "one row"),
        (lambda: wm.SetDistance().noise(normal(50, 0), 0), UsageError, "size of a set"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
