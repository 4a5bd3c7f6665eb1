"""The continuous adjoint by steps that are replayed: a state and its cotangent, backwards in time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.captured.reads import Reads
from windermere.fast.captured.recording import record
from windermere.fast.captured.steps import FixedSteps, Motion, Shares, table_of
from windermere.fast.captured.tries import LOOK_EVERY, Tries
from windermere.fast.captured.twins import Twins
from windermere.fast.captured.walks import Workplace
from windermere.solvers.adjoint import AdjointRate, Evaluation
from windermere.solvers.layout import Layout
from windermere.solvers.paths import Adjoined
from windermere.solvers.problem import Problem

ROOM = 64


class Gathering:
    """What the steps of an adjoint add to the gradients of its parameters, on the device.

    A first stage that is taken over from the step before has its share from there, too. How long the next step will be,
    nobody knows then, so that share is kept as it is for b_0 h = 1.
    """

    def __init__(self, rate: AdjointRate, *, first_is_known: bool) -> None:
        self.rate, self.gradient = rate, rate.gradient
        self.first = [torch.zeros_like(p) for p in rate.parameters] if first_is_known else []

    def begin(self) -> None:
        """Take over the first stage of all."""
        first, *_ = self.rate.finish_step()
        for own, share in zip(self.first, self._whole(first) if self.first else (), strict=True):
            own.copy_(torch.zeros_like(own) if share is None else share)

    def share(self, h: Tensor, accepted: Tensor | None) -> Shares:
        taken = self.rate.finish_step()
        if not self.first or accepted is None:
            return self.rate.share(taken, h, accepted)
        later = self.rate.share(taken, h, accepted, self.rate.tableau.b[1:])
        return [h, accepted, *later, *self._whole(taken[-1])]

    def _whole(self, stage: Evaluation) -> Shares:
        return self.rate.share([stage], 1.0, None, (1.0,))

    def add(self, shares: Shares) -> None:
        if not self.first:
            self.rate.add(shares)
            return
        (h, accepted), parts, count = shares[:2], shares[2:], len(self.gradient)
        assert h is not None
        assert accepted is not None
        self.rate.add([torch.where(accepted, h * self.rate.tableau.b[0] * first, 0.0) for first in self.first])
        self.rate.add(parts[:count])
        for first, last in zip(self.first, parts[count:], strict=True):
            first.copy_(torch.where(accepted, torch.zeros_like(first) if last is None else last, first))


class AdjointStation(Workplace):
    """All that was captured for the way back of one field, from states of one shape, by one method."""

    def __init__(self, motion: Motion, twins: Twins, *, adaptive: bool) -> None:
        super().__init__(motion.like, twins)
        self.axis = len(motion.layout.groups)
        rate = AdjointRate(motion.rate, self.axis, motion.tableau, motion.parameters)
        known = adaptive and motion.tableau.fsal and not motion.layout.groups
        gathering = Gathering(rate, first_is_known=known)
        self.gradient, self.expected = rate.gradient, LOOK_EVERY
        stacked = replace(
            motion, rate=rate, layout=_stacked(motion, self.axis), like=self._pair(motion.like), parameters=()
        )
        self.fixed = None if adaptive else FixedSteps(stacked, ROOM, kept=False, settle=gathering)
        self.tries = Tries(stacked, 0, kept=False, settle=gathering) if adaptive else None
        if self.tries is not None:
            self.tries.start.work = partial(_start, self.tries.begin, gathering)
        part = self.fixed or self.tries
        assert part is not None
        pieces = [part.step] if self.tries is None else [self.tries.start, part.step]
        record(pieces, motion.like.device, part.reset)
        part.motion, part.settle = stacked.without_field(), None
        twins.let_go()

    def _pair(self, z: Tensor, a: Tensor | None = None) -> Tensor:
        return torch.stack([z.detach(), torch.zeros_like(z) if a is None else a], dim=self.axis)

    def take(self, problem: Problem, reads: Reads, z: Tensor, a: Tensor) -> Adjoined | None:
        """The cotangent at the earlier time, and the gradients of the parameters; None where there is trouble."""
        with self.at_work(reads):
            for own in self.gradient:
                own.zero_()
            costs = self._walk(problem, self._pair(z, a))
            if costs is None:
                return None
            part = self.fixed or self.tries
            assert part is not None
            return Adjoined(part.z.unbind(self.axis)[1].clone(), [own.clone() for own in self.gradient], costs)

    def _walk(self, problem: Problem, stacked: Tensor) -> NDArray[np.int64] | None:
        if self.tries is None:
            return self._over_grid(problem, stacked)
        tries = self.tries
        tries.z.copy_(stacked)
        tries.aim(problem, problem.times)
        tries.start()
        if tries.reach(self.expected) is None:
            return None
        evaluations, accepted, rejected = tries.spent
        self.expected = int((accepted + rejected).max())
        return np.asarray(evaluations)

    def _over_grid(self, problem: Problem, stacked: Tensor) -> NDArray[np.int64] | None:
        steps, grid = self.fixed, problem.grid
        assert steps is not None
        steps.z.copy_(stacked)
        table = table_of(steps.motion, grid)
        for first in range(0, len(table), ROOM):
            part = table[first : first + ROOM]
            steps.table[: len(part)].copy_(part)
            steps.place.number.zero_()
            steps.step(len(part))
        finite = bool(steps.z.isfinite().all())
        return np.broadcast_to(problem.tableau.propagating * grid.taken, problem.layout.groups) if finite else None


def _start(work: Callable[[], None], gathering: Gathering) -> None:
    """Then let go of what autograd noted: it would tie parameters to the stream that the start was recorded on, and
    PyTorch warns of that when a step is recorded on another."""
    work()
    gathering.begin()


def _stacked(motion: Motion, axis: int) -> Layout:
    shape: Sequence[int] = motion.like.shape
    own = motion.layout
    return Layout(torch.Size((*shape[:axis], 2, *shape[axis:])), own.groups, lead=own.lead, pair=axis)
