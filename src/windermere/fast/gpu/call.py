"""The memory of a solve on a GPU, launches of kernels with it, and its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.cpu.native_call import Again, OnTapeAgain, Weights, laid_out
from windermere.fast.gpu.encoding import Machine
from windermere.fast.gpu.plan import Plan, Walk, grid_on_device, on_device, times_on_device
from windermere.solvers import Problem
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.grid import Grid


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


@dataclass(eq=False)
class Call:
    """A solve's memory, there and back."""

    engine: Engine
    plan: Plan
    base: Walk
    """The struct with all that the plan knows."""
    start: Tensor
    weights: list[Tensor]
    keep: bool
    room: int
    """Steps that there is room for."""
    held: dict[str, Tensor] = field(default_factory=dict)
    """Tensors whose addresses the struct holds, by name."""
    memory: Tensor | None = None
    """Rows and layers that are kept for the way back; None once the tape has it."""
    steps: int = 0
    inner: int = 0
    landed: bool = True
    again: Again | None = None

    @classmethod
    def of(cls, engine: Engine, plan: Plan, z: Tensor, weights: Weights, keep: bool, room: int) -> "Call":
        start, own = laid_out(z.detach()), [laid_out(w.detach()) for w in weights]
        base, _ = on_device(plan, z.device)
        call = cls(engine, plan, base, start, own, keep, room)
        if keep:
            call.memory = start.new_empty(call.kept_rows + plan.numbers["layers"])
        return call

    @property
    def kept_rows(self) -> int:
        """Numbers of all rows that are kept."""
        numbers = self.plan.numbers
        size = numbers["tiles"] * numbers["points"] * self.plan.machine.rows
        return (self.room * numbers["stages"] + 1) * size

    def take_grid(self, grid: Grid) -> None:
        self.held |= grid_on_device(grid, self.start.device)
        self.steps, self.inner = self.room, len(grid.stops) - 2

    def take_choice(self, problem: Problem) -> None:
        """Room for the steps that will be chosen."""
        device, between = self.start.device, tuple(problem.times[1:-1])
        doubles = torch.empty(2 * self.room + 1 + 4 * self.plan.tiles, dtype=torch.float64, device=device)
        whole = torch.zeros(5 + -(-len(between) // 2), dtype=torch.int64, device=device)
        self.held |= {"nodes": doubles, "sizes": doubles[self.room + 1 :], "sums": doubles[2 * self.room + 1 :]}
        self.held |= {"counts": whole, "arrived": whole[4:], "inner_steps": whole[5:]}
        self.held |= {"inner_times": times_on_device(between or (0.0,), device)}
        self.inner, self.landed = len(between), not problem.interpolate

    def walk(self, memory: Tensor | None = None, **tensors: Tensor | None) -> Walk:
        """The struct for a kernel."""
        walk = Walk.from_buffer_copy(self.base)
        walk.keep, walk.room, walk.steps, walk.inner = int(self.keep), self.room, self.steps, self.inner
        walk.landed, walk.start = int(self.landed), self.start.data_ptr()
        if self.keep and (kept := self.memory if memory is None else memory) is not None:
            walk.rows = kept.data_ptr()
            walk.kept_layers = walk.rows + self.kept_rows * kept.element_size()
        for name, tensor in (*self.held.items(), *tensors.items()):
            setattr(walk, name, None if tensor is None else tensor.data_ptr())
        places = walk.weights
        for k, weight in enumerate(self.weights):
            places[k] = weight.data_ptr()
        return walk

    def launch(self, name: str, walk: Walk, *, together: bool = False) -> None:
        plan, blocks = self.plan, self.plan.tiles
        chip = plan.chip
        if name == "gather":
            blocks = max(1, min(-(-plan.numbers["gradients"] // plan.machine.lanes), 1024))
            chip = plan.machine.threads * self.start.element_size()
        self.engine.launch(name, walk, plan.machine, blocks, chip, self.start, together=together)

    def room_for_end(self) -> Tensor:
        shape = (self.inner + 1, *self.start.shape) if self.inner else self.start.shape
        return self.start.new_empty(shape)

    def there(self) -> Tensor:
        """The state at the end of a grid, or [times, ...] where states at others after the first were asked for."""
        end = self.room_for_end()
        self.launch("there", self.walk(end=end))
        return end

    def adapt(self, problem: Problem, **tensors: Tensor) -> NDArray[np.int64]:
        """How steps that are chosen ended, how many were accepted, evaluations, and how many steps were rejected."""
        walk = self.walk(**tensors)
        for name, number in _choice(problem).items():
            setattr(walk, name, number)
        self.launch("adapt", walk, together=True)
        found: NDArray[np.int64] = self.held["counts"][:4].cpu().numpy()
        return found

    def on_tape(self, end: Tensor, z: Tensor, weights: Weights) -> Tensor:
        return cast(Tensor, OnTapeAgain.apply(self, [end], z, *weights)) if self.keep else end  # type: ignore[no-untyped-call]

    def back(self, on_end: Tensor, wants_start: bool, memory: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """The cotangents of the start, if wanted, and of the weights."""
        on_start, on_end = torch.empty_like(self.start) if wants_start else None, laid_out(on_end)
        given = {"on_end": on_end, "on_start": on_start, **self.room_for_gradients()}
        walk = self.walk(memory, **given)
        self.launch("back", walk)
        return on_start, *self.gathered(walk, given)

    def room_for_gradients(self) -> dict[str, Tensor]:
        numbers, like = self.plan.numbers, self.start
        shares = like.new_empty(max(1, numbers["tiles"] * numbers["shares"]))
        return {"share_of_tiles": shares, "gradient": like.new_empty(max(1, numbers["gradients"]))}

    def gathered(self, walk: Walk, given: dict[str, Any]) -> list[Tensor | None]:
        """The gradients of the weights, from all tiles' shares."""
        starts = self.plan.starts
        if starts:
            self.launch("gather", walk)
        flat = given["gradient"]
        return [
            flat[starts[k] : starts[k] + w.numel()].view(w.shape) if k in starts else None
            for k, w in enumerate(self.weights)
        ]

    def chosen(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The times between steps, and how many steps lie before each time asked for."""
        nodes = self.held["nodes"][: self.steps + 1].cpu().numpy()
        inner = self.held["inner_steps"].view(torch.int32)[: self.inner].cpu().numpy().astype(np.int64)
        return nodes, inner


def _choice(problem: Problem) -> dict[str, float]:
    """How steps are chosen."""
    solver, (begin, finish), dtype = problem.adaptive[0], problem.ends, problem.z0.dtype
    numbers = {
        "begin": begin,
        "finish": finish,
        "order": problem.tableau.embedded_order + 1,
        "budget": solver.max_steps,
    }
    numbers |= {"smallest": smallest_step((begin, finish), dtype), "safety": SAFETY, "most_growth": MOST_GROWTH}
    numbers |= {"most_shrinking": MOST_SHRINKING, "rounding": torch.finfo(dtype).eps}
    return {**numbers, "rtol": solver.rtol, "atol": solver.atol}


def graded_of(weights: Sequence[Tensor]) -> frozenset[int]:
    return frozenset(k for k, w in enumerate(weights) if w.requires_grad)
