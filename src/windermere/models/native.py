"""The sphere networks' solves in C, for CPUs: native.c.

Where there is no compiler, or `WINDERMERE_NATIVE=0`, the walk of PyTorch operations in dense.py does the same work. The
same inputs give the same bits, however many threads there are: gradients are added tile by tile, in order.

Shapes: S members, N steps, B samples in T tiles of L lanes, d points, C channels. *Weights* are those of Conv1d(1, C, 1),
Conv1d(C, C, 3, padding=1) and Conv1d(C, 1, 1), each with its bias, and with a leading member axis.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.models.compiled import library
from windermere.solvers import Tableau
from windermere.solvers.field import Walk
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.runge_kutta import propagating_stages

Weights: TypeAlias = Sequence[Tensor]
C_TYPES = {torch.float32: "float", torch.float64: "double"}
WIDTH_UP_TO = 512
"""Of a hidden layer, all points together: what fits on a thread's stack, and in its cache."""
HIDDEN_KEPT = 4_000_000
"""Values of second layers that a solve keeps for the way back; more would leave the cache, and are computed again."""
WORTH_A_THREAD = 256
"""Evaluations of tiles, a microsecond or so each, below which a second thread only costs."""


class _Walk(ctypes.Structure):
    """As in native.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "channels", "width", "tiles")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep")),
        *((name, ctypes.c_void_p * 6) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "sizes", "steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "hidden", "on_end", "on_start", "shares", "rates")),
        ("adjoint", ctypes.c_long),
        *((name, ctypes.c_double) for name in ("from_", "to", "smallest", "budget", "order")),
        *((name, ctypes.c_double) for name in ("safety", "most_growth", "most_shrinking", "rounding")),
        *((name, ctypes.c_void_p) for name in ("rtol", "atol", "evaluations", "accepted", "rejected", "status")),
    )


def with_native(weights: Weights, points: int, otherwise: Callable[[], Walk]) -> Walk:
    """A walk in C where that can be, and another where it cannot."""

    def walk(tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor:
        if isinstance(grid, Grid) and z.shape[-1] == points and can_walk(z, weights):
            return walk_in_c(tableau, grid, z, weights)
        return otherwise()(tableau, grid, z)

    return walk


def can_walk(z: Tensor, weights: Weights) -> bool:
    """Whether native.c takes this solve: plain tensors on a CPU that fit together, and a compiler at hand."""
    first, like = weights[0], (z.dtype, torch.device("cpu"))
    fitting = z.ndim == first.ndim - 1 and z.shape[:-2] == first.shape[:-3]
    plain = z.dtype in C_TYPES and all((x.dtype, x.device) == like for x in (z, *weights))
    small = z.shape[-1] * first.shape[-3] <= WIDTH_UP_TO and z.numel() > 0
    return fitting and plain and small and not torch.compiler.is_compiling() and library(C_TYPES[z.dtype]) is not None


def walk_in_c(tableau: Tableau, grid: Grid, z: Tensor, weights: Weights) -> Tensor:
    """z at the end of a grid; for a model alone the member axis is left out."""
    if z.ndim == 2:
        return walk_in_c(tableau, grid, z.unsqueeze(0), [w.unsqueeze(0) for w in weights]).squeeze(0)
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in (z, *weights))
    sizes, steps = grid.steps, grid.taken
    if grid.nodes.ndim == 1:
        sizes, steps = sizes[None].repeat(len(z), 0), steps[None].repeat(len(z))
    plan = _Plan(tableau, np.ascontiguousarray(sizes), np.ascontiguousarray(steps), keep)
    return cast(Tensor, _NativeWalk.apply(plan, z, *weights))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Plan:
    """What is the same there and back."""

    tableau: Tableau
    sizes: NDArray[np.float64]
    """[S, N]."""
    steps: NDArray[np.int64]
    """[S]: how many of them are taken."""
    keep: bool


class _NativeWalk(torch.autograd.Function):
    """z(T) by any explicit method; the backward pass is the exact gradient of these operations."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, z: Tensor, *weights: Tensor) -> Tensor:
        z, weights = z.contiguous(), tuple(w.contiguous() for w in weights)
        call = _Call.of(plan, z, weights)
        end = torch.empty_like(z)
        call.run("there", weights=weights, start=z, end=end)
        if plan.keep:
            ctx.call = call
            ctx.save_for_backward(*weights)
        return end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        on_end = grads[0].contiguous()
        on_start, gradients = torch.empty_like(on_end), [torch.empty_like(w) for w in ctx.saved_tensors]
        shares = on_end.new_empty(ctx.call.share_size)
        ctx.call.run("back", gradients=gradients, on_end=on_end, on_start=on_start, shares=shares)
        return None, on_start, *gradients


@dataclass(frozen=True)
class _Call:
    """The memory of a walk, and its shape."""

    plan: _Plan
    shape: dict[str, int]
    kept: dict[str, Tensor]
    dtype: torch.dtype

    @classmethod
    def of(cls, plan: _Plan, z: Tensor, weights: Weights) -> "_Call":
        (members, samples, points), channels, lanes = z.shape, weights[0].shape[1], 64 // z.element_size()
        width, tiles = -(-channels // lanes) * lanes, -(-samples // lanes)
        stages, room = propagating_stages(plan.tableau), plan.sizes.shape[1]
        shape = {"members": members, "samples": samples, "points": points, "channels": channels, "width": width}
        shape |= {"tiles": tiles, "stages": stages, "evaluated": plan.tableau.stages, "room": room, "keep": plan.keep}
        rows = (room if plan.keep else 1) * stages + 1
        kept = {"layers": z.new_empty(members * (6 * width + 5) * width)}
        kept["rows"] = z.new_empty(members * tiles * rows * points * lanes)
        values = kept["rows"].numel() * width
        if plan.keep and values <= HIDDEN_KEPT:
            kept["hidden"] = z.new_empty(values)
        return cls(plan, shape, kept, z.dtype)

    @property
    def items(self) -> int:
        return self.shape["members"] * self.shape["tiles"]

    @property
    def share_size(self) -> int:
        width, lanes = self.shape["width"], 64 // self.dtype.itemsize
        return self.items * (3 * width * width + (4 * width + 1) * lanes)

    def run(self, name: str, weights: Weights = (), gradients: Weights = (), **tensors: Tensor) -> None:
        """Call a function of native.c."""
        plan, work = self.plan, self.items * int(self.plan.steps.max()) * self.shape["stages"]
        tables = {"tableau": _table(plan.tableau), "sizes": plan.sizes, "steps": plan.steps}
        given = _Walk(**self.shape, **{key: x.data_ptr() for key, x in (self.kept | tensors).items()})
        for key, table in tables.items():
            setattr(given, key, table.ctypes.data)
        for key, several in (("weights", weights), ("gradients", gradients)):
            if several:
                setattr(given, key, (ctypes.c_void_p * 6)(*(x.data_ptr() for x in several)))
        threads = min(torch.get_num_threads(), self.items, 1 + work // WORTH_A_THREAD)
        getattr(library(C_TYPES[self.dtype]), name)(ctypes.byref(given), threads)


@cache
def _table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 2, stages]: a, b, and the weights of the error where there is an estimate."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error)]
    return np.array(lines, np.float64)
