"""Crossings agree with exact fractions, by blocks and bands of any size, and signs with whole numbers."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.auditing.evidence.slow_crossings import Floats, slow_count
from windermere.auditing.evidence import crossings, pieces
from windermere.auditing.evidence.crossings import count_crossings
from windermere.auditing.evidence.predicates import _area_sign_in_whole_numbers, area_sign


def random_cases() -> Iterator[tuple[str, Floats]]:
    rng = np.random.default_rng(0)
    for side in (2, 3, 4, 6):
        for _ in range(12):
            yield f"grid of {side}", rng.integers(0, side, (7, 8, 2)).astype(np.float64)
    for scale in (1.0, 1e-3, 1e-160, 1e160, 5e-324 * 2**20):
        yield f"scale {scale}", rng.normal(size=(9, 9, 2)) * scale
        yield f"grid at scale {scale}", rng.integers(-2, 3, (7, 7, 2)).astype(np.float64) * scale
        yield f"grid far off at scale {scale}", (rng.integers(-2, 3, (7, 7, 2)).astype(np.float64) + 2.0**40) * scale
    yield "magnitudes from 1e-300 to 1e300", 10.0 ** rng.uniform(-300, 300, (8, 9, 2)) * rng.choice([-1, 1], (8, 9, 2))
    yield "the largest floats", rng.choice([-1.7e308, -1e308, 0.0, 1e-308, 1e308, 1.7e308], (7, 8, 2))
    for ulps in (2, 30):
        noise: Floats = rng.integers(0, ulps, (8, 8, 2)).astype(np.float64) * 2.0**-54
        yield f"{ulps} bits wide", 1 / 3 + noise
        line: Floats = np.linspace(0, 1, 8)[:, None, None] * [0.3, 0.7] + noise
        yield f"along a line {ulps} bits wide", line
        yield f"back and forth on a line {ulps} bits wide", line[rng.integers(0, 8, (8, 8)), np.arange(8)]
    thirds = rng.integers(-3, 4, (7, 8, 1)) * np.array([0.1, 0.3])
    yield "on one line up to rounding", thirds
    yield "one far out", np.concatenate([rng.normal(size=(8, 7, 2)) * 0.1, rng.normal(size=(8, 1, 2)) * 1e6], axis=1)


CASES = [pytest.param(value, id=f"{i}: {name}") for i, (name, value) in enumerate(random_cases())]


@pytest.mark.parametrize("trajectories", CASES)
def test_counts_equal_those_of_all_pairs_in_fractions(trajectories: Floats) -> None:
    labels = np.arange(trajectories.shape[1]) % 3
    assert count_crossings(trajectories, labels) == slow_count(trajectories, labels)


@pytest.mark.parametrize("trajectories", CASES[::3])
def test_blocks_and_bands_of_any_size_count_the_same(trajectories: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(trajectories.shape[1]) % 3
    expected = count_crossings(trajectories, labels)
    for name, size in {"ROWS": 3, "COLUMNS": 4, "OVERHEAD": 0}.items():
        monkeypatch.setattr(pieces, name, size)
    monkeypatch.setattr(crossings, "BATCH", 5)
    assert count_crossings(trajectories, labels) == expected


def test_many_blocks_and_bands_count_what_all_pairs_of_samples_count_one_by_one() -> None:
    rng = np.random.default_rng(3)
    walks = np.cumsum(rng.integers(-3, 4, (41, 300, 2)) * rng.choice([1, 1, 1, 8], (41, 300, 1)), axis=0) / 8
    walks[0] += rng.integers(-40, 41, (300, 2))
    labels = rng.integers(0, 4, 300)
    whole = count_crossings(walks, labels)
    parts = [count_crossings(walks[:, labels == label]).total for label in range(4)]
    assert whole.between_classes == whole.total - sum(parts)
    pairs = [count_crossings(walks[:, [0, i]]).total for i in range(1, 300)]
    assert count_crossings(walks, (np.arange(300) == 0).astype(np.int64)).between_classes == sum(pairs) > 0


@pytest.mark.parametrize("trajectories", CASES[48:])
def test_a_sign_by_floats_is_the_sign_by_whole_numbers(trajectories: Floats) -> None:
    rng = np.random.default_rng(1)
    a, b, c = np.moveaxis(rng.choice(trajectories.reshape(-1, 2), (2000, 3)), 0, -1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(area_sign(a, b, c), _area_sign_in_whole_numbers(a, b, c))
