"""The memory of a solve in C, and calls of native.c's functions with it."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.models.compiled import library, vector_bytes
from windermere.solvers import Adaptive, Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.runge_kutta import propagating_stages

Weights: TypeAlias = Sequence[Tensor]
C_TYPES = {torch.float32: "float", torch.float64: "double"}
WORTH_A_THREAD = 256
"""Evaluations of tiles, a microsecond or so each, below which a second thread only costs."""


Pointers = ctypes.c_void_p * 6


class _Walk(ctypes.Structure):
    """As in native.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "channels", "width", "tiles")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep", "shared")),
        *((name, Pointers) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "sizes", "steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "active", "on_end", "on_start", "shares", "rates")),
        ("adjoint", ctypes.c_long),
        *((name, ctypes.c_double) for name in ("begin", "finish", "smallest", "budget", "order")),
        *((name, ctypes.c_double) for name in ("safety", "most_growth", "most_shrinking", "rounding")),
        *((name, ctypes.c_void_p) for name in ("rtol", "atol", "evaluations", "rejected", "status")),
    )


def is_graded(z: Tensor, weights: Weights) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in (z, *weights))


class _OnTape(torch.autograd.Function):
    """A solve that has been done; the backward pass is the exact gradient of its operations."""

    @staticmethod
    def forward(ctx: Any, call: "Call", end: Sequence[Tensor], z: Tensor, *weights: Tensor) -> Tensor:
        ctx.call = call  # which must not hold the end, as the end holds it
        return end[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *ctx.call.back(grads[0].contiguous(), ctx.needs_input_grad[2])


@dataclass(frozen=True)
class Choice:
    """How steps are chosen, and what that cost."""

    numbers: Mapping[str, float]
    tolerances: Mapping[str, NDArray[np.float64]]
    evaluations: NDArray[np.int64]
    rejected: NDArray[np.int64]
    status: NDArray[np.int64]

    @classmethod
    def of(cls, tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor) -> "Choice":
        numbers = {"begin": times[0], "finish": times[-1], "order": tableau.embedded_order + 1}
        numbers |= {"smallest": smallest_step(times, z.dtype), "budget": solvers[0].max_steps, "safety": SAFETY}
        numbers |= {"most_growth": MOST_GROWTH, "most_shrinking": MOST_SHRINKING, "rounding": torch.finfo(z.dtype).eps}
        tolerances = {name: np.array([getattr(s, name) for s in solvers]) for name in ("rtol", "atol")}
        return cls(numbers, tolerances, *(np.zeros(len(solvers), np.int64) for _ in range(3)))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.tolerances, "evaluations": self.evaluations, "rejected": self.rejected, "status": self.status}


