"""The memory of a solve in C, calls of native.c's functions with it, and its gradient."""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from windermere._torch_private import has_hooks, is_batched_by_autograd, put_on_tape, times_written
from windermere.errors import UsageError
from windermere.fast.cpu.compiled import library, vector_bytes
from windermere.fast.cpu.native_plan import Choice, NativeWalk, Network, plan_of
from windermere.fast.cpu.native_samples import SampleChoice
from windermere.solvers import Tableau
from windermere.solvers.gradients import GradientName, differentiable_once
from windermere.solvers.grid import Grid
from windermere.solvers.torch_modes import is_looked_through

Weights: TypeAlias = Sequence[Tensor]
Again: TypeAlias = Callable[[Tensor, Weights], Tensor]
C_TYPES = {torch.float32: "float", torch.float64: "double"}
WORTH_A_THREAD = 512
"""Half microseconds of work, below which a second thread only costs."""


_threads: ContextVar[int | None] = ContextVar("threads of native.c, where PyTorch has fewer", default=None)


@dataclass
class _Alone:
    """How many of Python's threads are in `threads_for_c_alone`, and what PyTorch had before the first of them: a new
    thread begins with what PyTorch was told last."""

    inside: int = 0
    threads: int = 1
    lock: Any = field(default_factory=threading.Lock)


_alone = _Alone()


