"""Adaptive steps that can be replayed: a try decides on the device whether it is accepted, as solvers/adaptive.py does.

Times and sizes are float64, one for each group: [*groups]. Whatever is out of the ordinary (values that are not finite,
steps that vanish, a budget that is spent) is *trouble*: nothing moves any more, and the solve is done again step by
step, which says what is wrong.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.captured.fused import FusedTry, move
from windermere.fast.captured.recording import Recording
from windermere.fast.captured.steps import Motion, Place, Settle, apart, recording_of
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.problem import Problem
from windermere.solvers.runge_kutta import combine, stages

DOUBLE = torch.float64
LOOK_EVERY = 4
"""Tries between two looks of the host, once a solve takes more of them than the last one did."""
TRIES_AT_ONCE = 3
"""Tries that are replayed at once, where they are settled."""


class Tries:
    """Steps to be tried, from the state in `z` to the time in `end`.

    Where tries are `kept`, those that any group accepted are: the states before, the times and the size (0 for a group
    that did not), the nodes, and where `dense` the rates.
    """

    def __init__(
        self, motion: Motion, room: int, *, kept: bool, dense: bool = False, settle: Settle | None = None
    ) -> None:
        self.motion, self.kept, self.dense, self.room, self.settle = motion, kept, dense, room, settle
        self.knows = settle is None or not motion.layout.groups
        """Whether a first stage may be taken over from the try before, as `reuses_stages` says of an adjoint's."""
        self.reuse = self.knows and motion.tableau.fsal
        """Whether it is the last stage of the step before."""
        like, groups, device = motion.like, motion.layout.groups, motion.like.device
        self.z, self.k = motion.empty(), motion.empty()
        size, shape = prod(groups), (-1, *groups)
        self.clock = torch.zeros(5 * size + 4, dtype=DOUBLE, device=device)
        self.aimed = torch.zeros_like(self.clock)
        """What a solve starts with, as long as its times and tolerances are the same."""
        self.numbers, self.limits = self.clock[:-4].view(shape), self.clock[-4:]
        self.t, self.h, self.end, self.rtol, self.atol = self.numbers.unbind(0)
        self.beginning, self.finish, self.smallest, self.budget = self.limits.unbind(0)
        self.known = torch.zeros(groups, dtype=torch.bool, device=device)
        self.counts = torch.zeros(3 * size + 4, dtype=torch.int64, device=device)
        self.costs, self.seen = self.counts[:-4].view(shape), self.counts[-4:-1]
        """Evaluations, steps accepted and rejected. And what the host looks at: whether all groups are at the end,
        whether there is trouble, and the tries kept."""
        self.read: list[int] = []
        """All of them, as the host saw them last."""
        self.place = Place(self.counts[-1:])
        self.asked: Any = None
        count, rows = motion.tableau.stages, room + 1 if kept else 0  # the last one is for tries beyond the room
        self.states, self.rates = motion.empty(rows), motion.empty(rows if dense else 0, count)
        self.table = like.new_zeros(rows, count + 1, *motion.columns())
        self.nodes = torch.zeros(rows, 2, *groups, dtype=DOUBLE, device=device)
        self.fractions = torch.tensor(motion.tableau.c, dtype=DOUBLE, device=device).reshape(-1, *(1,) * len(groups))
        self.fused = FusedTry(self) if motion.is_fused else None
        self.start = Recording(self.begin)
        at_once = 1 if settle is None else TRIES_AT_ONCE
        self.step = recording_of(self._fused_try if self.fused else self._try, settle, like, at_once)

    def reset(self) -> None:
        """Fit to be recorded: some state, and a short way to go."""
        self.z.copy_(self.motion.like.detach())
        self.k.zero_()
        self._aim([1e-3], [1e-3], (0.0, 1.0), 10**9)
        self._begin()
        self.h.fill_(1e-3)

    def aim(self, problem: Problem, times: Sequence[float]) -> None:
        """Take over what a problem asks for, to be solved between these times."""
        own = problem.adaptive
        self._aim([s.rtol for s in own], [s.atol for s in own], times, own[0].max_steps)

    def _aim(self, rtol: list[float], atol: list[float], times: Sequence[float], budget: int) -> None:
        asked = (rtol, atol, tuple(times), budget)
        if asked == self.asked:
            return
        wanted = torch.zeros_like(self.clock, device="cpu")
        numbers, limits = wanted[:-4].view(self.numbers.shape), wanted[-4:]
        numbers[0], numbers[2] = times[0], times[-1]
        for k, values in ((3, rtol), (4, atol)):
            given = torch.tensor(values, dtype=DOUBLE).reshape(-1, *(1,) * (self.t.ndim - 1))
            numbers[k] = given.expand(self.t.shape) if self.t.ndim else given[0]
        smallest = smallest_step(times, self.z.dtype)
        limits.copy_(torch.tensor([times[0], times[-1], smallest, float(budget)], dtype=DOUBLE))
        self.aimed.copy_(wanted)
        self.asked = asked

    @property
    def spent(self) -> "NDArray[np.int64]":
        """[3, groups]: evaluations, steps accepted and rejected, when the host looked last."""
        return np.array(self.read[:-4], np.int64).reshape(3, -1)

    def reach(self, expected: int, make_room: Callable[[int], None] = lambda number: None) -> int | None:
        """Try steps until all groups are at the end, and count those kept in place; None where there is trouble.

        The host looks after as many tries as are expected, and then now and then.
        """
        self.step(expected)
        while True:
            self.read = self.counts.tolist()  # all at once: each look waits for the device
            arrived, trouble, number, _ = self.read[-4:]
            if trouble or arrived:
                return None if trouble else number
            if self.kept and number >= self.room:
                make_room(number)
            self.step(LOOK_EVERY)

    # What follows runs on the device.

    def _begin(self) -> None:
        self.clock.copy_(self.aimed)
        self.counts.zero_()
        self.known.fill_(self.knows)

    def _columns(self, value: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """[..., *groups] as columns, in the state's dtype."""
        groups, ndim = self.motion.layout.groups, self.motion.like.ndim
        value = value.to(dtype or self.z.dtype)
        return value.reshape(*value.shape, *(1,) * (ndim - len(groups))) if groups else value

    def _rms(self, value: Tensor) -> Tensor:
        return value.reshape(*self.motion.layout.groups, -1).square().mean(dim=-1).sqrt().to(DOUBLE)

    def _scale(self, *states: Tensor) -> Tensor:
        size = states[0].abs()
        for other in states[1:]:
            size = torch.maximum(size, other.abs())
        return self._columns(self.atol) + self._columns(self.rtol) * size

    @torch.no_grad()
    def begin(self) -> None:
        """The field at the start, and the first step: initial_step.py on the device."""
        self._begin()
        span, scale = self.finish - self.beginning, self._scale(self.z)
        self.k.copy_(self.motion.rate(self._columns(self.t), self.z))
        d0, d1 = self._rms(self.z / scale), self._rms(self.k / scale)
        tiny = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = torch.minimum(torch.where(tiny, 1e-6, 0.01 * d0 / torch.where(tiny, 1.0, d1)), span.abs())
        signed = torch.copysign(h0, span)
        probe = combine(self.z, self._columns(signed), (1.0,), (self.k,))
        first, last = torch.minimum(self.beginning, self.finish), torch.maximum(self.beginning, self.finish)
        change = self.motion.rate(self._columns((self.t + signed).clamp(first, last)), probe) - self.k
        d2 = self._rms(change / scale) / h0
        largest, order = torch.maximum(d1, d2), self.motion.tableau.embedded_order
        flat = largest < 1e-15
        h1 = torch.where(
            flat, (1e-3 * h0).clamp(min=1e-6), (0.01 / torch.where(flat, 1.0, largest)) ** (1 / (order + 1))
        )
        h = torch.where(d2.isfinite(), torch.minimum(100 * h0, h1), 1e-3 * h0)
        self.h.copy_(torch.minimum(h, span.abs()))
        self.costs[0] += 2
        eps = torch.finfo(self.z.dtype).eps
        lost = ~d1.isfinite() | ~d0.isfinite() | ~d2.isfinite() | (self._rms(eps * self.z / scale) > 0.5)
        self.seen[1].add_((lost.any() | ~self.z.isfinite().all() | (scale == 0).any()).to(torch.int64))

    @torch.no_grad()
    def _try(self) -> tuple[Tensor, Tensor]:
        tableau, end = self.motion.tableau, self.end
        active = (self.t != end) & (self.seen[1] == 0)
        if self.kept:
            active = active & (self.place.number[0] < self.room)
        left = (end - self.t).abs()
        h = torch.where(active, torch.where(self.h >= left * (1 - 1e-10), left, self.h), 0.0)
        signed = torch.copysign(h, end - self.t)
        reached = torch.where(active & (h == left), end, self.t + signed)
        moments = torch.where(self.fractions == 1.0, reached, self.t + self.fractions * signed)
        times, size = self._columns(moments), self._columns(signed)
        start = apart(self.z, self.settle)
        k = self.k if self.reuse else self.motion.rate(times[0], start)
        rates = stages(tableau, self.motion.rate, times.unbind(0), start, size, k)
        stepped = combine(start, size, tableau.b, rates)
        error = combine(torch.zeros_like(self.z), size, tableau.error_weights, rates)
        ratio = self._rms(error / self._scale(self.z, stepped))
        accept = active & (ratio <= 1)
        self._note(accept, times, size, reached, rates)
        self._decide(active, accept, h, ratio, reached)
        mask = self._columns(accept, torch.bool)
        self.z.copy_(torch.where(mask, stepped, self.z))
        if self.reuse:
            self.k.copy_(torch.where(mask, rates[-1], self.k))
        return size, mask

    @torch.no_grad()
    def _fused_try(self) -> tuple[Tensor, Tensor | None]:
        """The same by few kernels."""
        fused, tableau, number = self.fused, self.motion.tableau, self.place.number
        assert fused is not None
        fused.aim()
        *times, h = apart(fused.row, self.settle).unbind(0)
        start = apart(self.z, self.settle)
        rates = [self.k if self.reuse else self.motion.rate(times[0], start)]
        for i in range(1, tableau.stages):
            start = move(self.z, h, tableau.a[i], rates, number)
            rates.append(self.motion.rate(times[i], start))
        stepped = start if tableau.fsal else move(self.z, h, tableau.b, rates, number)
        if self.dense:
            self.place.put(self.rates, torch.stack(rates))
        fused.decide(stepped, rates)
        fused.commit(stepped, rates[-1])
        return h, None if self.settle is None else fused.accepted

    def _note(self, accept: Tensor, times: Tensor, size: Tensor, reached: Tensor, rates: Sequence[Tensor]) -> None:
        """Keep the try in its place; the next one takes the place too, unless some group accepted this one."""
        if not self.kept:
            return
        row = torch.cat([times, torch.where(self._columns(accept, torch.bool), size, 0.0).unsqueeze(0)])
        self.place.put(self.states, self.z)
        self.place.put(self.table, row)
        self.place.put(self.nodes, torch.stack([self.t, reached]))
        if self.dense:
            self.place.put(self.rates, torch.stack(list(rates)))
        self.place.number.add_(accept.any().to(torch.int64))

    def _decide(self, active: Tensor, accept: Tensor, h: Tensor, ratio: Tensor, reached: Tensor) -> None:
        """The clock's next state."""
        tableau = self.motion.tableau
        stale = active & ~self.known
        lost = active & ~ratio.isfinite()
        factor = SAFETY / ratio ** (1 / (tableau.embedded_order + 1))
        least = torch.where(ratio < 1, 1.0, MOST_SHRINKING)
        proposal = h * torch.minimum(torch.maximum(factor, least), torch.full_like(h, MOST_GROWTH))
        proposal = torch.where(accept, torch.maximum(proposal, self.h), proposal)
        self.h.copy_(torch.where(active & ~lost, proposal, self.h))
        self.t.copy_(torch.where(accept, reached, self.t))
        rejected = active & ~accept
        self.costs.add_(torch.stack([active * (tableau.stages - 1) + stale, accept.long(), rejected.long()]))
        if self.knows and not self.reuse:
            self.known.copy_(torch.where(active, ~accept & (self.known | stale), self.known))
        spent = (self.costs[1] + self.costs[2] >= self.budget) & (self.t != self.finish)
        trouble = lost | (rejected & (self.h < self.smallest)) | (active & spent)
        number = self.place.number[0] if self.kept else self.seen[2]
        self.seen.copy_(torch.stack([(self.t == self.end).all().long(), self.seen[1] | trouble.any().long(), number]))
