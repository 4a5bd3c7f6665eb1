"""What the peers are asked to do: training steps of the paper's Sphere2 model, all from the same weights and data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import windermere as wm
from windermere.paper import data
from windermere.paper.architectures import architecture, initialise
from windermere.solvers import Solver

BATCH, LEARNING_RATE = 128, 1e-4
Gradient: TypeAlias = Mapping[str, NDArray[np.float32]]
"""By the parameter's name, flattened, members first."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training step: forward, backward, Adam."""

    method: str
    steps: int | None = None
    tolerance: float | None = None
    """rtol = atol, where steps are adaptive."""
    members: int = 1
    adjoint: bool = False
    """The continuous adjoint rather than backpropagation."""
    device: str = "cpu"

    @property
    def solver(self) -> Solver:
        if self.tolerance is not None:
            return wm.Adaptive(self.method, tolerance=self.tolerance)
        return wm.FixedStep.of(self.method, steps=self.steps or 1)

    def __str__(self) -> str:
        precision = f"{self.steps} steps" if self.tolerance is None else f"tolerance {self.tolerance:g}"
        return f"{self.method}, {precision}" + (", adjoint" if self.adjoint else "")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One library's way to do a piece of work."""

    library: str
    form: str
    """How the field and the solve are written."""
    step: Callable[[], object]
    """One training step; the losses it saw, perhaps still under way on a device."""
    graded: Callable[[], tuple[list[float], Gradient]]
    """Losses of all members and the gradient of their sum, at the first weights."""
    state: Callable[[], Mapping[str, Tensor]] = dict
    """The weights now, where a library keeps them stacked."""
    compile_seconds: float = 0.0


def model(seed: int, solver: Solver) -> nn.Sequential:
    made = architecture("sphere2", solver)
    initialise(made, seed)
    return made


def batch(device: str = "cpu") -> tuple[Tensor, Tensor]:
    """One for all members, so that losses compare."""
    split = data.load("sphere2").train
    return split.inputs[:BATCH].to(device), split.labels[:BATCH].to(device)


def weights(work: Work) -> dict[str, Tensor]:
    """Stacked, with a leading member axis."""
    states = [model(seed, work.solver).state_dict() for seed in range(work.members)]
    return {name: torch.stack([state[name] for state in states]).to(work.device) for name in states[0]}


def difference(one: tuple[list[float], Gradient], other: tuple[list[float], Gradient]) -> tuple[float, float]:
    """Relative: the largest of losses; the largest of a gradient's entries, over the largest entry of its tensor."""
    losses = max(abs(a / b - 1) for a, b in zip(one[0], other[0], strict=True))
    pairs = [(one[1][name], other[1][name]) for name in one[1]]
    return losses, max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
