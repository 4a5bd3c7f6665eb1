"""Solves of a small image field, with their gradients, and the same field with nothing prepared."""

import pytest
import torch
from torch import Tensor, nn

from windermere.paper.architectures import ImageField, initialise
from windermere.solvers import FixedStep, Gradient, OnGrid, Solver, solve

SOLVERS: list[Solver] = [FixedStep.of("euler", steps=4), FixedStep("rk4", step=0.3), OnGrid("heun", (0.0, 0.1, 1.0))]
GRADIENTS: tuple[Gradient, ...] = ("backprop", "checkpoint")
EVERY_SOLVER = pytest.mark.parametrize("solver", SOLVERS, ids=str)
BOTH = pytest.mark.parametrize("gradient", GRADIENTS)


class Convolving(nn.Module):
    """The same field without anything prepared: solved step by step, on autograd's tape."""

    def __init__(self, field: ImageField) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.field(t, z)  # type: ignore[no-any-return]


def a_field(channels: int = 3, *, arithmetic: str = "float32", dtype: torch.dtype = torch.float64) -> ImageField:
    field = initialise(ImageField(channels, 8, arithmetic=arithmetic), 1).to(dtype)
    for name, parameter in field.named_parameters():
        if name.endswith("bias"):
            nn.init.constant_(parameter, 0.1)
    assert isinstance(field, ImageField)
    return field


def pictures(*lead: int, channels: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*lead, channels, 5, 4, generator=torch.Generator().manual_seed(2), dtype=dtype)


def solved(field: nn.Module, z: Tensor, solver: Solver, gradient: Gradient = "backprop") -> list[Tensor]:
    """The end, and the gradients of its square by the start and all parameters."""
    start = z.clone().requires_grad_()
    end = solve(field, start, solver, gradient=gradient).final
    assert isinstance(end, Tensor)
    return [end.detach(), *torch.autograd.grad(end.square().sum(), [start, *field.parameters()])]


def furthest(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest relative distance."""
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True))
