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
WORTH_A_THREAD = 512
"""Evaluations of tiles at a point, half a microsecond or so each, below which a second thread only costs."""


class _Walk(ctypes.Structure):
    """As in native.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "channels", "width", "tiles")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep")),
        *((name, ctypes.c_void_p * 6) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "sizes", "steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "rates", "active", "on_end", "on_start", "shares")),
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
        return None, None, *ctx.call.back(grads[0].contiguous())


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
        return cls(numbers, tolerances, *(np.zeros(len(z), np.int64) for _ in range(3)))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.tolerances, "evaluations": self.evaluations, "rejected": self.rejected, "status": self.status}


@dataclass(frozen=True)
class Call:
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
    ) -> "Call":
        (members, samples, points), channels, lanes = z.shape, weights[0].shape[1], _lanes(z)
        width, tiles = -(-channels // (2 * lanes)) * 2 * lanes, -(-samples // lanes)
        stages, room, keep = propagating_stages(tableau), sizes.shape[1], not adjoint and is_graded(z, weights)
        shape = {"members": members, "samples": samples, "points": points, "channels": channels, "width": width}
        shape |= {"tiles": tiles, "stages": stages, "evaluated": tableau.stages, "room": room}
        shape |= {"keep": keep, "adjoint": adjoint}
        start = z.detach().contiguous()
        tensors = {"start": start}
        tensors["layers"] = start.new_empty(members * ((6 * (channels + 1) + 3 * channels + 5) * width + lanes))
        state = members * tiles * lanes * points * (1 + adjoint)
        rows = (room if keep else 1) * stages + 1
        tensors["rows"] = start.new_empty(state * rows)
        tensors["rates"] = start.new_empty(state * tableau.stages)
        tensors["active"] = start.new_empty(members * tiles * points * width // 2 * (rows if keep else 1))
        arrays = {"tableau": table(tableau), "sizes": sizes, "steps": steps}
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
        given = {"on_end": on_end, "on_start": on_start, "shares": self.shares()}
        self.run("back", int(self.arrays["steps"].max()), None, gradients, **given)
        return on_start, *gradients

    def shares(self) -> Tensor:
        """Room for every tile's share of the gradients; for an adjoint also for that of a step not yet accepted."""
        width, lanes = self.shape["width"], _lanes(self.tensors["start"])
        share = 6 * (self.shape["channels"] + 1) * width + lanes
        tiles = self.shape["members"] * self.shape["tiles"] * (1 + self.shape["adjoint"])
        return self.tensors["start"].new_empty(tiles * share)

    def run(
        self, name: str, steps: int, choice: Choice | None = None, gradients: Weights = (), **tensors: Tensor
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
        work = self.shape["members"] * self.shape["tiles"] * steps * self.shape["stages"] * self.shape["points"]
        threads = min(torch.get_num_threads(), items, 1 + work // WORTH_A_THREAD)
        getattr(library(C_TYPES[end.dtype]), name)(ctypes.byref(given), threads)
        return end


def _lanes(z: Tensor) -> int:
    """Samples of a tile, and numbers of a vector."""
    return vector_bytes(C_TYPES[z.dtype]) // z.element_size()


@cache
def table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 2, stages]: a, b, and the weights of the error where there is an estimate."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error)]
    return np.array(lines, np.float64)
