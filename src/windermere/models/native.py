"""The sphere networks' solves in C, for CPUs: native.c.

Where there is no compiler, or `WINDERMERE_NATIVE=0`, the walk of PyTorch operations in dense.py does the same work. The
same inputs give the same bits, however many threads there are: gradients are added tile by tile, in order.

Shapes: S members, N steps, B samples, d points, C channels. *Weights* are those of Conv1d(1, C, 1), Conv1d(C, C, 3,
padding=1) and Conv1d(C, 1, 1), each with its bias, and with a leading member axis.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.models.compiled import library
from windermere.solvers import Adaptive, Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.field import Adapt, Adapted, Adjoined, FusedAdjoint, Groups, Rate, Walk
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


STEPS_AT_FIRST = 32
"""Accepted steps that an adaptive solve has room for; one that takes more is begun again with four times the room."""
DONE, FULL = 0, 1
"""What native.c says of a member's solve; anything else is trouble."""


class _Walk(ctypes.Structure):
    """As in native.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "channels", "width", "tiles")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep")),
        *((name, ctypes.c_void_p * 6) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "sizes", "steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "hidden", "on_end", "on_start", "shares", "rates")),
        ("adjoint", ctypes.c_long),
        *((name, ctypes.c_double) for name in ("begin", "finish", "smallest", "budget", "order")),
        *((name, ctypes.c_double) for name in ("safety", "most_growth", "most_shrinking", "rounding")),
        *((name, ctypes.c_void_p) for name in ("rtol", "atol", "evaluations", "rejected", "status")),
    )


def with_native(weights: Weights, points: int, otherwise: Callable[[], Walk]) -> Walk:
    """A walk in C where that can be, and another where it cannot."""

    def walk(tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor:
        if isinstance(grid, Grid) and z.shape[-1] == points and can_walk(z, weights):
            return walk_in_c(tableau, grid, z, weights)
        return otherwise()(tableau, grid, z)

    return walk


def native_adapt(weights: Weights, points: int) -> Adapt:
    """Adaptive solves in C where that can be."""

    def adapt(
        tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], groups: Groups, z: Tensor
    ) -> Adapted | None:
        if z.shape[-1] != points or not can_adapt(tableau, solvers, groups, z, weights):
            return None
        return adapt_in_c(tableau, solvers, times, z, weights)

    return adapt


def native_adjoint(weights: Weights, points: int, rate: Rate) -> FusedAdjoint:
    """The continuous adjoint in C."""

    def can(tableau: Tableau, solvers: Sequence[Any], groups: Groups, z: Tensor) -> bool:
        return z.shape[-1] == points and can_adapt(tableau, solvers, groups, z, weights)

    def adjoin(
        tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], groups: Groups, z: Tensor, a: Tensor
    ) -> Adjoined | None:
        return adjoin_in_c(tableau, solvers, times, z, a, weights) if can(tableau, solvers, groups, z) else None

    return FusedAdjoint(adjoin, can, tuple(weights), rate)


def can_walk(z: Tensor, weights: Weights) -> bool:
    """Whether native.c takes this solve: plain tensors on a CPU that fit together, and a compiler at hand."""
    first, like = weights[0], (z.dtype, torch.device("cpu"))
    fitting = z.ndim == first.ndim - 1 and z.shape[:-2] == first.shape[:-3]
    plain = z.dtype in C_TYPES and all((x.dtype, x.device) == like for x in (z, *weights))
    small = fitting and z.shape[-1] * first.shape[-3] <= WIDTH_UP_TO and z.numel() > 0
    return small and plain and not torch.compiler.is_compiling() and library(C_TYPES[z.dtype]) is not None


def can_adapt(tableau: Tableau, solvers: Sequence[Any], groups: Groups, z: Tensor, weights: Weights) -> bool:
    """Whether it takes an adaptive one: members are the groups; a stage that does not propagate is the next's first."""
    extra = tableau.stages - propagating_stages(tableau)
    by_member = groups == z.shape[:-2] and all(isinstance(s, Adaptive) and s.control == "batch" for s in solvers)
    return by_member and extra == tableau.fsal and can_walk(z, weights)


