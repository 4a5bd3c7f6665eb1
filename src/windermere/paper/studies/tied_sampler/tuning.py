"""Tuning a velocity through the steps of its sampler, by a distance to data or a reward; with steps that stay, or that
a controller adapts.

Shapes: n samples.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from windermere.adaptation import Score, SteadySteps, StepAdaptation, relative_distance, review
from windermere.errors import DivergedError
from windermere.paper.studies.tied_sampler.models import Data
from windermere.solvers import FixedStep, final_state
from windermere.solvers.counting import checking, counting

Controller: TypeAlias = StepAdaptation | SteadySteps
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""loss(samples, real), above 0."""
Scores: TypeAlias = Callable[[FixedStep], Score]
"""The score of another solver on the current batch."""
FIRST_STEP = 1 / 4
"""Where controllers begin: as coarse as a sampler that one would tune so."""


class Constant:
    """Steps that stay."""

    every = sys.maxsize
    """No iteration is due for a review."""

    def __init__(self, solver: FixedStep) -> None:
        self.solver = solver

    def review(self, loss: Tensor, scores: Scores) -> None:
        """There is nothing to decide."""


class Adapted:
    """Steps that a controller reviews, on the current batch and before the update."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.state = controller, controller.start(FIRST_STEP)
        self.every = controller.every

    @property
    def solver(self) -> FixedStep:
        return self.controller.solver(self.state)

    def review(self, loss: Tensor, scores: Scores) -> None:
        """Take what the controller decides from the next iteration on."""
        self.state = review(self.controller, self.state, Score(value=loss.log10()), scores)


@dataclass(frozen=True)
class Tuned:
    """How tuning ended."""

    solver: FixedStep
    """The one to sample with."""
    evaluations: float
    """Forward evaluations of the velocity per iteration, those of all checks included."""


def energy_distance(samples: Tensor, real: Tensor) -> Tensor:
    """With each sample paired with itself too, so that it is above 0 and has a logarithm."""
    across, inside = torch.cdist(samples, real).mean(), torch.cdist(samples, samples).mean()
    return 2 * across - inside - torch.cdist(real, real).mean()


def loss_of(kind: str, data: Data) -> Loss:
    """The energy distance from data, or minus the mean reward; nothing holds a model to where it was before."""
    if kind == "energy":
        return lambda samples, real: energy_distance(data.embed(samples), data.embed(real))
    return lambda samples, real: data.reward.shortfall(samples).mean()


def tune(field: nn.Module, data: Data, kind: str, through: FixedStep | Controller, seed: int, iterations: int) -> Tuned:
    """Tune a velocity through a solver's steps, or through those of a controller."""
    loss_function, generator = loss_of(kind, data), torch.Generator().manual_seed(2000 + seed)
    optimizer, device = torch.optim.Adam(field.parameters(), lr=data.tuning.rate), next(field.parameters()).device
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    steps = Constant(through) if isinstance(through, FixedStep) else Adapted(through)
    with counting() as count:
        for iteration in range(1, iterations + 1):
            noise = torch.randn(data.tuning.size, *data.shape, generator=generator).to(device)
            real = data.draw(data.tuning.size, generator).to(device)
            samples = _sampled(field, noise, steps.solver)
            loss = loss_function(samples, real)
            if not bool(loss.isfinite()):
                raise DivergedError(f"the loss is not finite in iteration {iteration}", iteration=iteration)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            if iteration % steps.every == 0:
                steps.review(loss, _scores(field, noise, real, loss_function, samples.detach()))
            optimizer.step()
            schedule.step()
    return Tuned(steps.solver, (int(count.forward) + int(count.checks)) / iterations)


def _sampled(field: nn.Module, noise: Tensor, solver: FixedStep) -> Tensor:
    samples = final_state(field, noise, solver)
    assert isinstance(samples, Tensor)  # as the noise is
    return samples


def _scores(field: nn.Module, noise: Tensor, real: Tensor, loss: Loss, samples: Tensor) -> Scores:
    """What a controller is told of a check solver: the logarithm of the loss, since the paper's threshold of 0.1 is for
    accuracies, and how far samples lie from those of the training solver."""

    def score(solver: FixedStep) -> Score:
        with torch.no_grad(), checking():
            checked = _sampled(field, noise, solver)
        return Score(
            value=loss(checked, real).log10(), distance=relative_distance(samples.flatten(1), checked.flatten(1))
        )

    return score
