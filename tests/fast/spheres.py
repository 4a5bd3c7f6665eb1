"""Sphere fields in float64, and the slow references of their fused walk."""

from typing import Any

import torch
from torch import Tensor, nn

from windermere.paper.architectures import SphereField, initialise
from windermere.solvers import Gradient, Prepared, solve

DOUBLE = torch.float64


def sphere_field(points: int, seed: int = 0) -> SphereField:
    """Kaiming weights and, unlike at the start of training, biases that are not zero."""
    field = initialise(SphereField(points, width=8).to(DOUBLE), seed)
    assert isinstance(field, SphereField)
    generator = torch.Generator().manual_seed(100 + seed)
    with torch.no_grad():
        for name, parameter in field.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=DOUBLE) * 0.3)
    return field


def samples(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=DOUBLE)


class Ensemble:
    """Fields with their parameters stacked: what training prepares."""

    def __init__(self, points: int, members: int) -> None:
        self.fields = [sphere_field(points, seed) for seed in range(members)]
        stacked = [torch.stack(parts) for parts in zip(*(f.parameters() for f in self.fields), strict=True)]
        self.tensors = {
            name: tensor.detach().requires_grad_()
            for (name, _), tensor in zip(self.fields[0].named_parameters(), stacked, strict=True)
        }

    def prepare(self) -> Prepared:
        return self.fields[0].prepare_stacked(self.tensors)


class Eagerly:
    """The same prepared field without its fused walk: the slow reference."""

    def __init__(self, field: Any) -> None:
        self.field = field

    def prepare(self) -> Prepared:
        prepared = self.field.prepare()
        assert prepared.walk is not None
        return Prepared(prepared.rate, prepared.tensors)


class Convolving(nn.Module):
    """The paper's layers as nn.Conv1d runs them: no preparation, no matrices."""

    def __init__(self, field: SphereField) -> None:
        super().__init__()
        self.layers = nn.Sequential(field.lift, nn.ReLU(), field.mix, nn.ReLU(), field.lower)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layers(z.unsqueeze(1)).squeeze(1)


def solved(
    field: Any, z: Tensor, solver: Any, wanted: Any, times: Any = (0.0, 1.0), gradient: Gradient = "backprop"
) -> list[Tensor]:
    """The end state, and the gradients of an uneven loss in the state and in what is wanted."""
    start = z.clone().requires_grad_()
    final = solve(field, start, solver, times, gradient=gradient).final
    assert isinstance(final, Tensor)
    weights = torch.arange(1.0, 1 + final.numel(), dtype=DOUBLE).cos().view_as(final)
    return [final, *torch.autograd.grad((weights * final.square()).sum(), [start, *wanted])]


def assert_same(found: list[Tensor], expected: list[Tensor], closeness: float = 1e-11) -> None:
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=closeness, atol=closeness)
