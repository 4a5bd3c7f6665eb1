"""Which solves are captured: of fields on a GPU that can be replayed, from their second solve on."""

import logging
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, TypeAlias

import torch
from torch import Tensor

from windermere.fast.captured.adjoint import AdjointStation
from windermere.fast.captured.steps import Motion
from windermere.fast.captured.twins import with_twins
from windermere.fast.captured.walks import Station, solve_captured
from windermere.fast.fingerprint import Fingerprint, UnknownFieldError, fingerprint
from windermere.fast.observed import NotReplayableError, observe
from windermere.solvers import FastAdjoint, FastPath, Problem, Walked
from windermere.solvers.field import packed_rate
from windermere.solvers.paths import Adjoined
from windermere.solvers.torch_modes import is_looked_through

MOST_STATIONS = 16
"""Captures that are kept; the one that was used longest ago goes first."""
MOST_CAPTURES = 4
"""Captures of one field from one kind of state: one whose tensors keep moving is not worth any."""


Captured: TypeAlias = tuple[Station | AdjointStation, tuple[int, ...]]
"""And which tensors of its fingerprint the field reads."""


@dataclass
class Known:
    """What is known of solves of one kind."""

    solves: int = 0
    captures: int = 0
    why_not: str | None = None


@dataclass(frozen=True, eq=False)
class CapturedSteps(FastPath):
    """Solves by steps that are captured once and replayed."""

    devices: tuple[str, ...] = ("cuda",)
    """Kinds of devices whose solves are taken; on a CPU, which has nothing to replay, tests do the same work."""
    after: int = 1
    """Solves of one kind that go by without a capture: it takes a while, and many are solved once only."""
    known: "OrderedDict[Hashable, Known]" = field(default_factory=OrderedDict)
    stations: "OrderedDict[Hashable, Captured]" = field(default_factory=OrderedDict)
    lock: Any = field(default_factory=RLock)

    def fixed(self, problem: Problem) -> Walked | None:
        if problem.interpolate or (problem.grid.nodes.ndim > 1 and problem.grid.nodes.ndim >= problem.z0.ndim):
            return None
        return self._solved(problem if problem.grid.nodes.ndim > 1 else problem.ungrouped())

    def adaptive(self, problem: Problem) -> Walked | None:
        if problem.interpolate and problem.layout.groups:
            return None
        return self._solved(problem)

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        if problem.fixed and problem.grid.nodes.ndim == 1:
            problem = problem.ungrouped()
        station, parameters = self._found(problem, back=True)
        if not isinstance(station, AdjointStation):
            return None

        def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
            return station.take(replace(problem, times=times), z, a)

        return FastAdjoint(adjoin, tuple(parameters), problem.field)

    def _solved(self, problem: Problem) -> Walked | None:
        if problem.gradient not in ("backprop", "checkpoint"):
            return None
        station, parameters = self._found(problem, back=False)
        if not isinstance(station, Station):
            return None
        return solve_captured(station, problem, parameters if station.graded else ())

    def _found(self, problem: Problem, *, back: bool) -> tuple[Station | AdjointStation | None, list[Tensor]]:
        """What is captured for such solves, if anything is, and the tensors that need gradients."""
        if not self._may_be_taken(problem):
            return None, []
        try:
            print_ = fingerprint(problem.field)
        except UnknownFieldError as error:
            _tell_once(str(error))
            return None, []
        with self.lock:
            found = self._station(problem, print_, back)
        return (None, []) if found is None else (found[0], _graded(print_, found[1]))

    def _may_be_taken(self, problem: Problem) -> bool:
        z = problem.z0
        if z.device.type not in self.devices or problem.record or not z.numel() or is_looked_through():
            return False
        if type(z) not in (Tensor, torch.nn.Parameter):
            return False
        return not (z.is_cuda and torch.cuda.is_current_stream_capturing())

    def _station(self, problem: Problem, print_: Fingerprint, back: bool) -> Captured | None:
        """What was captured for such solves, or is captured now."""
        kind = (_kind(problem), back)
        key = (print_.key, kind)
        if key in self.stations:
            self.stations.move_to_end(key)
            return self.stations[key]
        known = self.known.setdefault((print_.structure, kind), Known())
        self.known.move_to_end((print_.structure, kind))
        while len(self.known) > 8 * MOST_STATIONS:
            self.known.popitem(last=False)
        known.solves += 1
        if known.why_not is not None or known.solves <= self.after:
            return None
        if known.captures >= MOST_CAPTURES:
            known.why_not = "its tensors are others at each solve"
            _tell_once(known.why_not)
            return None
        known.captures += 1
        try:
            self.stations[key] = made = self._capture(problem, print_, back)
        except NotReplayableError as error:
            known.why_not = str(error)
            _tell_once(known.why_not)
            return None
        while len(self.stations) > MOST_STATIONS:
            self.stations.popitem(last=False)
        for place in made[1]:
            weakref.finalize(print_.tensors[place], self.stations.pop, key, None)
        return made

    def _capture(self, problem: Problem, print_: Fingerprint, back: bool) -> Captured:
        z = problem.z0.detach()
        t = problem.layout.columns(torch.zeros(problem.layout.groups).numpy() + problem.times[0], z)
        with torch.enable_grad():
            observed = observe(problem.field, packed_rate(problem.layout, problem.field), t, z)
        if observed.fingerprint.key != print_.key:
            raise NotReplayableError("a call changes the field itself")
        parameters = _graded(print_, observed.reads)
        if not all(p.is_leaf for p in parameters):
            raise NotReplayableError("it depends on tensors that are computed anew for each solve")
        graded = torch.is_grad_enabled() and (problem.z0.requires_grad or bool(parameters))
        rate, twins = with_twins(problem, parameters, compiles=problem.compile and not back)
        motion = Motion(problem.tableau, rate, problem.layout, z.clone(), tuple(twins))
        try:
            if back:
                return AdjointStation(motion, adaptive=bool(problem.adaptive)), observed.reads
            station = Station(motion, adaptive=bool(problem.adaptive), graded=graded, dense=problem.interpolate)
        except RuntimeError as error:  # CUDA's, of whatever kind
            raise NotReplayableError(str(error).splitlines()[0]) from error
        return station, observed.reads


def _kind(problem: Problem) -> Hashable:
    """What solves have in common that may share a capture."""
    z, layout = problem.z0, problem.layout
    shape = (z.shape, z.dtype, z.device, layout.groups, layout.parts, layout.lead)
    wanted = (torch.is_grad_enabled(), z.requires_grad, problem.interpolate, bool(problem.adaptive), problem.compile)
    return (*shape, *wanted, problem.tableau, problem.grid.nodes.ndim if problem.fixed else 0)


def _graded(print_: Fingerprint, reads: tuple[int, ...]) -> list[Tensor]:
    """The tensors that a field reads and that need gradients."""
    return [print_.tensors[k] for k in reads if print_.tensors[k].requires_grad]


_told: set[str] = set()


def _tell_once(why: str) -> None:
    if why not in _told:
        _told.add(why)
        logging.getLogger("windermere").info("a field is solved step by step, not by captured steps: %s", why)
