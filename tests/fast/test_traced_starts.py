"""Fields that ask what their state is like, beside its numbers: a program is theirs from where they do the same."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fast.ends import end, slow
from tests.fast.spheres import DOUBLE, assert_same, samples

pytestmark = pytest.mark.usefixtures("fresh_programs")

GAIN = nn.Parameter(torch.tensor(0.5, dtype=DOUBLE))


def in_a_crowd(t: Tensor, z: Tensor) -> Tensor:
    return z - z.square() if len(z) > 8 else z.square()


def of_few(t: Tensor, z: Tensor) -> Tensor:
    return z * (-1 if len(z) > 2 else 2)


@pytest.mark.parametrize(("field", "numbers"), [(in_a_crowd, (3, 4, 9, 12, 5)), (of_few, (3, 4, 1, 7, 2))])
def test_a_field_may_ask_for_the_number_of_samples(field: Any, numbers: Sequence[int], taken: list[str]) -> None:
    for n in numbers:
        assert_same([end(field, samples(n, 2))], [slow(field, samples(n, 2))])
    assert taken == ["there"] * len(numbers)


def by_need(t: Tensor, z: Tensor) -> Tensor:
    return z.square() if z.requires_grad else -z * GAIN


def by_origin(t: Tensor, z: Tensor) -> Tensor:
    return z.square() if z.is_leaf else -z * GAIN


@pytest.mark.parametrize("field", [by_need, by_origin])
def test_a_field_may_ask_whether_its_state_needs_a_gradient(field: Any) -> None:
    for need in (True, False, True):
        z = samples(6, 2).requires_grad_(need)
        assert_same([end(field, z)], [slow(field, z)])


@torch.no_grad()
def test_a_state_that_needs_a_gradient_does_so_where_none_is_taken() -> None:
    for need in (False, True):
        z = samples(6, 2).requires_grad_(need)
        assert_same([end(by_need, z)], [slow(by_need, z)])


def by_layout(t: Tensor, z: Tensor) -> Tensor:
    return z.square() if z.is_contiguous() else -z * GAIN


def by_step(t: Tensor, z: Tensor) -> Tensor:
    return z.square() if z.stride(0) > 2 else -z * GAIN


LAYOUTS: list[Callable[[], Tensor]] = [
    *(
        lambda: samples(6, 2),
        lambda: samples(2, 6).t(),
        lambda: samples(6, 4)[:, :2],
        lambda: samples(6, 2, 3)[:, :, 1],
    ),
    *(lambda: samples(2).expand(6, 2), lambda: samples(6, 1).expand(6, 2), lambda: samples(12, 2)[::2]),
]


@pytest.mark.parametrize("field", [by_layout, by_step])
def test_a_field_may_ask_how_its_state_lies_in_memory(field: Any, taken: list[str]) -> None:
    for _ in range(2):
        for made in LAYOUTS:
            assert_same([end(field, made())], [slow(field, made())])
    assert taken


@pytest.mark.parametrize("z", [samples(2, 6).t(), samples(2).expand(6, 2)])
def test_a_view_that_such_a_state_does_not_have_is_an_error_as_ever(z: Tensor, taken: list[str]) -> None:
    def flat(t: Tensor, z: Tensor) -> Tensor:
        return -z.view(-1).view(z.shape)

    end(flat, samples(6, 2))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        end(flat, z)
    assert taken == ["there"]


def by_mode(t: Tensor, z: Tensor) -> Tensor:
    return z.square() if torch.is_inference_mode_enabled() else -z * GAIN


def test_a_field_may_ask_for_the_mode_that_it_is_solved_in() -> None:
    z = samples(6, 2)
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad):
        with mode():
            assert_same([end(by_mode, z)], [slow(by_mode, z)])


def slope(t: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad((z * GAIN).square().sum(), z, create_graph=True)[0]


def test_a_field_that_differentiates_by_a_state_without_gradients_raises_as_ever(taken: list[str]) -> None:
    end(slope, samples(6, 2).requires_grad_())
    with pytest.raises(RuntimeError, match="does not require grad"):
        end(slope, samples(6, 2))
    assert taken == ["there"]
