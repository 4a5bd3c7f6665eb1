"""The first step of Hairer, Norsett and Wanner: values worked out by hand, and every special case."""

from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import DOUBLE, Recorder, coupled, some_states
from windermere.errors import NonFiniteError, UsageError
from windermere.solvers import initial_step


def state(*rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=DOUBLE)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_linear_fields_step_is_the_one_worked_out_by_hand(order: int) -> None:
    """dz/dt = -3z, samples of norm 5 and 10: d0 = 7.5, d1 = 22.5, h0 = 0.01/3, and d2 = mean |9 z| = 67.5."""
    h = initial_step(lambda t, z: -3 * z, state([3, 4], [6, -8]), order=order, times=(0.0, 10.0))
    expected = min(100 * 0.01 / 3, (0.01 / 67.5) ** (1 / (order + 1)))
    assert h == pytest.approx(expected, rel=1e-9)


def test_a_larger_field_than_derivative_decides() -> None:
    """dz/dt = 2: d1 = 2 sqrt 2, d2 = 0, so h1 = (0.01 / d1)^(1/2); h0 = 0.01 * 5 / d1."""
    h = initial_step(lambda t, z: torch.full_like(z, 2.0), state([3, 4]), order=1)
    assert h == pytest.approx(min(100 * 0.01 * 5 / (2 * sqrt(2)), sqrt(0.01 / (2 * sqrt(2)))), rel=1e-12)


def test_a_field_that_changes_with_time_alone_is_felt() -> None:
    """dz/dt = 1 + 100 t at z = 1: d0 = d1 = 1, h0 = 0.01, d2 = 100, h1 = (0.01/100)^(1/2) = 0.01."""
    assert initial_step(lambda t, z: 1 + 100 * t + 0 * z, state([1.0]), order=1) == pytest.approx(0.01, rel=1e-9)


def test_a_hundred_times_the_probing_step_is_the_most() -> None:
    """z = 1e-4, f = 1: h0 = 1e-6, so at most 1e-4, though h1 = (0.01)^(1/2) = 0.1."""
    assert initial_step(lambda t, z: torch.ones_like(z), state([1e-4]), order=1) == pytest.approx(1e-4)


@pytest.mark.parametrize("z", [0.0, 9e-6])
def test_a_state_near_zero_is_probed_with_a_millionth(z: float) -> None:
    field = Recorder(lambda t, z: torch.ones_like(z))
    assert initial_step(field, state([z]), order=1) == pytest.approx(1e-4)
    assert field.times == [0.0, 1e-6]


def test_a_field_near_zero_is_probed_with_a_millionth() -> None:
    field = Recorder(lambda t, z: torch.full_like(z, 9e-6))
    assert initial_step(field, state([1.0]), order=1) == pytest.approx(1e-4)
    assert field.times == [0.0, 1e-6]


def test_a_flat_field_gets_the_smallest_step() -> None:
    """max(d1, d2) = 0: h1 = max(1e-6, 1e-3 h0) = 1e-6."""
    assert initial_step(lambda t, z: torch.zeros_like(z), state([1.0]), order=1) == pytest.approx(1e-6)


@pytest.mark.parametrize("times", [(0.0, 0.25), (0.25, 0.0), (3.0, 3.25)])
def test_the_step_is_at_most_the_whole_span(times: tuple[float, float]) -> None:
    assert initial_step(lambda t, z: -0.01 * z, state([1.0]), order=4, times=times) == 0.25


def test_backwards_in_time_the_probe_goes_backwards_and_the_step_is_positive() -> None:
    field = Recorder(lambda t, z: -z)
    h = initial_step(field, state([1.0]), order=1, times=(2.0, 0.0))
    assert field.times == [2.0, 2.0 - 0.01]
    assert float(field.nodes[1][1]) == pytest.approx(1.01)
    assert h == initial_step(lambda t, z: z, state([1.0]), order=1, times=(0.0, 2.0)) == pytest.approx(0.1)


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0)])
def test_a_slow_field_is_probed_no_further_than_the_end_where_it_may_end_as_well(times: tuple[float, float]) -> None:
    """The root of t (1 - t) is none before 0 or after 1; at z = 1000 the rule alone would probe at 10."""
    field = Recorder(lambda t, z: 1 + (t * (1 - t)).sqrt() + 0 * z)
    assert initial_step(field, state([1000.0]), order=1, times=times) <= 1
    assert field.times == list(times)