@contextmanager
def threads_for_c_alone() -> Iterator[None]:
    """PyTorch's operations take one thread, native.c's solves as many as before. Beside such solves the others are so
    small that their threads would wait for one another, on a busy machine ten times as long as they work."""
    with _alone.lock:
        _alone.threads = _alone.threads if _alone.inside else torch.get_num_threads()
        _alone.inside += 1
    token = _threads.set(_alone.threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _alone.lock:
            _alone.inside -= 1
            torch.set_num_threads(_alone.threads)
        _threads.reset(token)


_kept_rooms = threading.local()
KEPT_ROOM = 1 << 24
"""Bytes of room to work in that a thread keeps from call to call: to ask the system for it takes as long as a small
solve."""


def _room(name: str, entries: int, like: Tensor) -> Tensor:
    """Room for so many numbers that this thread uses under this name, until it asks for it again."""
    if entries * like.element_size() > KEPT_ROOM:
        return like.new_empty(entries)
    kept: Tensor | None = getattr(_kept_rooms, name, None)
    if kept is None or kept.dtype != like.dtype or kept.numel() < entries:
        kept = like.new_empty(entries)
        setattr(_kept_rooms, name, kept)
    return kept


def is_graded(z: Tensor, weights: Weights) -> bool:
    return torch.is_grad_enabled() and (z.requires_grad or any(w.requires_grad for w in weights))


def lanes_of(dtype: torch.dtype, field: str) -> int:
    """How many samples a tile has."""
    return vector_bytes(C_TYPES[dtype], field) // dtype.itemsize


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


class OnTapeAgain(torch.autograd.Function):
    """The same for a field that may be differentiated more than once: then all its operations go on the tape."""

    @staticmethod
    def forward(ctx: Any, call: "Call", end: Sequence[Tensor], z: Tensor, *weights: Tensor) -> Tensor:
        ctx.call, needed = call, ctx.needs_input_grad[2:]
        # What needs no gradient may change before the way back, as buffers do: that has what it was.
        ctx.others = [None if need else (x, times_written(x)) for x, need in zip((z, *weights), needed, strict=True)]
        graded = (x for x, need in zip((z, *weights), needed, strict=True) if need)
        ctx.save_for_backward(call.memory, *graded)  # so that its memory goes when PyTorch's own would
        call.memory = None
        return end[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        memory, *graded = ctx.saved_tensors  # PyTorch says so if one was changed in place
        needed, again = ctx.needs_input_grad[2:], torch.is_grad_enabled()
        if not again and not is_batched_by_autograd(grads[0]) and not is_looked_through():
            return None, None, *ctx.call.back(grads[0], needed[0], memory)
        given = _as_they_were(ctx.others, graded)
        with torch.enable_grad():
            # Views, which lead to no other: a weight may be made of z, or have hooks that the engine calls later.
            z, *weights = own = [x.view_as(x) for x in given]
            end = ctx.call.again(z, weights)
        wanted = [x for x, need in zip(own, needed, strict=True) if need]
        gradients: Sequence[Tensor | None] = [None] * len(wanted)
        if end.requires_grad:  # else it only depends on which side of a kink they are
            gradients = torch.autograd.grad(end, wanted, grads[0], create_graph=again, allow_unused=True)
        found = (torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gradients, strict=True))
        return None, None, *(next(found) if need else None for need in needed)


def _as_they_were(others: Sequence[tuple[Tensor, int | None] | None], graded: Sequence[Tensor]) -> list[Tensor]:
    """The state and the weights of a solve: those that need gradients, and between them the others."""
    for other in others:
        if other is not None and times_written(other[0]) != other[1]:
            raise UsageError(
                f"a tensor of shape {tuple(other[0].shape)} that the solve depends on was changed in place, and this "
                "derivative needs it as it was: take the derivative before that, or solve with a copy"
            )
    known = iter(graded)
    return [next(known) if other is None else other[0] for other in others]


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


def laid_out(tensor: Tensor) -> Tensor:
    """As C reads it: one number after the other, and none with its sign put off (as in the imaginary part of a complex
    conjugate)."""
    return tensor if is_laid_out(tensor) else tensor.resolve_neg().contiguous()


def is_laid_out(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_neg()


@cache
def _array(length: int) -> "type[ctypes.Array[ctypes.c_void_p]]":
    """Kept, as to make a class takes as long as a small solve."""
    return ctypes.c_void_p * length


def _pointers(tensors: Sequence[Tensor]) -> "ctypes.Array[ctypes.c_void_p]":
    return _array(len(tensors))(*[x.data_ptr() for x in tensors])


class Call:
    """A solve's memory, there and back."""

    def __init__(
        self,
        tableau: Tableau,
        steps: Grid | Choice | SampleChoice,
        z: Tensor,
        weights: Weights,
        network: Network,
        gradient: GradientName = "backprop",
        dense: bool = False,
    ) -> None:
        """For a model alone the member axis is left out of the state and the weights. With `dense` output, steps pass
        over the times asked for between the first and the last."""
        self.network, self.keep = network, gradient != "adjoint" and is_graded(z, weights)
        """Whether the memory is kept for a way back."""
        self.again: Again | None = None
        """The same solve by operations that can be differentiated as often as one likes."""
        kind, real = steps if isinstance(steps, Grid) else steps.room, C_TYPES[z.dtype]
        lanes = lanes_of(z.dtype, network.field)
        by_sample = isinstance(steps, SampleChoice)
        back = gradient if self.keep or gradient == "adjoint" else ""
        plan = plan_of(tableau, kind, z.shape, network, real, lanes, back, dense, by_sample)
        self.plan, self.walk = plan, NativeWalk.from_buffer_copy(plan.walk)
        self.walk.kept = []
        self.longest = self.walk.room
        """About how many steps the way back has."""
        self.start = laid_out(z.detach())
        self.weights = [w if w.is_leaf and is_laid_out(w) else laid_out(w.detach()) for w in weights]
        """Their numbers one after the other, on no tape; a weight itself where it is a leaf that has them so."""
        self.shapes = [w.shape for w in self.weights]
        """A weight may be of another shape, or dtype, by the time of the way back (module.to, .data)."""
        self.memory: Tensor | None = (
            self.start.new_empty(plan.entries) if self.keep else _room("memory", plan.entries, self.start)
        )
        """None once the tape has it."""
        self.walk.start = self.start.data_ptr()
        self.pointers = _pointers(self.weights)
        self.walk.weights = ctypes.addressof(self.pointers)
        self.walk.memory = self.memory.data_ptr()
        self.choice = steps if isinstance(steps, Choice) else None
        if self.choice is not None:
            self.walk.choice, self.walk.inner = self.choice.values.ctypes.data, self.choice.inner
        if isinstance(steps, SampleChoice):
            steps.give(self.walk)
            self.samples = steps  # whose arrays the walk has the addresses of

    def there(self, name: str, steps: int) -> Tensor:
        """The state at the end, by a function of native.c, in about so many steps; or [times, ...] where states at
        others after the first were asked for as well."""
        inner = self.walk.inner
        end = self.start.new_empty((inner + 1, *self.start.shape)) if inner else torch.empty_like(self.start)
        self.walk.end = end.data_ptr()
        self.run(name, self.walk, steps)
        return end

    def on_tape(self, end: Tensor, z: Tensor, weights: Weights) -> Tensor:
        if not self.keep:
            return end
        tape = _OnTape if self.again is None else OnTapeAgain
        return cast(Tensor, put_on_tape(tape, self, [end], z, *weights))

    def back(self, on_end: Tensor, wants_start: bool, memory: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """The cotangents of the start, if wanted, and of the weights."""
        walk = NativeWalk.from_buffer_copy(self.walk)  # as another thread may go back as well
        if memory is not None and memory.data_ptr() != walk.memory:  # it was packed away (saved_tensors_hooks)
            memory = memory.clone()  # to where vectors may lie
            walk.memory = memory.data_ptr()
        walk.kept = [memory]
        on_start = torch.empty_like(self.start) if wants_start else None
        return on_start, *self.with_cotangents("back", walk, self.longest, laid_out(on_end), on_start)

    def adjoined(self, steps: int, a: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The state and its cotangent, taken back in time with it, and the gradients of the weights."""
        start, on_start = torch.empty_like(self.start), torch.empty_like(self.start)
        self.walk.end = start.data_ptr()
        name = "adjoin" if self.choice is None else "adapt"
        return start, on_start, self.with_cotangents(name, self.walk, steps, laid_out(a), on_start)

    def with_cotangents(
        self, name: str, walk: NativeWalk, steps: int, on_end: Tensor, on_start: Tensor | None
    ) -> list[Tensor]:
        """Run a function that also computes the gradients of the weights."""
        gradients = [self.start.new_zeros(shape) for shape in self.shapes]
        plan, size = self.plan, self.start.element_size()
        scratch = _room("scratch", plan.rates + plan.redone + plan.shares, self.start)
        walk.rates = address = scratch.data_ptr()
        walk.redone = address + plan.rates * size
        walk.shares, walk.on_end = walk.redone + plan.redone * size, on_end.data_ptr()
        walk.on_start = None if on_start is None else on_start.data_ptr()
        pointers = _pointers(gradients)
        walk.gradients = ctypes.addressof(pointers)
        walk.kept += [on_end, on_start, scratch, pointers]
        self.run(name, walk, steps)
        return gradients

    def run(self, name: str, walk: NativeWalk, steps: int) -> None:
        """Call a function of native.c, for about so many steps."""
        members, tiles = walk.members, walk.tiles
        work = int(members * tiles * steps * walk.stages * self.network.work)
        items = members if name in ("adapt", "adjoin") else members * tiles
        threads = min(_threads.get() or torch.get_num_threads(), items, 1 + work // WORTH_A_THREAD)
        getattr(library(C_TYPES[self.start.dtype], self.network.field), name)(ctypes.byref(walk), threads)
