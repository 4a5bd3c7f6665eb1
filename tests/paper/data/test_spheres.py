"""The spheres are the paper's: exact shares, radii by the stated law, uniform directions, seeded."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from windermere.errors import UsageError
from windermere.paper.data import Split, spheres
from windermere.paper.data.spheres import SHELLS, Shell, directions

DIMENSIONS = (1, 2, 3, 10, 900)
ROUNDING = 1e-7


def radii(split: Split) -> Tensor:
    return split.inputs.double().square().sum(dim=1).sqrt()


def in_shell(split: Split, shell: Shell) -> Tensor:
    return (radii(split) >= shell.inner - ROUNDING) & (radii(split) <= shell.outer + ROUNDING)


def distance_from_uniform(values: Tensor) -> float:
    """Kolmogorov and Smirnov's: how far the empirical distribution strays from that of U(0, 1)."""
    ordered = values.sort().values
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float(torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max())


def critical_distance(n: int) -> float:
    """Exceeded with probability 0.001 by n draws that are uniform."""
    return 1.95 / math.sqrt(n)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_spheres_in_any_dimension_have_exact_class_shares_and_radii(dimension: int) -> None:
    data = spheres(dimension)
    for split, n in ((data.train, 2000), (data.test, 1000)):
        assert split.inputs.shape == (n, dimension)
        assert split.labels.bincount().tolist() == [n // 2, n // 2]
        for shell in SHELLS:
            inside = in_shell(split, shell)
            assert int(inside.sum()) == shell.quarters * n // 4
            assert bool((split.labels[inside] == shell.label).all())


def test_the_shells_are_those_of_the_paper() -> None:
    assert [(s.inner, s.outer, s.label, s.quarters) for s in SHELLS] == [
        (0.1, 0.15, 0, 1),
        (0.25, 0.3, 1, 2),
        (0.4, 0.45, 0, 1),
    ]


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_radius_follows_a_dth_root_law_in_every_shell(dimension: int, shell: Shell) -> None:
    split = spheres(dimension, seed=3, train=4000).train
    inside = radii(split)[in_shell(split, shell)]
    uniform = (((inside - shell.inner) / (shell.outer - shell.inner)).clamp(0, 1)) ** dimension
    assert distance_from_uniform(uniform) < critical_distance(len(uniform))


def test_the_law_test_notices_a_root_of_the_wrong_degree() -> None:
    wrong = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** (2 / 3)
    assert distance_from_uniform(wrong) > critical_distance(1000)


def test_angles_in_the_plane_are_uniform() -> None:
    points = spheres(2, seed=5, train=4000).train.inputs.double()
    angles = torch.atan2(points[:, 1], points[:, 0])
    assert distance_from_uniform((angles + math.pi) / (2 * math.pi)) < critical_distance(4000)


@pytest.mark.parametrize("dimension", [1, 3, 10])
def test_directions_have_mean_zero_and_equal_spread_along_all_axes(dimension: int) -> None:
    points = spheres(dimension, seed=7, train=20_000).train.inputs.double()
    unit = points / points.norm(dim=1, keepdim=True)
    spread = unit.T @ unit / len(unit)
    torch.testing.assert_close(unit.mean(0), torch.zeros(dimension).double(), atol=0.03, rtol=0)
    torch.testing.assert_close(spread, torch.eye(dimension).double() / dimension, atol=0.03, rtol=0)


def test_a_zero_vector_gets_a_direction_and_the_others_keep_theirs() -> None:
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0], [-2.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(directions(vectors), expected)


def test_the_same_seed_gives_the_same_points_and_another_seed_others() -> None:
    one, same, other = spheres(3, seed=1), spheres(3, seed=1), spheres(3, seed=2)
    for part in ("train", "test"):
        assert torch.equal(getattr(one, part).inputs, getattr(same, part).inputs)
        assert torch.equal(getattr(one, part).labels, getattr(same, part).labels)
        assert not torch.equal(getattr(one, part).inputs, getattr(other, part).inputs)


def test_training_and_test_points_are_different_draws() -> None:
    data = spheres(2, train=1000, test=1000)
    assert not set(map(tuple, data.train.inputs.tolist())) & set(map(tuple, data.test.inputs.tolist()))


def test_the_training_points_do_not_depend_on_how_many_test_points_are_drawn() -> None:
    assert torch.equal(spheres(2, test=4).train.inputs, spheres(2, test=400).train.inputs)


def test_the_points_are_shuffled() -> None:
    labels = spheres(2).train.labels
    changes = int((labels[1:] != labels[:-1]).sum())
    assert 850 < changes < 1150  # a fair coin changes sides 1000 times, give or take 22


def test_the_global_random_numbers_are_neither_used_nor_moved() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one = spheres(2).train.inputs
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    assert torch.equal(spheres(2).train.inputs, one)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"dimension": 0}, "dimension of at least 1, not 0"),
        ({"dimension": -3}, "dimension of at least 1, not -3"),
        ({"dimension": 10**8}, "in 100000000 dimensions would fill the memory: take at most 100000"),
        ({"dimension": "2"}, "dimension of at least 1, not '2'"),
        ({"dimension": 2.5}, "dimension of at least 1, not 2.5"),
        ({"dimension": 2, "seed": "0"}, "not '0'"),
        ({"dimension": 2, "train": None}, "None is not a positive multiple of 4"),
        ({"dimension": 2, "seed": -1}, "not -1"),
        ({"dimension": 2, "seed": 2**64}, "not 18446744073709551616"),
        ({"dimension": 2, "train": 0}, "0 is not a positive multiple of 4"),
        ({"dimension": 2, "test": 10}, "10 is not a positive multiple of 4"),
    ],
)
def test_impossible_spheres_are_refused_with_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("*", r"\*")):
        spheres(**arguments)