def walk_in_c(tableau: Tableau, grid: Grid, z: Tensor, weights: Weights) -> Tensor:
    """z at the end of a grid; for a model alone the member axis is left out."""
    if z.ndim == 2:
        return walk_in_c(tableau, grid, *_as_members(z, weights)).squeeze(0)
    sizes, steps = grid.steps, grid.taken
    if grid.nodes.ndim == 1:
        sizes, steps = sizes[None].repeat(len(z), 0), steps[None].repeat(len(z))
    call = _Call.of(tableau, np.ascontiguousarray(sizes), np.ascontiguousarray(steps), z, weights)
    end = call.run("there", int(steps.max()))
    return call.on_tape(end, z, weights)


def adapt_in_c(
    tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, weights: Weights
) -> Adapted | None:
    """z at the end of a solve with steps of each member's own; None where something is out of the ordinary."""
    if z.ndim == 2:
        found = adapt_in_c(tableau, solvers, times, *_as_members(z, weights))
        return found and found._replace(end=found.end.squeeze(0))
    room = STEPS_AT_FIRST if _is_graded(z, weights) else 1
    while True:
        steps = np.zeros(len(z), np.int64)
        call = _Call.of(tableau, np.zeros((len(z), room)), steps, z, weights)
        choice = _Choice.of(tableau, solvers, times, z)
        end = call.run("adapt", STEPS_AT_FIRST, choice)
        if not (choice.status == FULL).any():
            break
        room *= 4
    if (choice.status != DONE).any():
        return None
    return Adapted(call.on_tape(end, z, weights), choice.evaluations, steps, choice.rejected)


def adjoin_in_c(
    tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, a: Tensor, weights: Weights
) -> Adjoined | None:
    """z, its cotangent a and the gradient of the weights, taken back in time."""
    if z.ndim == 2:
        found = adjoin_in_c(tableau, solvers, times, z.unsqueeze(0), a.unsqueeze(0), [w.unsqueeze(0) for w in weights])
        if found is None:
            return None
        start, on_start, gradients, evaluations = found
        return Adjoined(start.squeeze(0), on_start.squeeze(0), [g.squeeze(0) for g in gradients], evaluations)
    call = _Call.of(tableau, np.zeros((len(z), 1)), np.zeros(len(z), np.int64), z, weights, adjoint=True)
    choice = _Choice.of(tableau, solvers, times, z)
    on_start, gradients = call.state(), [torch.empty_like(w) for w in call.weights]
    cotangents = {"on_end": a.contiguous(), "on_start": on_start, "shares": call.shares()}
    start = call.run("adapt", STEPS_AT_FIRST, choice, gradients, **cotangents)
    if (choice.status != DONE).any():
        return None
    return Adjoined(start, on_start, gradients, choice.evaluations)


def _as_members(z: Tensor, weights: Weights) -> tuple[Tensor, Weights]:
    return z.unsqueeze(0), [w.unsqueeze(0) for w in weights]


def _is_graded(z: Tensor, weights: Weights) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in (z, *weights))


class _OnTape(torch.autograd.Function):
    """A solve that has been done; the backward pass is the exact gradient of its operations."""

    @staticmethod
    def forward(ctx: Any, call: "_Call", end: Sequence[Tensor], z: Tensor, *weights: Tensor) -> Tensor:
        ctx.call = call  # which must not hold the end, as the end holds it
        return end[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *ctx.call.back(grads[0].contiguous())


@dataclass(frozen=True)
class _Choice:
    """How steps are chosen, and what that cost."""

    numbers: Mapping[str, float]
    tolerances: Mapping[str, NDArray[np.float64]]
    evaluations: NDArray[np.int64]
    rejected: NDArray[np.int64]
    status: NDArray[np.int64]

    @classmethod
    def of(cls, tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor) -> "_Choice":
        numbers = {"begin": times[0], "finish": times[-1], "order": tableau.embedded_order + 1}
        numbers |= {"smallest": smallest_step(times, z.dtype), "budget": solvers[0].max_steps, "safety": SAFETY}
        numbers |= {"most_growth": MOST_GROWTH, "most_shrinking": MOST_SHRINKING, "rounding": torch.finfo(z.dtype).eps}
        tolerances = {name: np.array([getattr(s, name) for s in solvers]) for name in ("rtol", "atol")}
        return cls(numbers, tolerances, *(np.zeros(len(z), np.int64) for _ in range(3)))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.tolerances, "evaluations": self.evaluations, "rejected": self.rejected, "status": self.status}


