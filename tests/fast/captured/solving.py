"""One solve, captured and not: its states, its gradients, its costs, or what it says is wrong."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import windermere as wm

solve: Any = wm.solve
"""Of a state that is one tensor."""
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@dataclass(frozen=True)
class Way:
    """A way of calling `solve`."""

    solver: Any
    times: tuple[float, ...] = (0.0, 1.0)
    options: dict[str, Any] = field(default_factory=dict)
    members: int = 0
    """Of an ensemble; 0 is none."""
    graded: bool = True


@dataclass(frozen=True)
class Result:
    """What came of a solve."""

    tensors: list[Tensor | None]
    numbers: dict[str, Any]


def solve_once(field: Any, z: Any, way: Way, parameters: Sequence[Tensor]) -> Result:
    """The states and the gradients by the first state and the parameters, as far as there are any."""
    parts = [part.detach().clone().requires_grad_(way.graded) for part in (z if isinstance(z, tuple) else (z,))]
    solver = [way.solver] * way.members if way.members and not isinstance(way.solver, list) else way.solver
    with torch.set_grad_enabled(way.graded), wm.counting() as count:
        solution = wm.solve(field, tuple(parts) if isinstance(z, tuple) else parts[0], solver, way.times, **way.options)
        states = solution.states if isinstance(solution.states, tuple) else (solution.states,)
        loss = sum((part * torch.arange(1, part.numel() + 1).to(part).cos().view_as(part)).sum() for part in states)
        wanted = [*parts, *(p for p in parameters if p.requires_grad)]
        found: Sequence[Tensor | None] = ()
        if isinstance(loss, Tensor) and loss.requires_grad:
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
    costs = {name: np.asarray(n).tolist() for name, n in (*vars(solution.stats).items(), *vars(count).items())}
    return Result([*(part.detach() for part in states), *found], costs)


def outcome(work: Callable[[], Result]) -> Result | tuple[str, str]:
    """A result, or the error that it is."""
    try:
        return work()
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)


class Shaken(nn.Module):
    """A field that is given each state with errors of an ulp of float32: what rounding its steps otherwise may do."""

    def __init__(self, field: nn.Module, seed: int) -> None:
        super().__init__()
        self.field, self.generator = field, torch.Generator("cpu").manual_seed(seed)

    def forward(self, t: Tensor, z: Any) -> Any:
        return self.field(t, tuple(map(self.shake, z)) if isinstance(z, tuple) else self.shake(z))

    def shake(self, z: Tensor) -> Tensor:
        signs = 2 * torch.randint(2, z.shape, generator=self.generator).to(z) - 1
        return z * (1 + torch.finfo(torch.float32).eps * signs)


def sway(field: nn.Module, z: Any, way: Way) -> list[float]:
    """How far each tensor of a solve's goes if each state that the field is given is off by an ulp of float32: measured
    in float64, step by step, the most of a few draws."""
    exact = copy.deepcopy(field).double()
    start, own = tuple(part.double() for part in z) if isinstance(z, tuple) else z.double(), parameters_of(exact)
    with wm.fast_paths(False):
        calm, *draws = (
            solve_once(f, start, way, own).tensors for f in (exact, *(Shaken(exact, seed) for seed in range(4)))
        )
    return [
        max(0.0 if x is None or y is None else float((x - y).abs().max()) for y in others)
        for x, *others in zip(calm, *draws, strict=True)
    ]


def leeway(field: Any, z: Any, way: Way) -> list[float] | None:
    """How far two solves that round differently may be apart beside the usual tolerance: both sway."""
    return [2 * s for s in sway(field, z, way)] if isinstance(field, nn.Module) else None


def assert_same(found: Any, wanted: Any, spare: Sequence[float] | None = None) -> None:
    """Up to rounding, and what is to spare for each tensor; errors to the word."""
    if not isinstance(found, Result) or not isinstance(wanted, Result):
        assert found == wanted
        return
    assert found.numbers == wanted.numbers
    assert len(found.tensors) == len(wanted.tensors)
    spare = spare or [0.0] * len(wanted.tensors)
    for mine, theirs, more in zip(found.tensors, wanted.tensors, spare, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            dtype = torch.float32 if torch.float32 in (theirs.dtype, mine.dtype) else torch.float64
            tolerance = TOLERANCE[dtype] * (1 + float(theirs.abs().sum()) / max(1, theirs.numel()))
            torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance + more)


def parameters_of(field: Any) -> list[Tensor]:
    """A field's parameters: those of a module, or what a function says are its."""
    return list(field.parameters()) if isinstance(field, nn.Module) else list(getattr(field, "tensors", ()))


def assert_as_uncaptured(field: Any, z: Any, way: Way, parameters: Sequence[Tensor] | None = None) -> None:
    """Captured or not, a solve is the same."""
    own = parameters_of(field) if parameters is None else parameters
    found = outcome(lambda: solve_once(field, z, way, own))
    with wm.fast_paths(False):
        assert_same(found, outcome(lambda: solve_once(field, z, way, own)))


def without_gradient(way: Way) -> Way:
    return replace(way, graded=False)