def test_norms_are_means_over_samples_of_norms_over_all_their_entries() -> None:
    """Not a root mean square: one sample of norm 10 and one of norm 0 are as two of norm 5."""
    images = torch.zeros(2, 1, 4, 4, dtype=DOUBLE)
    images[0] = 2.5
    vectors = state([3, 4], [3, 4])
    steps = [
        initial_step(lambda t, z: torch.full_like(z, 3.0) if z.ndim == 2 else -z, z, order=1) for z in (images, vectors)
    ]
    assert steps[0] == pytest.approx(sqrt(0.01 / 5))
    assert steps[1] == pytest.approx(sqrt(0.01 / (3 * sqrt(2))))


def test_members_have_steps_of_their_own_each_as_if_alone() -> None:
    z = some_states(3, 5, 2) * torch.tensor([0.1, 1.0, 8.0], dtype=DOUBLE)[:, None, None]
    together = initial_step(coupled, z, order=2, members=3)
    assert together.shape == (3,)
    assert len(set(together.tolist())) == 3
    np.testing.assert_allclose(together, [initial_step(coupled, z[s], order=2) for s in range(3)], rtol=1e-12)


def test_a_tuple_is_one_state_with_the_norm_of_all_its_parts() -> None:
    z = state([3, 4], [6, -8])

    def apart(t: Tensor, parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return -3 * parts[0], -3 * parts[1]

    whole = initial_step(lambda t, z: -3 * z, z, order=1)
    assert initial_step(apart, (z[:, 0], z[:, 1:]), order=1) == pytest.approx(whole, rel=1e-12)


def test_a_tuple_whose_parts_share_no_axis_is_one_sample() -> None:
    """Norm of (3, 4, 12) is 13: h1 = (0.01 / 13)^(1/2)."""
    h = initial_step(lambda t, z: (-z[0], -z[1]), (state(3, 4), torch.tensor(12.0, dtype=DOUBLE)), order=1)
    assert h == pytest.approx(sqrt(0.01 / 13), rel=1e-6)


def test_it_costs_two_evaluations_and_no_gradient() -> None:
    field = Recorder(coupled)
    z = some_states(3, 2).requires_grad_()
    assert isinstance(initial_step(field, z, order=1), float)
    assert field.calls == 2
    assert not any(z.requires_grad for _, z in field.nodes)


def test_float32_agrees_with_float64() -> None:
    z = some_states(20, 2)
    assert initial_step(coupled, z.float(), order=1) == pytest.approx(initial_step(coupled, z, order=1), rel=1e-3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_field_that_is_not_finite_leaves_no_step_to_choose(value: float) -> None:
    with pytest.raises(NonFiniteError, match=r"no first step can be chosen: the field is not finite at t = 0.5"):
        initial_step(lambda t, z: z * value, state([1.0]), order=1, times=(0.5, 1.0))


@pytest.mark.parametrize("times", [(1.0, 1.0), (0.0, float("nan"))])
def test_an_empty_span_is_refused(times: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="times must be"):
        initial_step(coupled, some_states(2, 2), order=1, times=times)


def test_members_that_do_not_match_the_state_are_refused() -> None:
    with pytest.raises(UsageError, match="first axis is not 4"):
        initial_step(coupled, some_states(3, 2, 2), order=1, members=4)


def test_an_empty_batch_is_called_what_it_is() -> None:
    with pytest.raises(UsageError, match="the batch is empty"):
        initial_step(coupled, torch.zeros(0, 2), order=1)


@pytest.mark.parametrize("order", [0, -1, 1.5])
def test_the_order_is_a_methods(order: int) -> None:
    with pytest.raises(UsageError, match=f"the order of a method is a whole number, at least 1, not {order}"):
        initial_step(lambda t, z: -z, torch.ones(3, 2), order=order)
