"""Fields that the tests solve."""

from typing import Any

import torch
from torch import Tensor, nn

DOUBLE = torch.float64


def coupled(t: Tensor, z: Tensor) -> Tensor:
    """Smooth, nonlinear, both entries in both rates, and t inside: no factor g(t) can be taken out."""
    x, y = z.unbind(-1)
    t = t.squeeze(-1) if t.ndim == z.ndim else t
    return torch.stack([torch.sin(2 * y + 3 * t), torch.cos(3 * x * torch.cos(2 * t)) - y / 4], dim=-1)


def elementwise(t: Tensor, z: Tensor) -> Tensor:
    """Products and sums only: a result does not depend on where in a vector register its entry lies."""
    return t - 0.5 * z - 0.1 * z * z * z


def some_states(*shape: int, seed: int = 0, dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE).to(dtype)


class Recorder:
    """A field that knows at which nodes it was evaluated."""

    def __init__(self, field: Any) -> None:
        self.field = field
        self.nodes: list[tuple[Tensor, Tensor]] = []

    def __call__(self, t: Tensor, z: Any) -> Any:
        self.nodes.append((t, z))
        return self.field(t, z)

    @property
    def calls(self) -> int:
        return len(self.nodes)

    @property
    def times(self) -> list[float]:
        """All times of evaluations, of all groups."""
        return [float(x) for t, _ in self.nodes for x in t.flatten()]


class Network(nn.Module):
    """A small smooth network that depends on t; the state is [..., width]."""

    def __init__(self, width: int = 2, hidden: int = 5, seed: int = 0) -> None:
        super().__init__()
        self.inner = nn.Linear(width + 1, hidden, dtype=DOUBLE)
        self.outer = nn.Linear(hidden, width, dtype=DOUBLE)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=DOUBLE) * 0.6)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        moments = t.expand(*z.shape[:-1], 1)
        return self.outer(torch.tanh(self.inner(torch.cat([z, moments], dim=-1))))