@dataclass(frozen=True)
class _Call:
    """A solve's shape and memory, there and back."""

    shape: Mapping[str, int]
    arrays: Mapping[str, NDArray[Any]]
    weights: Weights
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(
        cls,
        tableau: Tableau,
        sizes: NDArray[np.float64],
        steps: NDArray[np.int64],
        z: Tensor,
        weights: Weights,
        adjoint: bool = False,
    ) -> "_Call":
        (members, samples, points), channels, lanes = z.shape, weights[0].shape[1], 64 // z.element_size()
        width, tiles = -(-channels // lanes) * lanes, -(-samples // lanes)
        stages, room, keep = propagating_stages(tableau), sizes.shape[1], not adjoint and _is_graded(z, weights)
        shape = {"members": members, "samples": samples, "points": points, "channels": channels, "width": width}
        shape |= {"tiles": tiles, "stages": stages, "evaluated": tableau.stages, "room": room}
        shape |= {"keep": keep, "adjoint": adjoint}
        start = z.detach().contiguous()
        tensors = {"start": start}
        tensors["layers"] = start.new_empty(members * (6 * width + 5) * width)
        state = members * tiles * lanes * points * (1 + adjoint)
        rows = (room if keep else 1) * stages + 1
        tensors["rows"] = start.new_empty(state * rows)
        if keep and state * rows * width <= HIDDEN_KEPT:
            tensors["hidden"] = start.new_empty(state * rows * width)
        tensors["rates"] = start.new_empty(state * tableau.stages)
        arrays = {"tableau": _table(tableau), "sizes": sizes, "steps": steps}
        return cls(shape, arrays, [w.detach().contiguous() for w in weights], tensors)

    def state(self) -> Tensor:
        """Room for a state."""
        return torch.empty_like(self.tensors["start"])

    def on_tape(self, end: Tensor, z: Tensor, weights: Weights) -> Tensor:
        if not self.shape["keep"]:
            return end
        return cast(Tensor, _OnTape.apply(self, [end], z, *weights))  # type: ignore[no-untyped-call]

    def back(self, on_end: Tensor) -> tuple[Tensor, ...]:
        """The cotangents of the start and of the weights."""
        on_start, gradients = torch.empty_like(on_end), [torch.empty_like(w) for w in self.weights]
        shares = self.shares()
        self.run(
            "back",
            int(self.arrays["steps"].max()),
            gradients=gradients,
            on_end=on_end,
            on_start=on_start,
            shares=shares,
        )
        return on_start, *gradients

    def shares(self) -> Tensor:
        """Room for every tile's share of the gradients; for an adjoint also for that of a step not yet accepted."""
        width, lanes = self.shape["width"], 64 // self.tensors["start"].element_size()
        tiles = self.shape["members"] * self.shape["tiles"] * (1 + self.shape["adjoint"])
        return self.tensors["start"].new_empty(tiles * (3 * width * width + width + (3 * width + 1) * lanes))

    def run(
        self, name: str, steps: int, choice: _Choice | None = None, gradients: Weights = (), **tensors: Tensor
    ) -> Tensor:
        """Call a function of native.c, for about so many steps; the state at the end, where it computes one."""
        given = _Walk(**self.shape, **({} if choice is None else choice.numbers))
        end = self.state()
        for key, tensor in (*self.tensors.items(), *tensors.items(), ("end", end)):
            setattr(given, key, tensor.data_ptr())
        for key, array in (*self.arrays.items(), *({} if choice is None else choice.arrays).items()):
            setattr(given, key, array.ctypes.data)
        given.weights = (ctypes.c_void_p * 6)(*(x.data_ptr() for x in self.weights))
        if gradients:
            given.gradients = (ctypes.c_void_p * 6)(*(x.data_ptr() for x in gradients))
        items = self.shape["members"] * (self.shape["tiles"] if choice is None else 1)
        work = self.shape["members"] * self.shape["tiles"] * steps * self.shape["stages"]
        threads = min(torch.get_num_threads(), items, 1 + work // WORTH_A_THREAD)
        getattr(library(C_TYPES[end.dtype]), name)(ctypes.byref(given), threads)
        return end


@cache
def _table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 2, stages]: a, b, and the weights of the error where there is an estimate."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error)]
    return np.array(lines, np.float64)