class Call:
    """A solve's memory, there and back."""

    def __init__(
        self,
        tableau: Tableau,
        sizes: NDArray[np.float64],
        steps: NDArray[np.int64],
        z: Tensor,
        weights: Weights,
        choice: Choice | None = None,
        adjoint: bool = False,
    ) -> None:
        """Of steps [members] with sizes [members, room]; or of one number and [room], which all members share. For a
        model alone the member axis is left out of the state and the weights."""
        *lead, samples, points = z.shape
        (members,), channels, lanes = lead or (1,), weights[0].shape[-3], _lanes(z)
        width, tiles = -(-channels // (2 * lanes)) * 2 * lanes, -(-samples // lanes)
        stages, room, keep = propagating_stages(tableau), sizes.shape[-1], not adjoint and is_graded(z, weights)
        self.start = z.detach().contiguous()
        self.weights = [w if w.is_contiguous() else w.detach().contiguous() for w in weights]
        self.shapes = [w.shape for w in weights]  # which may not be theirs any more on the way back
        self.arrays = {"tableau": table(tableau), "sizes": sizes, "steps": steps}
        self.keep, self.longest = keep, room
        """Whether the way back is wanted, and about how many steps it has."""
        self.share = (6 * (channels + 1) * width + lanes) * (1 + adjoint)
        """Room for a tile's share of the gradients; for an adjoint also for that of a step not yet accepted."""
        self.walk = _Walk(members, samples, points, channels, width, tiles, stages, tableau.stages, room, keep)
        self.walk.shared, self.walk.adjoint = steps.ndim == 0, adjoint
        self.walk.start = self.start.data_ptr()
        self.walk.weights = Pointers(*[w.data_ptr() for w in self.weights])
        state = members * tiles * lanes * points * (1 + adjoint)
        rows = ((room if keep else 1) * stages + 1) * state
        parts = {"layers": members * ((6 * (channels + 1) + 3 * channels + 5) * width + lanes), "rows": rows}
        if choice is not None:
            parts["rates"] = state * tableau.stages
            self.arrays |= choice.arrays
            for name, number in choice.numbers.items():
                setattr(self.walk, name, number)
        if keep:
            parts["active"] = rows * width // (2 * lanes)
        self.memory = self.start.new_empty(sum(parts.values()))
        address, size = self.memory.data_ptr(), self.memory.element_size()
        for name, entries in parts.items():
            setattr(self.walk, name, address)
            address += entries * size
        for name, array in self.arrays.items():
            setattr(self.walk, name, array.ctypes.data)

    def there(self, name: str, steps: int) -> Tensor:
        """The state at the end, by a function of native.c, in about so many steps."""
        end = torch.empty_like(self.start)
        self.walk.end = end.data_ptr()
        self.run(name, self.walk, steps)
        return end

    def on_tape(self, end: Tensor, z: Tensor, weights: Weights) -> Tensor:
        if not self.keep:
            return end
        return cast(Tensor, _OnTape.apply(self, [end], z, *weights))  # type: ignore[no-untyped-call]

    def back(self, on_end: Tensor, wants_start: bool) -> tuple[Tensor | None, ...]:
        """The cotangents of the start, if wanted, and of the weights."""
        walk = _Walk.from_buffer_copy(self.walk)  # as another thread may go back as well
        on_start = torch.empty_like(on_end) if wants_start else None
        return on_start, *self.with_cotangents("back", walk, self.longest, on_end, on_start)

    def adjoined(self, steps: int, a: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The state and its cotangent taken back in time, and the gradients of the weights."""
        start, on_start = torch.empty_like(self.start), torch.empty_like(self.start)
        self.walk.end = start.data_ptr()
        return start, on_start, self.with_cotangents("adapt", self.walk, steps, a.contiguous(), on_start)

    def with_cotangents(
        self, name: str, walk: _Walk, steps: int, on_end: Tensor, on_start: Tensor | None
    ) -> list[Tensor]:
        """Run a function that also computes the gradients of the weights."""
        gradients = [self.start.new_empty(shape) for shape in self.shapes]
        shares = self.start.new_empty(walk.members * walk.tiles * self.share)
        walk.on_end, walk.shares = on_end.data_ptr(), shares.data_ptr()
        walk.on_start = None if on_start is None else on_start.data_ptr()
        walk.gradients = Pointers(*[g.data_ptr() for g in gradients])
        self.run(name, walk, steps)
        return gradients

    def run(self, name: str, walk: _Walk, steps: int) -> None:
        """Call a function of native.c, for about so many steps."""
        members, tiles = walk.members, walk.tiles
        work = members * tiles * steps * walk.stages
        items = members if name == "adapt" else members * tiles
        threads = min(torch.get_num_threads(), items, 1 + work // WORTH_A_THREAD)
        getattr(library(C_TYPES[self.start.dtype]), name)(ctypes.byref(walk), threads)


def _lanes(z: Tensor) -> int:
    """Samples of a tile, and numbers of a vector."""
    return vector_bytes(C_TYPES[z.dtype]) // z.element_size()


@cache
def table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 2, stages]: a, b, and the weights of the error where there is an estimate."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error)]
    return np.array(lines, np.float64)
