"""What is audited: anything that turns a batch of inputs into outputs by solving an ODE, under whichever solver is asked.

Shapes: n samples, D = size of one sample's state at the end of the last solve.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from windermere.models import ODEBlock, ode_blocks, using
from windermere.solvers import Solver, checking, counting

Change: TypeAlias = Callable[[Solver], Solver]
"""From a solve's own solver to the one to test it with."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One batch through a model."""

    outputs: Tensor
    """[n, ...], float64 on the CPU."""
    states: Tensor | None
    """[n, D], float64 on the CPU: where the last solve ended; None where a model hides it."""
    evaluations: int
    """Of the field, by all solves of the pass."""


@dataclass(frozen=True, kw_only=True)
class Insight:
    """The last solve of a model from inside: what evidence beyond predictions needs."""

    field: Callable[[Tensor, Tensor], Tensor]
    """field(t, z), in float64."""
    start: Tensor
    """[n, ...]: the states it starts from, in float64."""
    times: tuple[float, float]
    head: nn.Module | None
    """What comes after it, in float64, where that is known."""


class Subject(Protocol):
    """A model to be audited."""

    library: str
    """Where its solver comes from: `windermere`, `torchdiffeq`, ..."""
    solvers: tuple[Solver, ...]
    """What the solves of one pass were trained with, in their order; the last one decides sweeps."""
    notes: tuple[str, ...]
    """What a reader of the verdict must know, such as that a model can't run in float64."""

    def forward(self, x: Any, change: Change | None, *, double: bool = False) -> Pass:
        """A batch under the model's own solver (None) or a changed one; `double` asks for float64 throughout.

        Raises `DoublePrecisionError` where the model can't run in float64.
        """
        ...

    def insight(self, x: Any) -> Insight | None:
        """The last solve from inside, None where the model hides it."""
        ...
