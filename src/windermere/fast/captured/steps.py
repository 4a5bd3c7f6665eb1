"""Fixed steps that can be replayed: number, times and size of a step lie on the device.

Shapes: N steps (room for them), K stages, [*columns] for a number of each group that broadcasts against the state. A
*table* [N, K + 1, *columns] has the times of each step's stages, and its size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere.fast.captured.fused import can_fuse, fetch, move
from windermere.fast.captured.recording import Lanes, Recording
from windermere.solvers.field import Rate
from windermere.solvers.grid import Grid
from windermere.solvers.layout import Layout
from windermere.solvers.runge_kutta import combine, stage_nodes, stages
from windermere.solvers.tableaus import Tableau


def _recorded(t: Tensor, z: Tensor) -> Tensor:
    raise RuntimeError("a recorded step has no rate any more")


Shares: TypeAlias = Sequence[Tensor | None]
Take: TypeAlias = Callable[[], tuple[Tensor, Tensor | None]]
"""Takes a step: its size, and which groups accepted it."""
AT_ONCE = 8
"""Steps that are replayed at once, where a solve has so many left."""


class Settle(Protocol):
    """Told of each step its size and which groups accepted it (None: all), both as columns."""

    def share(self, h: Tensor, accepted: Tensor | None) -> Shares:
        """What the step adds to sums of its own."""

    def add(self, shares: Shares) -> None:
        """Add it."""


def apart(own: Tensor, settle: Settle | None) -> Tensor:
    """What a share may be made of, in memory that no later step writes to."""
    return own if settle is None else own.clone()


@torch.no_grad()
def settle_one(settle: Settle, take: Take) -> None:
    settle.add(settle.share(*take()))


@torch.no_grad()
def settle_beside(settle: Settle, take: Take, like: Tensor, times: int) -> None:
    """So many steps, which do not wait for the shares of those before. So nothing that a share is made of may lie in
    memory that the next step writes to."""
    lanes = Lanes(like.device)
    taken = settled = None
    for k in range(times):
        with lanes.take(k):
            lanes.wait(taken)
            step = take()
            taken = lanes.mark()
            shares = settle.share(*step)
            lanes.wait(settled)
            settle.add(shares)
            settled = lanes.mark()
    lanes.join()


@dataclass(frozen=True, eq=False)
class Motion:
    """What moves: a rate, by a method, in a state of this layout; and what the rate depends on."""

    tableau: Tableau
    rate: Rate
    layout: Layout
    like: Tensor
    """A state, for its shape, dtype and device."""
    parameters: tuple[Tensor, ...]
    is_compiled: bool = False
    """Whether torch.compile made the rate: what it keeps ties parameters to one stream of a GPU."""

    @property
    def is_fused(self) -> bool:
        """Whether few kernels do what lies between evaluations."""
        return can_fuse(self.like, self.layout.groups, self.tableau.stages)

    def without_field(self) -> "Motion":
        """The same for what was recorded: it needs neither the rate nor what that depends on."""
        return replace(self, rate=_recorded, parameters=())

    def empty(self, *lead: int) -> Tensor:
        return self.like.new_empty(*lead, *self.like.shape)

    def first(self) -> Tensor:
        """The number of the first step."""
        return torch.zeros(1, dtype=torch.int64, device=self.like.device)

    def columns(self) -> tuple[int, ...]:
        """The shape of a number for each group."""
        groups = self.layout.groups
        return (*groups, *(1,) * (self.like.ndim - len(groups))) if groups else ()


class Place:
    """Which step is next, on the device."""

    def __init__(self, number: Tensor) -> None:
        self.number = number
        """[1]."""

    def of(self, kept: Tensor) -> Tensor:
        """The step's own part."""
        return kept.index_select(0, self.number)[0]

    def put(self, kept: Tensor, value: Tensor) -> None:
        kept.index_copy_(0, self.number, value.unsqueeze(0))


class FixedSteps:
    """Steps over any grid, from the state in `z`; where they are `kept`, the states before each of them are."""

    def __init__(self, motion: Motion, room: int, *, kept: bool, settle: Settle | None = None) -> None:
        self.motion, self.kept, self.room, self.settle = motion, kept, room, settle
        count = motion.tableau.propagating
        self.place, self.z = Place(motion.first()), motion.empty()
        self.table = motion.like.new_zeros(room, count + 1, *motion.columns())
        self.states = motion.empty(room if kept else 0)
        self.row = self.table.new_zeros(count + 1)
        self.step = recording_of(self._fused_step if motion.is_fused else self._step, settle, motion.like, AT_ONCE)

    def reset(self) -> None:
        """Fit to be recorded: some state, no time passes."""
        self.place.number.zero_()
        self.table.zero_()
        self.z.copy_(self.motion.like.detach())

    @torch.no_grad()
    def _step(self) -> tuple[Tensor, None]:
        tableau, start = self.motion.tableau, apart(self.z, self.settle)
        *times, h = self.place.of(self.table).unbind(0)
        if self.kept:
            self.place.put(self.states, self.z)
        stepped = combine(start, h, tableau.b, stages(tableau, self.motion.rate, times, start, h))
        self.z.copy_(torch.where(h != 0, stepped, self.z) if self.motion.layout.groups else stepped)
        self.place.number.add_(1)
        return h, None

    @torch.no_grad()
    def _fused_step(self) -> tuple[Tensor, None]:
        """The same by few kernels."""
        tableau, number = self.motion.tableau, self.place.number
        fetch(self.z, self.states, self.table, self.row, number, stores=self.kept, loads=False)
        *times, h = apart(self.row, self.settle).unbind(0)
        rates: list[Tensor] = []
        for i, t in enumerate(times):
            start = apart(self.z, self.settle) if i == 0 else move(self.z, h, tableau.a[i], rates, number)
            rates.append(self.motion.rate(t, start))
        move(self.z, h, tableau.b, rates, number, out=self.z, advance=1)
        return h, None


def recording_of(take: Take, settle: Settle | None, like: Tensor, at_once: int) -> Recording:
    """A recording of one step, and of so many at once. Each is settled where someone asks for it."""
    if settle is None:
        return Recording(take, [at_once] if at_once > 1 else [])
    beside = partial(settle_beside, settle, take, like)
    return Recording(partial(settle_one, settle, take), [at_once], [beside])


def table_of(motion: Motion, grid: Grid) -> Tensor:
    """A grid's table, on the device."""
    count = motion.tableau.propagating
    times = stage_nodes(motion.tableau, grid.nodes[..., :-1], grid.nodes[..., 1:])[:count]
    numbers = np.moveaxis(np.concatenate([times, grid.steps[None]]), -1, 0)
    if grid.nodes.ndim == 1 and motion.layout.groups:  # one grid for all members
        numbers = np.broadcast_to(numbers[..., None], (*numbers.shape, *motion.layout.groups))
    return motion.layout.columns(numbers, motion.like)
