"""What a field keeps from a trace: gradients, numbers that it takes to Python, and what it writes to tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fast.ends import end, slow
from tests.fast.fields import Rounding
from tests.fast.spheres import DOUBLE, samples

pytestmark = pytest.mark.usefixtures("fresh_programs")

WEIGHT = nn.Parameter(torch.full((2,), 0.7, dtype=DOUBLE))


def squared_without_gradients(z: Tensor) -> Tensor:
    with torch.no_grad():
        return z * z


def with_a_hook(z: Tensor) -> Tensor:
    twice = 2 * z
    twice.register_hook(lambda on: 3 * on)  # type: ignore[no-untyped-call]
    return twice


def with_a_hook_on_its_way(z: Tensor) -> Tensor:
    twice = 2 * z
    if twice.grad_fn is not None:
        twice.grad_fn.register_prehook(lambda ons: (3 * ons[0],))
    return twice


CUT: list[Callable[[Tensor], Tensor]] = [
    *(lambda z: (z * z).detach(), lambda z: (z * z).data, lambda z: torch.detach(z * z), lambda z: z * WEIGHT.detach()),
    *(squared_without_gradients, with_a_hook, lambda z: Rounding.apply(z)),  # type: ignore[no-untyped-call]
    *(with_a_hook_on_its_way, lambda z: torch.tensor(z * z), lambda z: z.new_tensor(z * z)),
]


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("branch", CUT)
def test_gradients_that_a_field_keeps_back_where_it_was_not_watched_are_kept_back(
    branch: Callable[[Tensor], Tensor], taken: list[str]
) -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(z > 0, -z, branch(z))

    def gradients(of: Any, sign: float) -> list[Tensor]:
        z = (sign * (1 + samples(6, 2).abs())).requires_grad_()
        found = torch.autograd.grad(of(field, z).sum(), [z, WEIGHT], allow_unused=True)
        return [torch.zeros(()) if g is None else g for g in found]

    gradients(end, 1.0)
    torch.testing.assert_close(gradients(end, -1.0), gradients(slow, -1.0))
    assert taken == []


def written(kind: torch.dtype, by: Any) -> Tensor:
    """What was written to a tensor of another kind, and back."""
    tensor = torch.zeros(6, 2, dtype=kind)
    tensor[:] = by
    found = torch.zeros(6, 2, dtype=DOUBLE)
    found[:] = tensor
    return found


TRUTHS: list[Callable[[Tensor], Tensor]] = [
    *(lambda z: ((z > 1) + (z > 2)).to(z.dtype), lambda z: z * ((z > 1) + (z > 2))),
    *(lambda z: written(torch.int64, 3 * z.relu()), lambda z: written(torch.bool, 3 * z.relu())),
]


@pytest.mark.parametrize("branch", TRUTHS)
def test_what_is_no_number_of_the_states_kind_stays_what_it_is_where_the_field_was_not_watched(
    branch: Callable[[Tensor], Tensor],
) -> None:
    """Two truths are added to one, not to 2, and what is written among whole numbers becomes one."""

    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.where(z > 0, branch(z), -z)

    end(field, -1 - samples(6, 2).abs())
    z = 2.5 + samples(6, 2).abs()
    torch.testing.assert_close(end(field, z), slow(field, z))


class Weighted(nn.Module):
    """A field with a buffer, and a parameter that is zero at first, as many are."""

    kept: Tensor

    def __init__(self, function: Callable[["Weighted", Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.zeros(2, dtype=DOUBLE))
        self.register_buffer("kept", torch.tensor([1.0, 2.0], dtype=DOUBLE))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.function(self, z)


READ: list[Callable[[Weighted, Tensor], Tensor]] = [
    *(lambda f, z: -z * f.kept.tolist()[0], lambda f, z: -z * float(f.kept.numpy()[0])),
    *(lambda f, z: -z * len(f.kept[f.kept > 1]), lambda f, z: -z * len(f.kept.unique())),
    lambda f, z: -z * len(torch.tensor_split(z, f.kept[:1].long(), dim=1)[0].sum(0)),
]


@pytest.mark.parametrize("function", READ)
def test_numbers_that_a_field_takes_to_python_are_those_of_each_solve(
    function: Callable[[Weighted, Tensor], Tensor],
) -> None:
    field, z = Weighted(function), samples(6, 2)
    end(field, z)
    field.kept.fill_(3.0)
    torch.testing.assert_close(end(field, z), slow(field, z))


def turned(field: Weighted, z: Tensor) -> Tensor:
    matrix = torch.zeros(2, 2, dtype=DOUBLE)
    matrix[0, 1] = field.weight[0]
    return z @ matrix


def summed(field: Weighted, z: Tensor) -> Tensor:
    total = torch.zeros(2, dtype=DOUBLE)
    total += field.weight
    return z * total.sum()


@torch.no_grad()
def test_what_is_written_to_a_sum_is_not_written_to_its_terms() -> None:
    def doubled(field: Weighted, z: Tensor) -> Tensor:
        x = torch.tanh(z)
        y = x + 0
        y += field.weight
        return x + y

    field, z = Weighted(doubled), samples(6, 2)
    end(field, z)
    field.weight.fill_(0.5)
    torch.testing.assert_close(end(field, z), slow(field, z))


@pytest.mark.parametrize("function", [turned, summed])
def test_what_a_parameter_that_is_zero_is_written_to_has_its_gradient(
    function: Callable[[Weighted, Tensor], Tensor],
) -> None:
    field, z, found = Weighted(function), samples(6, 2), []
    for of in (end, slow):
        found.append(torch.autograd.grad(of(field, z).sum(), field.weight)[0])
    torch.testing.assert_close(*found)


def test_what_is_compared_without_gradients_is_followed(taken: list[str]) -> None:
    def field(t: Tensor, z: Tensor) -> Tensor:
        with torch.no_grad():
            inside = z > 0
        return torch.where(inside, -z, z)

    end(field, samples(6, 2).requires_grad_())
    assert taken == ["there"]
