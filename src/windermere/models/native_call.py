"""The memory of a solve in C, and calls of native.c's functions with it."""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from windermere.models.compiled import library, vector_bytes
from windermere.solvers import Adaptive, Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.grid import Grid
from windermere.solvers.once import differentiable_once
from windermere.solvers.surroundings import is_looked_through

Weights: TypeAlias = Sequence[Tensor]
Again: TypeAlias = Callable[[Tensor, Weights], Tensor]
C_TYPES = {torch.float32: "float", torch.float64: "double"}
WORTH_A_THREAD = 512
"""Half microseconds of work, below which a second thread only costs."""


_threads: ContextVar[int | None] = ContextVar("threads of native.c, where PyTorch has fewer", default=None)


@contextmanager
def threads_for_c_alone() -> Iterator[None]:
    """PyTorch's operations take one thread, native.c's solves as many as before. Beside such solves the others are so
    small that their threads would wait for one another, on a busy machine ten times as long as they work."""
    threads = torch.get_num_threads()
    token = _threads.set(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _threads.reset(token)


@dataclass(frozen=True)
class Network:
    """What native.c has to know of a field beside its weights: each layer's weight and bias."""

    field: str
    """Which it is: "sphere" (native_sphere.h) or "layers" (native_layers.h)."""
    points: int
    channels: int = 0
    """Of a sphere network."""
    units: tuple[int, ...] = ()
    """Of a layered one, with the points at both ends, and what follows each layer."""
    activations: tuple[int, ...] = ()
    slopes: tuple[float, ...] = ()

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the weights, without the member axis."""
        if self.field == "layers":
            return [shape for i, o in pairwise(self.units) for shape in ((o, i), (o,))]
        c = self.channels
        return [(c, 1, 1), (c,), (c, c, 3), (c,), (1, c, 1), (1,)]

    @cached_property
    def products(self) -> int:
        """Of a layered network's evaluation for one sample."""
        return sum(i * o for i, o in pairwise(self.units))

    @property
    def work(self) -> float:
        """Half microseconds, or so, of an evaluation on a tile."""
        return self.products / 512 if self.field == "layers" else self.points


network_of = lru_cache(maxsize=16)(Network)
"""Kept, as a training asks for the same one at each iteration."""


class _Walk(ctypes.Structure):
    """As in native.c."""

    kept: list[Any]
    """What lies at its addresses: torch.compile lets go of local variables that are not read again."""
    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "tiles", "channels", "width", "depth")),
        *((name, ctypes.c_void_p) for name in ("units", "activations", "slopes")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep", "shared")),
        *((name, ctypes.c_void_p) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "sizes", "steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "rates", "notes", "on_end", "on_start", "shares")),
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
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, *ctx.call.back(grads[0], ctx.needs_input_grad[2])


class _OnTapeAgain(torch.autograd.Function):
    """The same for a field that may be differentiated more than once: then all its operations go on the tape."""

    @staticmethod
    def forward(ctx: Any, call: "Call", end: Sequence[Tensor], z: Tensor, *weights: Tensor) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(call.memory, z, *weights)  # so that its memory goes when PyTorch's own would
        call.memory = None
        return end[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        memory, *given = ctx.saved_tensors  # PyTorch says so if one was changed in place
        needed, again = ctx.needs_input_grad[2:], torch.is_grad_enabled()
        if not again and not is_legacy_batchedtensor(grads[0]) and not is_looked_through():
            return None, None, *ctx.call.back(grads[0], needed[0], memory)
        with torch.enable_grad():
            # Views, which lead to no other: a weight may be made of z, or have hooks that the engine calls later.
            z, *weights = own = [x.view_as(x) for x in given]
            end = ctx.call.again(z, weights)
        wanted = [x for x, need in zip(own, needed, strict=True) if need]
        found = iter(torch.autograd.grad(end, wanted, grads[0], create_graph=again))
        return None, None, *(next(found) if need else None for need in needed)


def pull_back(end: Tensor, on_end: Tensor) -> bool:
    """As `end.backward(on_end)`, without the engine's way around a single node; False, and nothing done, where `end` is
    not that of a solve in C whose weights are leaves, or where there are hooks to be called."""
    node: Any = end.grad_fn
    if not isinstance(call := getattr(node, "call", None), Call) or call.memory is None or has_hooks(end):
        return False
    takers = [taker for taker, _ in node.next_functions]
    leaves = [getattr(taker, "variable", None) for taker in takers]
    if any(taker is not None and (leaf is None or has_hooks(leaf)) for taker, leaf in zip(takers, leaves, strict=True)):
        return False
    for leaf, gradient in zip(leaves, call.back(on_end, leaves[0] is not None), strict=True):
        if leaf is not None:
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
    return True


def has_hooks(tensor: Tensor) -> bool:
    """Whether someone wants to see this tensor's gradient on its way."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


@dataclass(frozen=True)
class Choice:
    """How steps are chosen, which they were, and what that cost."""

    numbers: Mapping[str, float]
    tolerances: Mapping[str, NDArray[np.float64]]
    sizes: NDArray[np.float64]
    """[members, room]"""
    steps: NDArray[np.int64]
    evaluations: NDArray[np.int64]
    rejected: NDArray[np.int64]
    status: NDArray[np.int64]

    @classmethod
    def of(
        cls, tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], dtype: torch.dtype, room: int
    ) -> "Choice":
        """With room for the sizes of so many accepted steps."""
        numbers = {"begin": times[0], "finish": times[-1], "order": tableau.embedded_order + 1}
        numbers |= {"smallest": smallest_step(times, dtype), "budget": solvers[0].max_steps, "safety": SAFETY}
        numbers |= {"most_growth": MOST_GROWTH, "most_shrinking": MOST_SHRINKING, "rounding": torch.finfo(dtype).eps}
        tolerances = {name: np.array([getattr(s, name) for s in solvers]) for name in ("rtol", "atol")}
        counts = (np.zeros(len(solvers), np.int64) for _ in range(4))
        return cls(numbers, tolerances, np.zeros((len(solvers), room)), *counts)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        counts = {"evaluations": self.evaluations, "rejected": self.rejected, "status": self.status}
        return {**self.tolerances, "sizes": self.sizes, "steps": self.steps, **counts}


@dataclass(frozen=True)
class _Plan:
    """What solves of one kind and shape have in common."""

    walk: _Walk
    """Without what is a solve's own."""
    arrays: Mapping[str, NDArray[Any]]
    """Kept, as the walk has their addresses."""
    parts: Mapping[str, int]
    """Entries that the parts of a solve's memory take, one after the other."""
    share: int
    """Entries of a tile's share of the gradients; for an adjoint also of that of a step not yet accepted."""


@lru_cache(maxsize=16)
def _plan(
    tableau: Tableau,
    steps: Grid | int,
    shape: tuple[int, ...],
    network: Network,
    real: str,
    lanes: int,
    keep: bool,
    adjoint: bool,
) -> _Plan:
    """For steps on a grid, or room for so many that are chosen, with vectors of so many numbers. Kept, as a training
    asks for the same one at each iteration."""
    *lead, samples, points = shape
    (members,) = lead or (1,)
    width, tiles = -(-network.channels // (2 * lanes)) * 2 * lanes, -(-samples // lanes)
    arrays: dict[str, NDArray[Any]] = {"tableau": table(tableau), "slopes": np.array(network.slopes, float)}
    arrays |= {name: np.array(getattr(network, name), np.int64) for name in ("units", "activations")}
    numbers = {"members": members, "samples": samples, "points": points, "tiles": tiles}
    numbers |= {"channels": network.channels, "width": width, "depth": len(network.activations)}
    numbers |= {"stages": tableau.propagating, "evaluated": tableau.stages, "keep": keep, "adjoint": adjoint}
    if isinstance(steps, Grid):
        numbers |= {"room": steps.steps.shape[-1], "shared": steps.nodes.ndim == 1}
        arrays |= {"sizes": steps.steps, "steps": steps.taken}
    else:
        numbers["room"] = steps
    walk = _Walk(**numbers, **{name: array.ctypes.data for name, array in arrays.items()})
    layers, notes, share = _measured(walk, real, network.field)
    state = members * tiles * lanes * points * (1 + adjoint)
    rows = (numbers["room"] if keep else 1) * tableau.propagating + 1
    parts = {"layers": members * layers, "rows": state * rows, "rates": state * tableau.stages}
    parts |= {"notes": members * tiles * notes * (rows if keep else 1)}
    return _Plan(walk, arrays, parts, share * (1 + adjoint))


def _measured(walk: _Walk, real: str, field: str) -> tuple[int, ...]:
    """Numbers that a member's layers, a row's notes on a tile and a tile's share of the gradients take."""
    found = (ctypes.c_long * 3)()
    loaded = library(real, field)
    assert loaded is not None
    loaded.measure(ctypes.byref(walk), found)
    return tuple(found)


def _laid_out(tensor: Tensor) -> Tensor:
    """As C reads it: one number after the other, and none with its sign put off (as in the imaginary part of a complex
    conjugate)."""
    return (tensor.resolve_neg() if tensor.is_neg() else tensor).contiguous()


def _pointers(tensors: Sequence[Tensor]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(tensors))(*[x.data_ptr() for x in tensors])


class Call:
    """A solve's memory, there and back."""

    def __init__(
        self,
        tableau: Tableau,
        steps: Grid | Choice,
        z: Tensor,
        weights: Weights,
        network: Network,
        adjoint: bool = False,
    ) -> None:
        """For a model alone the member axis is left out of the state and the weights."""
        self.network, self.keep = network, not adjoint and is_graded(z, weights)
        self.again: Again | None = None
        """The same solve by operations that can be differentiated as often as one likes."""
        kind, real = steps if isinstance(steps, Grid) else steps.sizes.shape[1], C_TYPES[z.dtype]
        lanes = vector_bytes(real, network.field) // z.itemsize
        plan = _plan(tableau, kind, z.shape, network, real, lanes, self.keep, adjoint)
        self.plan, self.walk = plan, _Walk.from_buffer_copy(plan.walk)
        self.walk.kept = []
        self.longest = self.walk.room
        """About how many steps the way back has."""
        self.start, self.weights = _laid_out(z.detach()), [w.detach().contiguous() for w in weights]
        self.memory: Tensor | None = self.start.new_empty(sum(plan.parts.values()))
        """None once the tape has it."""
        self.walk.start = self.start.data_ptr()
        self.pointers = _pointers(self.weights)
        self.walk.weights = ctypes.addressof(self.pointers)
        self.place(self.walk, self.memory)
        self.choice = steps if isinstance(steps, Choice) else None
        if self.choice is not None:
            for name, number in self.choice.numbers.items():
                setattr(self.walk, name, number)
            for name, array in self.choice.arrays.items():
                setattr(self.walk, name, array.ctypes.data)

    def place(self, walk: _Walk, memory: Tensor) -> None:
        """Let a walk's parts lie in this memory."""
        address = memory.data_ptr()
        for name, entries in self.plan.parts.items():
            setattr(walk, name, address)
            address += entries * memory.itemsize

    def there(self, name: str, steps: int) -> Tensor:
        """The state at the end, by a function of native.c, in about so many steps."""
        end = torch.empty_like(self.start)
        self.walk.end = end.data_ptr()
        self.run(name, self.walk, steps)
        return end

    def on_tape(self, end: Tensor, z: Tensor, weights: Weights) -> Tensor:
        if not self.keep:
            return end
        tape = _OnTape if self.again is None else _OnTapeAgain
        return cast(Tensor, tape.apply(self, [end], z, *weights))  # type: ignore[no-untyped-call]

    def back(self, on_end: Tensor, wants_start: bool, memory: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """The cotangents of the start, if wanted, and of the weights."""
        walk = _Walk.from_buffer_copy(self.walk)  # as another thread may go back as well
        if memory is not None and memory.data_ptr() != walk.layers:  # it was packed away (saved_tensors_hooks)
            memory = memory.clone()  # to where vectors may lie
            self.place(walk, memory)
        walk.kept = [memory]
        on_start = torch.empty_like(self.start) if wants_start else None
        return on_start, *self.with_cotangents("back", walk, self.longest, _laid_out(on_end), on_start)

    def adjoined(self, steps: int, a: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The state and its cotangent taken back in time, and the gradients of the weights."""
        start, on_start = torch.empty_like(self.start), torch.empty_like(self.start)
        self.walk.end = start.data_ptr()
        return start, on_start, self.with_cotangents("adapt", self.walk, steps, _laid_out(a), on_start)

    def with_cotangents(
        self, name: str, walk: _Walk, steps: int, on_end: Tensor, on_start: Tensor | None
    ) -> list[Tensor]:
        """Run a function that also computes the gradients of the weights."""
        gradients = [torch.empty_like(w) for w in self.weights]
        rates = self.plan.parts["rates"]  # its own, too, as those of the way there may be another thread's as well
        scratch = self.start.new_empty(rates + walk.members * walk.tiles * self.plan.share)
        walk.rates = scratch.data_ptr()
        walk.shares, walk.on_end = walk.rates + rates * scratch.itemsize, on_end.data_ptr()
        walk.on_start = None if on_start is None else on_start.data_ptr()
        pointers = _pointers(gradients)
        walk.gradients = ctypes.addressof(pointers)
        walk.kept += [on_end, on_start, scratch, pointers]
        self.run(name, walk, steps)
        return gradients

    def run(self, name: str, walk: _Walk, steps: int) -> None:
        """Call a function of native.c, for about so many steps."""
        members, tiles = walk.members, walk.tiles
        work = int(members * tiles * steps * walk.stages * self.network.work)
        items = members if name == "adapt" else members * tiles
        threads = min(_threads.get() or torch.get_num_threads(), items, 1 + work // WORTH_A_THREAD)
        getattr(library(C_TYPES[self.start.dtype], self.network.field), name)(ctypes.byref(walk), threads)


@cache
def table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 2, stages]: a, b, and the weights of the error where there is an estimate."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error)]
    return np.array(lines, np.float64)
