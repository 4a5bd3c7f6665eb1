"""Fields as users write them: with the time among their inputs, with powers, with derivatives of their own."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.fast.spheres import DOUBLE


def layers(*units: int, activation: Callable[[], nn.Module] = nn.Tanh) -> nn.Sequential:
    parts: list[nn.Module] = []
    for i, o in pairwise(units):
        parts += [nn.Linear(i, o), activation()]
    return nn.Sequential(*parts[:-1])


class WithTime(nn.Module):
    """A network of the state and the time."""

    def __init__(self, activation: Callable[[], nn.Module] = nn.Tanh) -> None:
        super().__init__()
        self.network = layers(3, 12, 7, 2, activation=activation)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.network(torch.cat([z, t.expand(len(z), 1)], dim=1))


class TimeInEachLayer(nn.Module):
    """The time is concatenated to what each layer is given (ConcatLinear)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 9), nn.Linear(10, 2)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        y = functional.gelu(self.first(torch.cat([z, torch.ones_like(z[:, :1]) * t], 1)))
        return self.second(torch.cat([torch.ones(len(z), 1, dtype=z.dtype, device=z.device) * t, y], 1))


class Squashed(nn.Module):
    """The time scales and shifts what each layer gives (ConcatSquash)."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.ModuleList([nn.Linear(i, o), nn.Linear(1, o), nn.Linear(1, o, bias=False)]) for i, o in ((2, 9), (9, 2))
        )

    def forward(self, t: Tensor, z: Tensor) -> Any:
        parts: Any = self.parts
        for k, (linear, gate, shift) in enumerate(parts):
            z = linear(torch.tanh(z) if k else z) * torch.sigmoid(gate(t.view(1, 1))) + shift(t.view(1, 1))
        return z


class Cubic(nn.Module):
    """A network of the cubes, as in torchdiffeq's example."""

    def __init__(self) -> None:
        super().__init__()
        self.network = layers(2, 20, 2)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.network(z**3)


class Hamiltonian(nn.Module):
    """Its rate is made of the derivative of an energy."""

    def __init__(self, activation: Callable[[], nn.Module] = nn.Tanh) -> None:
        super().__init__()
        self.energy = layers(4, 10, 1, activation=activation)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        with torch.enable_grad():
            z = z.requires_grad_(True)
            (slope,) = torch.autograd.grad(self.energy(z).sum(), z, create_graph=True)
        return torch.cat([slope[:, 2:], -slope[:, :2]], dim=1)


class Likelihood(nn.Module):
    """A flow and the logarithm of its density, by the exact trace of its Jacobian."""

    def __init__(self, activation: Callable[[], nn.Module] = nn.Tanh) -> None:
        super().__init__()
        self.field = WithTime(activation)

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z = state[0].requires_grad_(True)
            k = self.field(t, z)
            slopes = (torch.autograd.grad(k[:, i].sum(), z, create_graph=True)[0][:, i] for i in range(2))
            trace: Tensor = sum(slopes)  # type: ignore[assignment]
        return k, -trace.unsqueeze(1)


class SecondOrder(nn.Module):
    """Positions and velocities, written into one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.force, self.friction = layers(2, 7, 2, activation=nn.SiLU), nn.Parameter(torch.tensor(0.4))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        position, velocity = z.chunk(2, -1)
        rate = torch.zeros_like(z)
        rate[:, :2] = velocity
        rate[:, 2:] = self.force(position) - self.friction * velocity * torch.cos(t)
        return rate


class Embedded(nn.Module):
    """The time as sines and cosines of fixed frequencies."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.arange(1.0, 5.0))
        self.network = layers(10, 12, 2, activation=nn.Mish)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        angle = t * self.frequencies
        wave = torch.cat([angle.sin(), angle.cos()]).expand(len(z), -1)
        return self.network(torch.cat([z, wave], -1)) * torch.exp(-t) / (1 + z.pow(2).sum(-1, keepdim=True))


class Bodies(nn.Module):
    """A network for each of three bodies, and what they have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.network = layers(2, 8, 2)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        each = z.view(-1, 3, 2)
        return (self.network(each) + each.mean(1, keepdim=True)).reshape(len(z), 6)


class Prey(nn.Module):
    """Numbers times products of the state (Lotka and Volterra)."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.Parameter(torch.tensor([1.3, 0.9, 0.8, 1.8]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        (x, y), (a, b, c, d) = (z[:, 0], z[:, 1]), self.rates
        return torch.stack([a * x - b * x * y, c * x * y - d * y], dim=1)


class Pieces(nn.Module):
    """Made of what is piecewise, with a layer used twice and a matrix that is made of another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.raw = nn.Linear(2, 2), nn.Parameter(torch.tensor([[0.3, -0.2], [0.5, 0.1]]))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        y = self.layer(torch.sin(self.layer(z))) - functional.leaky_relu(z, 0.1) + torch.clamp(z, -0.5, 0.5) * t
        y = y + z @ functional.softplus(self.raw).t() - (self.raw @ z.t()).t() * torch.where(z > 0.2, 0.1 * z, z)
        return y + 0.1 * torch.maximum(z, z.flip(1)) + torch.sqrt(1 + z.abs()) - torch.log(2 + z.square()) / 3


KINDS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (WithTime, (2,)),
    (TimeInEachLayer, (2,)),
    (Squashed, (2,)),
    (Cubic, (2,)),
    (Hamiltonian, (4,)),
    (Likelihood, (2, 1)),
    (SecondOrder, (4,)),
    (Embedded, (2,)),
    (Bodies, (6,)),
    (Prey, (2,)),
    (Pieces, (2,)),
]
"""Fields, and the widths of the parts of their state."""


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind().to(DOUBLE)


class Rounding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *on: Tensor) -> Tensor:
        return 3 * on[0]
