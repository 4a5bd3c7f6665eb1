"""What is tuned: points in the plane, and velocities that flow matching has trained, without any solver.

Shapes: n samples, K aims.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import pi
from typing import TypeAlias

import torch
from torch import Tensor, nn

Draw: TypeAlias = Callable[[int, torch.Generator], Tensor]
"""So many real samples [n, 2]."""
WIDTH, BATCH, RATE = 64, 512, 1e-2
"""The width of the networks, and the batches and learning rate of flow matching."""


@dataclass(frozen=True, eq=False)
class Points:
    """A distribution in the plane, and the points that a reward draws its samples to."""

    draw: Draw
    aims: Tensor
    """[K, 2]"""

    def shortfall(self, samples: Tensor) -> Tensor:
        """Minus the reward of each sample, [n]: its distance from the nearest aim."""
        return torch.cdist(samples, self.aims.to(samples)).amin(dim=1)


def eight_gaussians(n: int, generator: torch.Generator) -> Tensor:
    angle = torch.randint(8, (n,), generator=generator) * (pi / 4)
    return 2 * torch.stack([angle.cos(), angle.sin()], dim=1) + 0.2 * torch.randn(n, 2, generator=generator)


def two_moons(n: int, generator: torch.Generator) -> Tensor:
    angle, upper = pi * torch.rand(n, generator=generator), torch.randint(2, (n,), generator=generator)
    x, y = angle.cos() + 0.5 - upper, angle.sin() * (2 * upper - 1) + 0.25 - 0.5 * upper
    return 1.5 * torch.stack([x, y], dim=1) + 0.1 * torch.randn(n, 2, generator=generator)


POINTS: Mapping[str, Points] = {
    "gaussians": Points(eight_gaussians, torch.tensor([[2.0, 0.0], [-2.0, 0.0]])),  # two of the modes
    "moons": Points(two_moons, torch.tensor([[-0.75, 1.125], [0.75, -1.125]])),  # the tops of the arcs
}


class Plain(nn.Module):
    """Linear layers, the time among their inputs."""

    def __init__(self) -> None:
        super().__init__()
        hidden = (nn.Linear(3, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.layers = nn.Sequential(*hidden, nn.Linear(WIDTH, 2))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        rate: Tensor = self.layers(torch.cat([x, t.expand(len(x), 1)], dim=1))
        return rate


class Gated(nn.Module):
    """A linear layer that the time gates and shifts, as FFJORD's "concatsquash" does."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(inputs, outputs), nn.Linear(1, outputs)
        self.shift = nn.Linear(1, outputs, bias=False)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        rate: Tensor = self.linear(x) * self.gate(t).sigmoid() + self.shift(t)
        return rate


class Squashed(nn.Module):
    """Three gated layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = Gated(2, WIDTH), Gated(WIDTH, WIDTH), Gated(WIDTH, 2)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        time = t.reshape(-1, 1)
        hidden = self.second(time, self.first(time, x).tanh()).tanh()
        rate: Tensor = self.last(time, hidden)
        return rate


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {"mlp": Plain, "concatsquash": Squashed}


@cache
def matched_weights(data: str, network: str, seed: int, iterations: int) -> Mapping[str, Tensor]:
    """The weights of a velocity that flow matching has trained."""
    field, points = _made(network, seed), POINTS[data]
    generator = torch.Generator().manual_seed(1000 + seed)
    optimizer = torch.optim.Adam(field.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    for _ in range(iterations):
        loss = matching_loss(field, points.draw(BATCH, generator), generator)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    return {name: tensor.detach().clone() for name, tensor in field.state_dict().items()}


def matching_loss(field: nn.Module, real: Tensor, generator: torch.Generator) -> Tensor:
    """The loss of flow matching along straight lines from noise to samples, each at a time of its own."""
    noise, t = torch.randn(real.shape, generator=generator), torch.rand(len(real), 1, generator=generator)
    return nn.functional.mse_loss(field(t, noise + t * (real - noise)), real - noise)


def matched(data: str, network: str, seed: int, iterations: int) -> nn.Module:
    """A velocity field(t, x) as flow matching leaves it, to be tuned."""
    field = _made(network, seed)
    field.load_state_dict(matched_weights(data, network, seed, iterations))
    return field


def _made(network: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[network]()
