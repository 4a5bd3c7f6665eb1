"""Crossings: the paper's Appendix A, what counts at vertices and along lines, and what changes no count."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.auditing.evidence.slow_crossings import Floats, slow_count
from windermere.auditing.evidence.crossings import Crossings, count_crossings
from windermere.errors import UsageError
from windermere.solvers import FixedStep, solve


def polygons(*paths: list[tuple[float, float]]) -> Floats:
    """Paths of any length as trajectories: the shorter ones rest where they end."""
    steps = max(len(path) for path in paths)
    return np.array([path + [path[-1]] * (steps - len(path)) for path in paths], dtype=np.float64).transpose(1, 0, 2)


def total(*paths: list[tuple[float, float]]) -> int:
    return count_crossings(polygons(*paths)).total


def walk(field: Any, z: Floats, step: float, time: float, method: str = "euler") -> Floats:
    start = torch.tensor(z, dtype=torch.float64)
    solution = solve(lambda t, z: field(z), start, FixedStep(method, step=step), (0.0, time), record=True)
    assert solution.trajectory is not None
    assert isinstance(solution.trajectory.states, Tensor)
    return np.asarray(solution.trajectory.states.numpy(), dtype=np.float64)


# Appendix A.


def appendix_a(z: Tensor) -> Tensor:
    """The paper's vector field, whose curvature changes only where 1 < x <= 2."""
    x, y = z.unbind(-1)
    first, middle, last = (x > 1) & (x <= 1.25), (x > 1.25) & (x <= 1.75), (x > 1.75) & (x <= 2)
    dx, rise = torch.ones_like(x), torch.zeros_like(x)
    dx, rise = torch.where(first, 1 - 2 * (x - 1), dx), torch.where(first, 2 * (x - 1), rise)
    dx, rise = torch.where(middle, 0.5, dx), torch.where(middle, 0.5, rise)
    dx, rise = torch.where(last, 0.5 + 2 * (x - 1.75), dx), torch.where(last, 0.5 - 2 * (x - 1.75), rise)
    return torch.stack([dx, rise / y], dim=-1)


def ten_points(x: float) -> Floats:
    return np.stack([np.full(10, x), np.linspace(0.1, 1, 10)], axis=1)


@pytest.mark.parametrize(("step", "count"), [(1.0, 0), (0.5, 24), (2.0**-5, 0)])
def test_appendix_a_crosses_at_a_half_but_neither_at_one_nor_at_a_thirty_second(step: float, count: int) -> None:
    """So no crossings at one step say nothing of smaller steps."""
    assert count_crossings(walk(appendix_a, ten_points(0.0), step, 3.0)).total == count


@pytest.mark.parametrize(("step", "count"), [(1.0, 81), (2.0**-5, 0)])
def test_appendix_a_crosses_at_step_one_once_a_second_set_of_points_is_added(step: float, count: int) -> None:
    both = np.concatenate([ten_points(0.0), ten_points(1.5)])
    assert count_crossings(walk(appendix_a, both, step, 3.0)).total == count


def test_of_appendix_as_81_crossings_45_are_between_the_two_sets() -> None:
    both = np.concatenate([ten_points(0.0), ten_points(1.5)])
    found = count_crossings(walk(appendix_a, both, 1.0, 3.0), np.repeat([0, 1], 10))
    assert found == Crossings(total=81, between_classes=45)


# What counts.


def test_two_pieces_that_cross_inside_count_once() -> None:
    assert total([(0, 0), (2, 2)], [(0, 2), (2, 0)]) == 1


