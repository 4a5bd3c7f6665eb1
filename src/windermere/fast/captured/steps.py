"""Fixed steps that can be replayed: number, times and size of a step lie on the device.

Shapes: N steps (room for them), K stages, [*columns] for a number of each group that broadcasts against the state. A
*table* [N, K + 1, *columns] has the times of each step's stages, and its size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import add_each
from windermere.fast.captured.fused import can_fuse, fetch, move
from windermere.fast.captured.recording import Recording
from windermere.solvers.field import Rate
from windermere.solvers.grid import Grid
from windermere.solvers.layout import Layout
from windermere.solvers.runge_kutta import combine, stage_nodes, stages
from windermere.solvers.tableaus import Tableau


def _recorded(t: Tensor, z: Tensor) -> Tensor:
    raise RuntimeError("a recorded step has no rate any more")


AT_ONCE = 8
"""Steps that are replayed at once, where a solve has so many left."""
Settle: TypeAlias = Callable[[Tensor, Tensor | None], None]
"""Told of each step its size and which groups accepted it (None: all), both as columns."""


@dataclass(frozen=True, eq=False)
class Motion:
    """What moves: a rate, by a method, in a state of this layout; and what the rate depends on."""

    tableau: Tableau
    rate: Rate
    layout: Layout
    like: Tensor
    """A state, for its shape, dtype and device."""
    parameters: tuple[Tensor, ...]

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
        self.step = Recording(self._fused_step if motion.is_fused else self._step, AT_ONCE)

    def reset(self) -> None:
        """Fit to be recorded: some state, no time passes."""
        self.place.number.zero_()
        self.table.zero_()
        self.z.copy_(self.motion.like.detach())

    @torch.no_grad()
    def _step(self) -> None:
        tableau = self.motion.tableau
        *times, h = self.place.of(self.table).unbind(0)
        if self.kept:
            self.place.put(self.states, self.z)
        rates = stages(tableau, self.motion.rate, times, self.z, h)
        stepped = combine(self.z, h, tableau.b, rates)
        if self.settle is not None:
            self.settle(h, None)
        self.z.copy_(torch.where(h != 0, stepped, self.z) if self.motion.layout.groups else stepped)
        self.place.number.add_(1)

    @torch.no_grad()
    def _fused_step(self) -> None:
        """The same by few kernels."""
        tableau, number = self.motion.tableau, self.place.number
        fetch(self.z, self.states, self.table, self.row, number, stores=self.kept, loads=False)
        *times, h = self.row.unbind(0)
        rates: list[Tensor] = []
        for i, t in enumerate(times):
            start = self.z if i == 0 else move(self.z, h, tableau.a[i], rates, number)
            rates.append(self.motion.rate(t, start))
        if self.settle is not None:
            self.settle(h, None)
        move(self.z, h, tableau.b, rates, number, out=self.z, advance=1)


def table_of(motion: Motion, grid: Grid) -> Tensor:
    """A grid's table, on the device."""
    count = motion.tableau.propagating
    times = stage_nodes(motion.tableau, grid.nodes[..., :-1], grid.nodes[..., 1:])[:count]
    numbers = np.moveaxis(np.concatenate([times, grid.steps[None]]), -1, 0)
    if grid.nodes.ndim == 1 and motion.layout.groups:  # one grid for all members
        numbers = np.broadcast_to(numbers[..., None], (*numbers.shape, *motion.layout.groups))
    return motion.layout.columns(numbers, motion.like)


