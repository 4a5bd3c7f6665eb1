"""The memory of a solve on a GPU, launches of kernels with it, and its gradient."""

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.cpu.native_call import Again, OnTapeAgain, Weights, is_laid_out, laid_out
from windermere.fast.gpu.encoding import Machine
from windermere.fast.gpu.plan import Plan, Walk, grid_on_device, on_device, times_on_device
from windermere.solvers import Problem
from windermere.solvers.adaptive import smallest_step
from windermere.solvers.grid import Grid

SHARES = 3
"""An adjoint's shares of its gradients, as in rows_adaptive.h."""


class Engine(Protocol):
    """Whoever runs the kernels of rows.cu: a GPU, or in tests a CPU."""

    threads: int
    lanes: int

    def processors(self, device: torch.device) -> int:
        """How many blocks there are processors for."""

    def chip(self, device: torch.device) -> int:
        """Bytes of memory on chip that a block may have."""

    def ready(self, machine: Machine, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether there are kernels for such tiles now; they are begun to be made where there are none yet."""

    def together(self, plan: Plan, dtype: torch.dtype, device: torch.device) -> int:
        """How many blocks of an adaptive solve can be there at once."""

    def launch(
        self, name: str, walk: Walk, machine: Machine, blocks: int, chip: int, like: Tensor, *, together: bool = False
    ) -> None:
        """Begin a kernel."""


class Call:
    """A solve's memory, there and back."""

    def __init__(self, engine: Engine, plan: Plan, z: Tensor, weights: Weights, keep: bool, room: int) -> None:
        """`room` is for so many steps; they are kept for a way back, or are not."""
        self.engine, self.plan, self.keep, self.room = engine, plan, keep, room
        self.known = on_device(plan, z.device)
        self.start = start = laid_out(z.detach())
        # Those of a graph would hold all of it.
        self.weights = [w if w.is_leaf and is_laid_out(w) else laid_out(w.detach()) for w in weights]
        self.shapes = [w.shape for w in self.weights]
        self.held: Sequence[Tensor] = ()
        """Tensors whose addresses the struct holds, beside those above."""
        self.memory: Tensor | None = None
        """Rows and layers that are kept for the way back; None once the tape has it."""
        self.steps = self.inner = 0
        self.again: Again | None = None
        self.walk = walk = Walk.from_buffer_copy(self.known.walk)
        walk.keep, walk.room, walk.landed, walk.start = keep, room, 1, start.data_ptr()
        walk.weights[: len(self.weights)] = [w.data_ptr() for w in self.weights]
        if keep:
            self.memory = start.new_empty(self.kept_rows + plan.numbers["layers"])
            self._remember(walk, self.memory)

    @property
    def kept_rows(self) -> int:
        """Numbers of all rows that are kept."""
        numbers = self.plan.numbers
        size = numbers["tiles"] * numbers["points"] * self.plan.machine.rows
        return (self.room * numbers["stages"] + 1) * size

    def _remember(self, walk: Walk, memory: Tensor) -> None:
        walk.rows = address = memory.data_ptr()
        walk.kept_layers = address + self.kept_rows * memory.element_size()

    def take_grid(self, grid: Grid) -> None:
        self.held = nodes, sizes, stops = grid_on_device(grid, self.start.device)
        walk = self.walk
        walk.nodes, walk.sizes, walk.inner_steps = nodes.data_ptr(), sizes.data_ptr(), stops.data_ptr()
        self.steps, self.inner = self.room, len(grid.stops) - 2
        walk.steps, walk.inner = self.steps, self.inner

    def take_choice(self, problem: Problem) -> None:
        """How steps are chosen, and room for them."""
        device, between, room, walk = self.start.device, tuple(problem.times[1:-1]), self.room, self.walk
        doubles = torch.empty(2 * room + 1 + 4 * self.plan.tiles, dtype=torch.float64, device=device)
        whole = torch.zeros(5 + -(-len(between) // 2), dtype=torch.int64, device=device)
        inner_times = times_on_device(between or (0.0,), device)
        self.held = [doubles, whole, inner_times]
        walk.nodes = address = doubles.data_ptr()
        walk.sizes, walk.sums = address + 8 * (room + 1), address + 8 * (2 * room + 1)
        walk.counts = address = whole.data_ptr()
        walk.arrived, walk.inner_steps, walk.inner_times = address + 32, address + 40, inner_times.data_ptr()
        self.inner = walk.inner = len(between)
        walk.landed = not problem.interpolate
        (begin, finish), solver = problem.ends, problem.adaptive[0]
        walk.begin, walk.finish, walk.smallest = begin, finish, smallest_step((begin, finish), self.start.dtype)
        walk.rtol, walk.atol, walk.budget = solver.rtol, solver.atol, solver.max_steps

    def launch(self, name: str, walk: Walk, *, together: bool = False) -> None:
        plan = self.plan
        self.engine.launch(name, walk, plan.machine, plan.tiles, plan.chip, self.start, together=together)

    def there(self, name: str) -> Tensor:
        """The state at the end, or [times, ...] where states at others after the first were asked for. With steps that
        are chosen, only if `ended` says so."""
        shape = (self.inner + 1, *self.start.shape) if self.inner else self.start.shape
        end = self.start.new_empty(shape)
        self.walk.end = end.data_ptr()
        self.launch(name, self.walk, together=name == "adapt")
        return end

    def ended(self) -> list[int]:
        """How steps that are chosen ended, how many were accepted, evaluations, and how many steps were rejected."""
        status, self.steps, *costs = self.held[1][:4].tolist()
        return [status, self.steps, *costs]

    def on_tape(self, end: Tensor, z: Tensor, weights: Weights) -> Tensor:
        return cast(Tensor, OnTapeAgain.apply(self, [end], z, *weights)) if self.keep else end  # type: ignore[no-untyped-call]

    def back(self, on_end: Tensor, wants_start: bool, memory: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """The cotangents of the start, if wanted, and of the weights."""
        walk = Walk.from_buffer_copy(self.walk)  # as another thread may go back as well
        walk.steps = self.steps
        if memory is not None:  # it may have been packed away (saved_tensors_hooks)
            self._remember(walk, memory)
        on_start, on_end = torch.empty_like(self.start) if wants_start else None, laid_out(on_end)
        walk.on_end, walk.on_start = on_end.data_ptr(), None if on_start is None else on_start.data_ptr()
        return on_start, *self._with_gradients("back", walk)

    def adjoined(self, a: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """The state's cotangent, taken back in time with the state, and the gradients of the weights; if `ended` says
        so."""
        end, on_start, a, walk = torch.empty_like(self.start), torch.empty_like(self.start), laid_out(a), self.walk
        walk.end, walk.on_start, walk.on_end = end.data_ptr(), on_start.data_ptr(), a.data_ptr()
        return on_start, self._with_gradients("adapt", walk)

    def _with_gradients(self, name: str, walk: Walk) -> list[Tensor | None]:
        """Run a kernel that also computes the gradients of the weights, each tile its share of them, and add these."""
        plan, like = self.plan, self.start
        numbers, starts, total = plan.numbers, plan.starts, plan.numbers["gradients"]
        shares = like.new_empty(max(1, numbers["tiles"] * numbers["shares"] * (SHARES if name == "adapt" else 1)))
        flat = like.new_empty(max(1, total))
        walk.share_of_tiles, walk.gradient = shares.data_ptr(), flat.data_ptr()
        self.launch(name, walk, together=name == "adapt")
        if not starts:
            return [None] * len(self.shapes)
        chip, blocks = plan.machine.threads * like.element_size(), -(-total // plan.machine.lanes)
        self.engine.launch("gather", walk, plan.machine, max(1, min(blocks, 1024)), chip, like)
        parts = iter(flat[:total].split_with_sizes([self.shapes[k].numel() for k in starts]))
        return [next(parts).view(shape) if k in starts else None for k, shape in enumerate(self.shapes)]


def chosen(held: Sequence[Tensor], inner: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The times between steps that were chosen, and how many steps lie before each time asked for, from what a call
    held."""
    doubles, whole, _ = held
    nodes = doubles[: int(whole[1]) + 1].cpu().numpy()
    return nodes, whole[5:].view(torch.int32)[:inner].cpu().numpy().astype(np.int64)


def graded_of(weights: Sequence[Tensor]) -> frozenset[int]:
    return frozenset(k for k, w in enumerate(weights) if w.requires_grad)
