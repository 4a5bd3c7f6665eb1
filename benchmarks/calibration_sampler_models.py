"""The samplers that the audit is calibrated on: flow matching in the plane, and some tuned through their few steps.

Shapes: n samples. All in float64, so that brute force is without rounding.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn

import windermere as wm
from benchmarks.calibration_models import fit, moons
from benchmarks.set_calibration import eight

Draw: TypeAlias = Callable[[int], Tensor]
HIDDEN, BATCH, ITERATIONS, TUNED, RATE = 48, 256, 600, 300, 5e-3
MATCHED: tuple[tuple[tuple[str, int], ...], ...] = (
    (("euler", 1), ("euler", 4), ("euler", 16), ("midpoint", 2), ("rk4", 1)),
    (("euler", 2), ("euler", 8), ("euler", 32), ("euler", 64), ("midpoint", 4), ("rk4", 8)),
)
"""The solvers that the two fields of each set are used with."""
THROUGH = (2, 4)
"""So many Euler steps others are tuned through."""


@dataclass(frozen=True)
class Trained:
    """One field, and the samplers that use it."""

    name: str
    draw: Draw
    velocity: nn.Module
    solvers: tuple[wm.FixedStep, ...]

    def sampler(self, solver: wm.FixedStep) -> wm.Sampler:
        return wm.Sampler(self.velocity, solver, order="xt", time="scalar")


class Network(nn.Module):
    """velocity(x, t)"""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, HIDDEN, HIDDEN, 2)
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        self.layers = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        rate: Tensor = self.layers(torch.cat([x, t * torch.ones_like(x[:, :1])], dim=1))
        return rate


def gaussians(n: int) -> Tensor:
    return eight(n, torch.default_generator) / 2


def checkerboard(n: int) -> Tensor:
    """Uniform on the eight black squares of four by four, each as wide as 1."""
    column, row = torch.randint(4, (n,)), 2 * torch.randint(2, (n,))
    corner = torch.stack([column, row + column % 2], dim=1).double() - 2
    return corner + torch.rand(n, 2, dtype=torch.float64)


DRAWS: Mapping[str, Draw] = {"moons": moons, "8 Gaussians": gaussians, "checkerboard": checkerboard}


def noise(n: int) -> Tensor:
    return torch.randn(n, 2, dtype=torch.float64)


def trained() -> Iterator[Trained]:
    """Two fields by flow matching for each set of points, and each tuned through a few Euler steps besides."""
    for s, (name, draw) in enumerate(DRAWS.items()):
        for i, (uses, steps) in enumerate(zip(MATCHED, THROUGH, strict=True)):
            torch.manual_seed(100 * s + i)
            velocity = _matched(draw)
            solvers = tuple(wm.FixedStep.of(method, steps=n) for method, n in uses)
            yield Trained(f"{name}, flow matching {i + 1}", draw, velocity, solvers)
            yield _tuned(name, draw, velocity, steps)


def _matched(draw: Draw) -> nn.Module:
    velocity = Network().double()
    fit(velocity, lambda: _matching(velocity, draw(BATCH)), ITERATIONS, RATE)
    return velocity


def _tuned(name: str, draw: Draw, velocity: nn.Module, steps: int) -> Trained:
    tuned = Network().double()
    tuned.load_state_dict(velocity.state_dict())
    found = Trained(f"{name}, tuned through {steps} steps", draw, tuned, (wm.FixedStep.of("euler", steps=steps),))
    sampler = found.sampler(found.solvers[0])
    fit(tuned, lambda: _energy(sampler(noise(BATCH)), draw(BATCH)), TUNED, RATE)
    return found


def _matching(velocity: nn.Module, real: Tensor) -> Tensor:
    """The loss of flow matching along straight lines from noise to samples."""
    start, t = noise(len(real)), torch.rand(len(real), 1, dtype=torch.float64)
    return nn.functional.mse_loss(velocity(start + t * (real - start), t), real - start)


def _energy(generated: Tensor, real: Tensor) -> Tensor:
    """The energy distance, no sample paired with itself."""
    return 2 * torch.cdist(generated, real).mean() - torch.pdist(generated).mean() - torch.pdist(real).mean()
