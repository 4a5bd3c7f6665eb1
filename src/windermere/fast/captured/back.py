"""The way back over steps that were taken, to be replayed.

Shapes: N steps (room for them), K stages; a *table* is that of steps.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from windermere._torch_private import add_each, pulled_back
from windermere.fast.captured.fused import fetch, move
from windermere.fast.captured.recording import Lanes, Recording, Way
from windermere.fast.captured.steps import Motion, Place
from windermere.solvers.runge_kutta import combine

BACK_AT_ONCE = (8, 3)
"""Steps that go back as one piece: the more, the less is waited for; but many adaptive solves have few."""
OnRates: TypeAlias = dict[int, Tensor]
"""Cotangents by stage."""
Shares: TypeAlias = list[Sequence[Tensor | None]]
"""What stages add to the gradient of each parameter."""


@dataclass(frozen=True, eq=False)
class Again:
    """A step that was computed again, each stage by itself on autograd's tape."""

    place: Place
    h: Tensor
    leaves: list[Tensor]
    """What each stage starts from."""
    rates: list[Tensor]


class StepsBack:
    """From the cotangent of a state in `on_z` to that of the state before.

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
        self.one = motion.like.new_ones(())
        self.step = Recording(self.one_step, [n for n in BACK_AT_ONCE if n <= room], self.ways())

    def ways(self) -> Sequence[Way]:
        """How several steps may go back, other than one after the other."""
        if self.motion.is_compiled:
            return ()
        return (self.parameters_apart, self.side_by_side) if self.shapes else (self.side_by_side,)

    def parts(self, gathered: Tensor) -> list[Tensor]:
        """Each parameter's own."""
        pieces = gathered.split_with_sizes([shape.numel() for shape in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def reset(self) -> None:
        """Fit to be recorded: some states and cotangents, no time passes."""
        self.place.number.fill_(self.room - 1)
        self.table.zero_()
        self.states.copy_(self.motion.like.detach().expand_as(self.states))
        for tensor in (self.on_z, self.on_rates, self.gathered):
            tensor.zero_()

    def one_step(self) -> None:
        again = self._again(self.place)
        self._gather(self._through(again, self.motion.parameters)[1])
        self.place.number.sub_(1)

    def side_by_side(self, times: int) -> None:
        """So many steps. Each is computed again before its cotangent is there."""
        lanes, through = Lanes(self.on_z.device), None
        for k in range(times):
            with lanes.take(k):
                again = self._again(Place(self.place.number - k))
                lanes.wait(through)
                self._gather(self._through(again, self.motion.parameters)[1])
                through = lanes.mark()
                del again  # autograd ties a parameter to one stream, as long as a graph with it is there
        lanes.join()
        self.place.number.sub_(times)

    def parameters_apart(self, times: int) -> None:
        """The same, and nobody waits for the gradients of the parameters either: for them the way through the field is
        gone a second time, which takes more work, and less time where there is room for it."""
        lanes = Lanes(self.on_z.device)
        through = gathered = None
        for k in range(times):
            with lanes.take(k):
                again = self._again(Place(self.place.number - k))
                lanes.wait(through)
                on_rates, _ = self._through(again, (), keep=True)
                through = lanes.mark()
                shares = self._to_parameters(again, on_rates)
                lanes.wait(gathered)
                self._gather(shares)
                gathered = lanes.mark()
                del again
        lanes.join()
        self.place.number.sub_(times)

    def _again(self, place: Place) -> Again:
        fused, tableau = self.motion.is_fused, self.motion.tableau
        if fused:
            row, z = torch.empty_like(self.table[0]), self.motion.empty()
            fetch(z, self.states, self.table, row, place.number, stores=False, loads=True)
        else:
            row, z = place.of(self.table), place.of(self.states)
        *times, h = row.unbind(0)
        again = Again(place, h, [], [])
        for i in range(self.count):
            weights = tableau.a[i][:i]
            with torch.no_grad():
                start = (
                    move(z, h, weights, again.rates, place.number)
                    if fused and i
                    else combine(z, h, weights, again.rates)
                )
            again.leaves.append(start.detach().requires_grad_())
            with torch.enable_grad():
                again.rates.append(self.motion.rate(times[i], again.leaves[i]))
        return again

    def _through(self, again: Again, parameters: Sequence[Tensor], *, keep: bool = False) -> tuple[OnRates, Shares]:
        """Bring `on_z` to the start of a step. The cotangents of its rates, and what they add to these parameters; the
        tape may be kept for others."""
        shares: Shares = []
        on_rates: OnRates = {}
        found: OnRates = {}
        """The cotangents of what each stage starts from."""
        given = again.place.of(self.on_rates).unbind(0) if self.dense else [None] * self.count
        for i in reversed(range(self.count)):
            rate, leaf = again.rates[i], again.leaves[i]
            on_rate = self._on_rate(i, again, found, given[i]) if rate.requires_grad else None
            if on_rate is None:
                continue
            on_rates[i] = on_rate
            on_leaf, *share = pulled_back([rate], [leaf, *parameters], [on_rate], retain_graph=keep)
            shares.append(share)
            if on_leaf is not None:
                found[i] = on_leaf
        self._bring(again, list(found.values()))
        return on_rates, shares

    def _on_rate(self, i: int, again: Again, found: OnRates, given: Tensor | None) -> Tensor | None:
        """From the end of the step, the stages behind this one, and states interpolated within it."""
        tableau, h = self.motion.tableau, again.h
        weights = {j: tableau.a[j][i] for j in found if tableau.a[j][i] != 0.0}
        if self.motion.is_fused:
            terms, factors = [self.on_z, *(found[j] for j in weights)], [tableau.b[i], *weights.values()]
            return move(given, h, factors, terms, again.place.number) if any(factors) else given
        total = self.on_z * (h * tableau.b[i]) if tableau.b[i] != 0.0 else None
        if given is not None:
            total = given if total is None else total + given
        for j, weight in weights.items():
            total = found[j] * (h * weight) if total is None else total.addcmul(found[j], h, value=weight)
        return total

    def _bring(self, again: Again, on_leaves: Sequence[Tensor]) -> None:
        if self.motion.is_fused:
            move(self.on_z, self.one, [1.0] * len(on_leaves), on_leaves, again.place.number, out=self.on_z)
            return
        for on_leaf in on_leaves:
            self.on_z.add_(on_leaf)

    def _to_parameters(self, again: Again, on_rates: OnRates) -> Shares:
        parameters = self.motion.parameters
        return [
            pulled_back([again.rates[i]], parameters, [on_rate])
            for i, on_rate in (on_rates.items() if parameters else ())
        ]

    def _gather(self, shares: Shares) -> None:
        for share in shares:
            pairs = [(own, part) for own, part in zip(self.on_parameters, share, strict=True) if part is not None]
            if pairs:
                add_each([own for own, _ in pairs], [part for _, part in pairs])
