"""Matrices of all widths in C, which takes many units at once; and weights that are others on the way back."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.spheres import DOUBLE
from tests.fast.test_rows import assert_as_step_by_step, state
from windermere.fast.cpu import compiled


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")


def network(*widths: int, dtype: torch.dtype = DOUBLE) -> nn.Module:
    """A field with layers of these widths."""
    torch.manual_seed(3)
    layers: list[nn.Module] = []
    for ins, outs in pairwise((*widths, widths[0])):
        layers += [nn.Linear(ins, outs), nn.Tanh()]
    return wm.Autonomous(nn.Sequential(*layers)).to(dtype)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 23, 31, 32, 37])
def test_products_of_every_width_are_those_of_pytorch(width: int, taken: list[str]) -> None:
    field = network(width, 18, width + 1)
    assert_as_step_by_step(field, state((width,)), wm.FixedStep("midpoint", step=1 / 2))
    assert_as_step_by_step(field, state((width,)), wm.Adaptive("dopri54", tolerance=1e-4), gradient="adjoint")
    assert taken == ["there", "back", "adapt", "adapt"]


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 9, 16, 17, 33])
def test_errors_of_every_number_of_samples_lead_to_the_same_steps(samples: int, taken: list[str]) -> None:
    field, z = network(2, 9), state((2,), samples=samples)
    assert_as_step_by_step(field, 5 * z.detach().requires_grad_(), wm.Adaptive("bosh32", tolerance=1e-6))
    assert taken == ["adapt", "back"]


def test_weights_of_another_dtype_by_the_time_of_the_way_back_are_not_read_as_they_were() -> None:
    field = network(2, 9, dtype=torch.float32)
    z = torch.ones(5, 2, requires_grad=True)
    end: Tensor = wm.solve(field, z, wm.Adaptive("dopri54", tolerance=1e-4), gradient="adjoint").final
    field.double()
    with pytest.raises(RuntimeError, match="dtype"):
        torch.autograd.grad(end.sum(), z)


def in_another_dtype(field: nn.Module) -> None:
    field.to(torch.float16)


def of_one_number(field: nn.Module) -> None:
    for p in field.parameters():
        p.data = p.data.new_zeros(1)


@pytest.mark.parametrize("change", [in_another_dtype, of_one_number])
@pytest.mark.parametrize("solver", [wm.FixedStep("rk4", step=1 / 2), wm.Adaptive("bosh32", tolerance=1e-3)])
def test_gradients_of_weights_that_shrank_before_the_way_back_are_those_of_the_solve(
    solver: Any, change: Callable[[nn.Module], None], taken: list[str]
) -> None:
    """Room for them is not what the weights take by then: C would write beyond it."""
    field, found = network(2, 60, 60), []
    for changed in (False, True):
        end: Tensor = wm.solve(field, state((2,)).detach(), solver).final
        if changed:
            change(field)
        call: Any = end.grad_fn
        found.append([g for g in call.call.back(torch.ones_like(end), False, call.saved_tensors[0]) if g is not None])
    torch.testing.assert_close(*found)
    assert taken[1::2] == ["back"] * 2