@pytest.mark.parametrize("one", [[(-1, 0), (0, 0), (1, 0)], [(-1, 0), (1, 0)]])
@pytest.mark.parametrize("other", [[(0, -1), (0, 0), (0, 1)], [(0, -1), (0, 1)], [(0, 1), (0, 0), (0, 0), (1, -1)]])
def test_a_crossing_at_a_vertex_of_either_or_both_counts_once(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    assert total(one, other) == total(other, one) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([(-1, 1), (0, 0), (1, 1)], id="touches a piece's inside or a vertex from one side"),
        pytest.param([(0, 0), (0, 1)], id="starts on it"),
        pytest.param([(0, -1), (0, 0)], id="ends on it"),
        pytest.param([(0, 1), (0, 0), (0, 1)], id="turns back on it"),
        pytest.param([(-2, 0), (2, 0)], id="runs along it"),
        pytest.param([(1, 0), (0, 0), (-3, 0)], id="runs along it the other way"),
        pytest.param([(-1, 1), (-1, 0), (1, 0), (1, 1)], id="joins and leaves it on the same side"),
        pytest.param([(0, 0), (0, 0), (0, 0)], id="rests on it"),
        pytest.param([(-1, 0), (0, 1)], id="starts where it starts"),
        pytest.param([(0, 1), (1, 0)], id="ends where it ends"),
        pytest.param([(0, 1), (-1, 0), (0, -1)], id="passes its start"),
        pytest.param([(0, 1), (0, 0), (1, 0)], id="joins it"),
    ],
)
@pytest.mark.parametrize("one", [[(-1, 0), (0, 0), (1, 0)], [(-1, 0), (1, 0)], [(1, 0), (-1, 0)]])
def test_what_does_not_change_sides_at_a_point_does_not_count(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    assert total(one, other) == total(other, one) == 0


def test_each_return_of_a_polygon_counts_anew() -> None:
    zigzag = [(0.0, -1.0), (1.0, 1.0), (2.0, -1.0), (3.0, 1.0)]
    assert total([(-9, 0), (9, 0)], zigzag) == 3
    assert total([(-9, 0), (9, 0)], [(0, -1), (0, 1), (0, -1), (0, 1)]) == 3


def test_a_polygon_that_crosses_itself_counts_nothing() -> None:
    assert total([(0, 0), (2, 2), (2, 0), (0, 2)]) == 0


def test_crossings_differ_from_none_by_a_single_bit() -> None:
    for height, count in ((np.nextafter(1.0, 0), 0), (1.0, 0), (np.nextafter(1.0, 2), 1)):
        assert total([(0, 0), (3, 3)], [(2, 1), (1, float(height))]) == count
    assert (
        total([(0, 0), (0.3, 0.1)], [(0.9, 0.3), (0.15, 0.05)])
        == slow_count(polygons([(0, 0), (0.3, 0.1)], [(0.9, 0.3), (0.15, 0.05)]), np.zeros(2, np.int64)).total
    )


@pytest.mark.parametrize("shape", [(1, 5, 2), (4, 0, 2), (4, 1, 2), (1, 0, 2)])
def test_where_nothing_moves_or_nobody_is_there_nothing_crosses(shape: tuple[int, ...]) -> None:
    assert count_crossings(np.zeros(shape)) == Crossings(total=0, between_classes=0)
    assert count_crossings(np.zeros((9, 7, 2)) + np.arange(7)[:, None]).total == 0


# What leaves counts as they are.


def crowd() -> tuple[Floats, NDArray[np.int64]]:
    """Polygons on a fine grid, many of whose vertices and pieces coincide, and which transform without rounding."""
    rng = np.random.default_rng(5)
    return np.cumsum(rng.integers(-2, 3, (21, 60, 2)), axis=0) / 16, rng.integers(0, 3, 60)


def test_moving_turning_mirroring_stretching_and_reversing_time_change_no_count() -> None:
    z, labels = crowd()
    expected = count_crossings(z, labels)
    assert expected.total > expected.between_classes > 0
    for changed in (
        z + np.array([3.0, -700.25]),
        z[..., ::-1],
        z * [-1, 1],
        z[..., ::-1] * [-1, 1],
        z * [1024, 0.5],
        z[::-1],
    ):
        assert count_crossings(changed, labels) == expected
    assert count_crossings(z @ np.array([[3.0, -4.0], [4.0, 3.0]]), labels) == expected


def test_the_order_of_samples_changes_no_count() -> None:
    z, labels = crowd()
    order = np.random.default_rng(6).permutation(z.shape[1])
    assert count_crossings(z[:, order], labels[order]) == count_crossings(z, labels)


def test_dividing_pieces_or_resting_at_vertices_changes_no_count() -> None:
    z, labels = crowd()
    expected = count_crossings(z, labels)
    assert count_crossings(np.repeat(z, 2, axis=0), labels) == expected
    divided = np.stack([z[:-1], 0.75 * z[:-1] + 0.25 * z[1:]], axis=1).reshape(-1, *z.shape[1:])
    assert count_crossings(np.concatenate([divided, z[-1:]]), labels) == expected


def test_naming_classes_otherwise_changes_no_count_and_one_class_has_none_between() -> None:
    z, labels = crowd()
    expected = count_crossings(z, labels)
    assert count_crossings(z, 7 - 3 * labels) == expected
    assert count_crossings(z, np.arange(60)) == Crossings(total=expected.total, between_classes=expected.total)
    for none in (None, np.zeros(60, np.int64)):
        assert count_crossings(z, none) == Crossings(total=expected.total, between_classes=0)


# Flows.


def disc(samples: int) -> Floats:
    rng = np.random.default_rng(2)
    radius, angle = 0.5 * np.sqrt(rng.random(samples)), 2 * np.pi * rng.random(samples)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def test_chords_of_a_perfect_rotation_cross_so_a_reference_has_crossings_too() -> None:
    turns = np.exp(2j * np.pi * np.arange(7) / 6)
    walked = turns[:, None] * (disc(20) @ [1, 1j])
    assert count_crossings(np.stack([walked.real, walked.imag], axis=-1)).total > 0


def test_a_fine_euler_walk_of_a_linear_flow_has_no_crossings_and_a_coarse_one_has() -> None:
    matrix = torch.tensor([[-1.0, -0.5], [0.5, -1.5]], dtype=torch.float64)
    starts = np.stack([np.full(30, 1.0), np.linspace(-0.5, 0.5, 30)], axis=1)
    assert count_crossings(walk(lambda z: z @ matrix.T, starts, 2.0**-7, 2.0)).total == 0
    assert count_crossings(walk(lambda z: z @ matrix.T, starts, 1.0, 2.0)).total > 0


@pytest.mark.parametrize("direction", [(1.0, 0.0), (1.0, 1.0), (0.0, -3.0), (2.0, 1.0)])
def test_a_constant_field_has_no_crossings_at_any_step(direction: tuple[float, float]) -> None:
    """From a grid many share an orbit; their steps are such as not to round, for rounding does make polygons cross."""
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2)
    field = torch.tensor(direction, dtype=torch.float64)
    for starts, step in ((grid, 1.0), (grid, 2.0**-5), (disc(100), 1.0), (disc(100), 0.3), (disc(100), 0.01)):
        assert count_crossings(walk(field.expand_as, starts, step, 4.0)).total == 0


def test_trajectories_that_collapse_on_a_line_at_once_and_run_along_it_do_not_cross_there() -> None:
    rate = torch.tensor([0.0, -64.0], dtype=torch.float64)
    walked = walk(lambda z: rate * z + torch.tensor([1.0, 0.0]), disc(60), 1 / 64, 1.0)
    assert (walked[1:, :, 1] == 0).all()
    assert count_crossings(walked[1:]).total == 0


# Bad input.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_trajectories_that_are_not_finite_are_refused_by_their_number(value: float) -> None:
    z = np.zeros((4, 5, 2))
    z[2:, [1, 3], 0] = value
    with pytest.raises(UsageError, match="2 of 5 trajectories are not finite"):
        count_crossings(z)
