"""What is tuned: velocities of points in the plane or of images that flow matching has trained, without any solver.

Shapes: n samples, K aims, d rows that are compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import pi
from pathlib import Path
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn

from windermere.paper.studies.study import HERE, Place
from windermere.paper.studies.tied_sampler.fitting import Batches, Fit
from windermere.paper.studies.tied_sampler.images import KINDS, UNet, digits
from windermere.paper.studies.tied_sampler.rewards import Reward

Draw: TypeAlias = Callable[[int, torch.Generator], Tensor]
"""So many real samples [n, ...]."""
WIDTH = 64
"""How wide the networks in the plane are."""
MATCHING, TUNING = Batches(512, 1e-2), Batches(256, 1e-3)
"""How these are trained."""


class Data(Protocol):
    """What samplers are trained on, and judged by."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """What the tests compute in."""
        ...

    @property
    def matching(self) -> Batches: ...

    @property
    def tuning(self) -> Batches: ...

    def draw(self, n: int, generator: torch.Generator, /) -> Tensor:
        """Real samples for training."""
        ...

    def tests(self, n: int, generator: torch.Generator, /) -> Tensor:
        """Real samples for tests."""
        ...

    def embed(self, samples: Tensor) -> Tensor:
        """What the energy distance compares, [n, d]."""
        ...

    def others(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """What else judges them, by name."""
        ...

    @property
    def reward(self) -> Reward: ...

    @property
    def other_rewards(self) -> Mapping[str, Reward]:
        """What else judges rewarded samples, by name."""
        ...


@dataclass(frozen=True, eq=False)
class Points:
    """A distribution in the plane, and the points that a reward draws its samples to."""

    draw: Draw
    aims: Tensor
    """[K, 2]"""
    matching: Batches = MATCHING
    tuning: Batches = TUNING
    shape: tuple[int, ...] = (2,)
    dtype: torch.dtype = torch.float64

    def tests(self, n: int, generator: torch.Generator) -> Tensor:
        return self.draw(n, generator)

    def embed(self, samples: Tensor) -> Tensor:
        """As they are."""
        return samples

    def others(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        return {}

    @property
    def reward(self) -> Reward:
        """Minus the distance from the nearest aim."""
        return Reward(lambda samples: torch.cdist(samples, self.aims.to(samples)).amin(dim=1))

    @property
    def other_rewards(self) -> Mapping[str, Reward]:
        return {}


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


def data_of(name: str, place: Place = HERE) -> Data:
    return digits(name, place) if name in KINDS else POINTS[name]


@cache
def matched_weights(data: str, network: str, seed: int, iterations: int, place: Place = HERE) -> Mapping[str, Tensor]:
    """The weights of a velocity that flow matching has trained."""
    field, of = _made(data, network, seed).to(place.device), data_of(data, place)
    fit = Fit(field, of.matching, 1000 + seed, iterations)
    fit.run(matching_of(field, of), _kept(place, f"{data}-{network}-matched-{iterations}-seed-{seed}"))
    return {name: tensor.detach().clone() for name, tensor in field.state_dict().items()}


def _kept(place: Place, name: str) -> Path | None:
    return place.folder and place.folder / f"{name}.safetensors"


def matching_of(field: nn.Module, data: Data) -> Callable[[torch.Generator], Tensor]:
    """The loss of flow matching on the batches that a generator draws."""
    device = next(field.parameters()).device
    return lambda generator: matching_loss(field, data.draw(data.matching.size, generator).to(device), generator)


def matching_loss(field: nn.Module, real: Tensor, generator: torch.Generator) -> Tensor:
    """The loss of flow matching along straight lines from noise to samples, each at a time of its own."""
    noise, t = torch.randn(real.shape, generator=generator), torch.rand(len(real), 1, generator=generator)
    noise, t = noise.to(real.device), t.to(real.device)
    along = t.reshape(-1, *(1,) * (real.ndim - 1))
    return nn.functional.mse_loss(field(t, noise + along * (real - noise)), real - noise)


def matched(data: str, network: str, seed: int, iterations: int, place: Place = HERE) -> nn.Module:
    """A velocity field(t, x) as flow matching leaves it, to be tuned."""
    field = _made(data, network, seed).to(place.device)
    field.load_state_dict(matched_weights(data, network, seed, iterations, place))
    return field


def matched_longer(data: str, network: str, seed: int, iterations: int, more: int, place: Place = HERE) -> nn.Module:
    """A velocity whose flow matching goes on for more iterations, at the learning rate of tuning."""
    field, of = matched(data, network, seed, iterations, place), data_of(data, place)
    fit = Fit(field, Batches(of.matching.size, of.tuning.rate), 4000 + seed, more)
    fit.run(matching_of(field, of), _kept(place, f"{data}-{network}-matched-{iterations}+{more}-seed-{seed}"))
    return field


def _made(data: str, network: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if network in NETWORKS:
            return NETWORKS[network]()
        unet = UNet(KINDS[data].side, KINDS[data].width)
        laid: nn.Module = unet.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return laid
