"""The models that the audit is calibrated on beside classifiers: learned trajectories, and densities of the plane.

Shapes: n samples, T = 16 times. All in float64, so that brute force is without rounding.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor, nn

import windermere as wm

TIMES = tuple(0.2 * i for i in range(16))
SAMPLES, HIDDEN, ITERATIONS = 200, 32, 400
SOLVERS = {"euler": (0.2, 0.1, 0.05, 0.025), "midpoint": (0.2, 0.1), "rk4": (0.2, 0.1)}
LIKELIHOOD_STEPS = {"euler": (2, 4, 8, 16, 32), "midpoint": (2, 4, 8), "rk4": (1, 4)}


@dataclass(frozen=True)
class Case:
    """One trained model, and what it is tested with."""

    name: str
    model: nn.Module
    batch: tuple[Tensor, Tensor | None]
    metric: str


def _pendulum(z: Tensor) -> Tensor:
    return torch.stack([z[:, 1], -2 * torch.sin(z[:, 0])], dim=1)


def _damped(z: Tensor) -> Tensor:
    return torch.stack([z[:, 1], -3 * z[:, 0] - 0.4 * z[:, 1]], dim=1)


def _predators(z: Tensor) -> Tensor:
    x, y = (z + 2).unbind(dim=1)
    return torch.stack([x * (1 - y / 2), y * (x / 2 - 1)], dim=1)


def _spiral(z: Tensor) -> Tensor:
    return z @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=torch.float64).T - 0.1 * z**3


SYSTEMS: dict[str, Callable[[Tensor], Tensor]] = {
    "pendulum": _pendulum,
    "damped oscillator": _damped,
    "Lotka-Volterra": _predators,
    "spiral": _spiral,
}


class Series(nn.Module):
    """States at all times, [n, T, 2]."""

    def __init__(self, field: nn.Module, solver: wm.Solver) -> None:
        super().__init__()
        self.block = wm.ODEBlock(field, solver, times=TIMES)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.block(x)
        return states.transpose(0, 1)


class Density(nn.Module):
    """log p(x), with the exact trace of a field of one hidden layer."""

    def __init__(self, solver: wm.Solver, field: nn.Module | None = None) -> None:
        super().__init__()
        self.block = wm.ODEBlock(field or TracedField(), solver)

    def forward(self, x: Tensor) -> Tensor:
        end = self.block(torch.cat([x, torch.zeros_like(x[:, :1])], dim=1))
        log_p: Tensor = end[:, 2] - end[:, :2].square().sum(dim=1) / 2 - log(2 * pi)
        return log_p


class TracedField(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, HIDDEN), nn.Linear(HIDDEN, 2)

    def forward(self, t: Tensor, state: Tensor) -> Tensor:
        z = state[:, :2]
        hidden = torch.tanh(self.inner(torch.cat([z, t * torch.ones_like(z[:, :1])], dim=1)))
        through = (self.outer.weight.T * self.inner.weight[:, :2]).sum(dim=1)
        trace = ((1 - hidden**2) * through).sum(dim=1, keepdim=True)
        return torch.cat([self.outer(hidden), trace], dim=1)


def regressions() -> Iterator[Case]:
    """As many of each system as make 30, half of them measured with noise, and one that is used with too coarse a
    solver for its field."""
    for s, (name, rate) in enumerate(SYSTEMS.items()):
        every = [(method, step) for method, steps in SOLVERS.items() for step in steps]
        for i, (method, step) in enumerate(every if s < 2 else every[:7]):
            torch.manual_seed(100 * s + i)
            noise = 0.01 * (i % 2)
            (x, y), test = (_measured(rate, noise) for _ in range(2))
            field = nn.Sequential(nn.Linear(2, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))
            model = Series(wm.Autonomous(field), wm.FixedStep(method, step=step)).double()
            fit(model, lambda m=model, x=x, y=y: nn.functional.mse_loss(m(x), y))
            yield Case(f"{name}, {method}, h = {step:g}, noise {noise:g}", model, test, "mse")
            if (method, step) == ("rk4", 0.2):
                coarse = Series(model.block.field, wm.FixedStep("euler", step=step))
                yield Case(f"{name}, trained with rk4, used with euler, h = {step:g}", coarse, test, "mse")


def likelihoods() -> Iterator[Case]:
    """Ten densities for each of two sets of points, and one that is used with too coarse a solver for its field."""
    for s, draw in enumerate((moons, ring)):
        for i, (method, steps) in enumerate((m, n) for m, counts in LIKELIHOOD_STEPS.items() for n in counts):
            torch.manual_seed(1000 + 100 * s + i)
            x, test = draw(500), draw(1000)
            model = Density(wm.FixedStep.of(method, steps=steps)).double()
            fit(model, lambda m=model, x=x: -m(x).mean())
            yield Case(f"{draw.__name__}, {method}, {steps} steps", model, (test, None), "nll")
            if (method, steps) == ("rk4", 4):
                coarse = Density(wm.FixedStep.of("euler", steps=steps), model.block.field)
                yield Case(f"{draw.__name__}, trained with rk4, used with euler", coarse, (test, None), "nll")


def _measured(rate: Callable[[Tensor], Tensor], noise: float) -> tuple[Tensor, Tensor]:
    x = 2 * torch.rand(SAMPLES, 2, dtype=torch.float64) - 1
    states = wm.solve(lambda t, z: rate(z), x, wm.FixedStep("rk4", step=0.01), TIMES).states
    y = torch.as_tensor(states).transpose(0, 1)
    return x, y + noise * torch.randn_like(y)


def moons(n: int) -> Tensor:
    angle = pi * torch.rand(n, dtype=torch.float64)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return 1.5 * (torch.stack([x - 0.5, y - 0.25], dim=1) + 0.1 * torch.randn(n, 2, dtype=torch.float64))


def ring(n: int) -> Tensor:
    angle = 2 * pi * torch.rand(n, dtype=torch.float64)
    radius = 1.5 + 0.15 * torch.randn(n, dtype=torch.float64)
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)


def fit(model: nn.Module, loss: Callable[..., Tensor], iterations: int = ITERATIONS, rate: float = 1e-2) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    for _ in range(iterations):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()
