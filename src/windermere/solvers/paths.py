"""Fast paths: ways to do a whole solve in one piece, and the order in which `solve` asks them.

A path answers None to whatever is not its own or out of the ordinary: then the next one is asked, and at last the field
is solved step by step, which is every path's slow reference.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windermere.errors import UsageError
from windermere.solvers.field import Prepared, Rate, as_it_is, in_autocast
from windermere.solvers.problem import Problem, Walked
from windermere.solvers.torch_modes import is_mixed, may_be_transformed


class Adjoined(NamedTuple):
    """What a path found on an adjoint's way back between two times."""

    a: Tensor
    """The cotangent at the earlier time; the state there is known already."""
    gradient: Sequence[Tensor]
    """The gradients of the tensors that `FastAdjoint` names."""
    evaluations: NDArray[np.int64]


Adjoin: TypeAlias = Callable[[tuple[float, float], Tensor, Tensor], Adjoined | None]


@dataclass(frozen=True)
class FastAdjoint:
    """A path's way back: from a state and its cotangent at one time to those at an earlier one, or None."""

    adjoin: Adjoin
    tensors: tuple[Tensor, ...]
    rate: Rate
    """What to go back by where `adjoin` says None: it depends on these tensors themselves, not on something that was
    made from them once per solve."""


class FastPath:
    """One way to solve in one piece. Each method answers a problem, or None."""

    captures: bool = False
    """Whether it is the one that `captured=True` asks for: then no other is asked, and it says why if it does not."""

    own_times: bool = False
    """Whether it may be asked where each sample has times of its own."""

    def prepare(self, field: Any) -> Prepared | None:
        """The field made ready for a solve step by step, with work done once rather than at each evaluation."""

    def fixed(self, problem: Problem) -> Walked | None:
        """A solve with fixed steps (`problem.grid`), with the gradient that it asks for."""

    def adaptive(self, problem: Problem) -> Walked | None:
        """A solve with steps that are chosen as solvers/adaptive.py does, with the gradient that it asks for."""

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        """The way back of the continuous adjoint: the problem's solvers and groups are those of the way back."""


_paths: tuple[FastPath, ...] = ()
"""In the order in which they are asked."""
_enabled: ContextVar[bool] = ContextVar("fast paths are asked", default=os.environ.get("WINDERMERE_FAST") != "0")


def register(*paths: FastPath) -> None:
    """Let `solve` ask these paths, in this order, before those that were registered earlier: whoever comes later knows
    more special fields."""
    global _paths
    _paths = (*paths, *(path for path in _paths if path not in paths))


@contextmanager
def fast_paths(enabled: bool) -> Iterator[None]:
    """Within `with fast_paths(False):`, every solve goes step by step through PyTorch, whatever its field is.

    The environment variable `WINDERMERE_FAST=0` does so for a whole process.

    >>> import torch
    >>> import windermere as wm
    >>> field = wm.Autonomous(torch.nn.Linear(2, 2))
    >>> with wm.fast_paths(False):
    ...     end = wm.solve(field, torch.ones(3, 2), wm.FixedStep("euler", step=1 / 8)).final
    """
    token = _enabled.set(enabled)
    try:
        yield
    finally:
        _enabled.reset(token)


def are_asked() -> bool:
    """Whether fast paths are asked here at all."""
    return _enabled.get()


def prepare(field: Any, z: Tensor, *, captured: bool = False) -> tuple[Prepared, tuple[FastPath, ...]]:
    """A field ready to be solved from z, and the paths to ask: none where PyTorch wants to see, or round, each
    operation; and if it is to be captured, only the one that does so."""
    paths = _paths if are_asked() else ()
    if captured:
        paths = tuple(path for path in paths if path.captures)
        if not paths or is_mixed(z) or may_be_transformed():
            raise UsageError(
                "captured=True, but this solve cannot be captured: fast paths are turned off, or autocast or a "
                "transform of torch.func is in force"
            )
    if is_mixed(z):
        plain = as_it_is(field)
        return Prepared(in_autocast(plain.rate, z.device.type), plain.tensors), ()
    ready = next((found for path in paths if (found := path.prepare(field)) is not None), None)
    return ready or as_it_is(field), () if may_be_transformed() else paths


def solve_in_one_piece(problem: Problem) -> Walked | None:
    """The solve of the first path that does it; None where there is none."""
    for path in problem.paths:
        walked = path.adaptive(problem) if problem.adaptive else path.fixed(problem)
        if walked is not None:
            return walked
    return None
