"""Sphere fields in float64, and the slow references of their fused walk."""

from typing import Any

import torch
from torch import Tensor, nn

from windermere.paper.architectures import SphereField, initialise, spheres_of
from windermere.paper.stacked import StackedField
from windermere.solvers import Gradient, solve

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


class Ensemble(StackedField):
    """Fields with their parameters stacked, as training has them."""

    fields: list[SphereField]

    def __init__(self, points: int, members: int) -> None:
        fields = [sphere_field(points, seed) for seed in range(members)]
        stacked = [torch.stack(parts) for parts in zip(*(f.parameters() for f in fields), strict=True)]
        names = [name for name, _ in fields[0].named_parameters()]
        tensors = {name: tensor.detach().requires_grad_() for name, tensor in zip(names, stacked, strict=True)}
        super().__init__(fields[0], tensors)
        object.__setattr__(self, "fields", fields)


class Eagerly:
    """The same prepared field without its fast paths: the slow reference, for one solve."""

    def __init__(self, field: Any) -> None:
        spheres = spheres_of(field)
        assert spheres is not None
        self.prepared = spheres.prepared

    def __call__(self, t: Tensor, z: Tensor) -> Tensor:
        return self.prepared.rate(t, z)

    def parameters(self) -> tuple[Tensor, ...]:
        assert self.prepared.tensors is not None
        return self.prepared.tensors()


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