class StepsBack:
    """The way back over steps that were taken: from the cotangent of a state in `on_z` to that of the state before.

    A step is computed again from its state, then differentiated; the gradients of the parameters add up. Where states
    between steps were interpolated, their cotangents come by way of the rates of each step (`dense`).
    """

    def __init__(self, motion: Motion, room: int, *, dense: bool = False) -> None:
        self.motion, self.room, self.dense = motion, room, dense
        tableau = motion.tableau
        self.count = tableau.interpolating if dense else tableau.propagating
        self.place, self.on_z, self.states = Place(motion.first()), motion.empty(), motion.empty(room)
        self.table = motion.like.new_zeros(room, self.count + 1, *motion.columns())
        self.on_rates = motion.empty(room if dense else 0, self.count)
        self.gathered = motion.like.new_zeros(sum(p.numel() for p in motion.parameters))
        """The gradients of all parameters, one after the other."""
        self.shapes = [p.shape for p in motion.parameters]
        self.on_parameters = self.parts(self.gathered)
        self.row, self.z, self.one = self.table.new_zeros(self.count + 1), motion.empty(), motion.like.new_ones(())
        self.step = Recording(self._fused_step if motion.is_fused else self._step, AT_ONCE)

    def parts(self, gathered: Tensor) -> list[Tensor]:
        """Each parameter's own."""
        pieces = gathered.split_with_sizes([shape.numel() for shape in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def reset(self) -> None:
        """Fit to be recorded: some states and cotangents, no time passes."""
        self.place.number.zero_()
        self.table.zero_()
        self.states.copy_(self.motion.like.detach().expand_as(self.states))
        for tensor in (self.on_z, self.on_rates, self.gathered):
            tensor.zero_()

    def _step(self) -> None:
        *times, h = self.place.of(self.table).unbind(0)
        leaves, rates = self._again(times, h)
        cotangents = self._cotangents(h)
        total = self.on_z
        for i in reversed(range(self.count)):
            on_rate = cotangents[i]
            if on_rate is None or not rates[i].requires_grad:
                continue
            wanted = [leaves[i], *self.motion.parameters]
            found: list[Tensor | None] = list(torch.autograd.grad(rates[i], wanted, on_rate, allow_unused=True))
            self._gather(found[1:])
            if (on_leaf := found[0]) is None:
                continue
            total = total + on_leaf
            for j, a in enumerate(self.motion.tableau.a[i][:i]):
                if a != 0.0:
                    before = cotangents[j]
                    cotangents[j] = on_leaf * (h * a) if before is None else before.addcmul(on_leaf, h, value=a)
        self.on_z.copy_(total)
        self.place.number.sub_(1)

    def _fused_step(self) -> None:
        """The same by few kernels."""
        tableau, number = self.motion.tableau, self.place.number
        on_rates = self.place.of(self.on_rates).unbind(0) if self.dense else None
        fetch(self.z, self.states, self.table, self.row, number, stores=False, loads=True)
        *times, h = self.row.unbind(0)
        leaves, rates = self._again(times, h)
        found: dict[int, Tensor] = {}
        """The cotangents of what each stage starts from."""
        for i in reversed(range(self.count)):
            later = [j for j in found if tableau.a[j][i] != 0.0]
            weights = [tableau.b[i], *(tableau.a[j][i] for j in later)]
            given = None if on_rates is None else on_rates[i]
            if not rates[i].requires_grad or (given is None and not any(weights)):
                continue
            terms = [self.on_z, *(found[j] for j in later)]
            on_rate = move(given, h, weights, terms, number) if any(weights) else given
            gradients = list(
                torch.autograd.grad(rates[i], [leaves[i], *self.motion.parameters], on_rate, allow_unused=True)
            )
            self._gather(gradients[1:])
            if gradients[0] is not None:
                found[i] = gradients[0]
        move(self.on_z, self.one, [1.0] * len(found), list(found.values()), number, out=self.on_z, advance=-1)

    def _again(self, times: Sequence[Tensor], h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """What each stage starts from, and its rate, each by itself on autograd's tape."""
        fused, number = self.motion.is_fused, self.place.number
        z = self.z if fused else self.place.of(self.states)
        leaves: list[Tensor] = []
        rates: list[Tensor] = []
        for i in range(self.count):
            row = self.motion.tableau.a[i][:i]
            with torch.no_grad():
                start = move(z, h, row, rates, number) if fused and i else combine(z, h, row, rates)
            leaves.append(start.detach().requires_grad_())
            with torch.enable_grad():
                rates.append(self.motion.rate(times[i], leaves[i]))
        return leaves, rates

    def _cotangents(self, h: Tensor) -> list[Tensor | None]:
        """The cotangent of each stage's rate, from the end of the step and from states interpolated within it."""
        b = self.motion.tableau.b
        found: list[Tensor | None] = [self.on_z * (h * b[i]) if b[i] != 0.0 else None for i in range(self.count)]
        if self.dense:
            on_rates = self.place.of(self.on_rates).unbind(0)
            found = [given if own is None else own + given for own, given in zip(found, on_rates, strict=True)]
        return found

    def _gather(self, found: Sequence[Tensor | None]) -> None:
        pairs = [(own, part) for own, part in zip(self.on_parameters, found, strict=True) if part is not None]
        if pairs:
            add_each([own for own, _ in pairs], [part for _, part in pairs])
