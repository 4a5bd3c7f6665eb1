"""Fields whose operations are row-wise (trace.py), solved on a GPU in one kernel: rows.cu.

The kernel interprets a field's program, so that no field has to be compiled. A tile of samples has a block of threads,
and all its values and weights on chip; whatever does not fit there, or is out of the ordinary, is left to others.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import torch
from torch import Tensor

from windermere._torch_private import is_in_a_mode
from windermere.fast.cpu.native import DONE, FULL, PLAIN, STRIDED, again_of
from windermere.fast.cpu.native_call import C_TYPES, Again, Weights, is_graded
from windermere.fast.cpu.native_plan import Steps
from windermere.fast.cpu.rows import replay, say_once, to_roots
from windermere.fast.gpu.call import Call, Engine, chosen, graded_of
from windermere.fast.gpu.driver import Gpu
from windermere.fast.gpu.plan import MOST_WEIGHTS, Plan, Shape, fitting
from windermere.fast.program import Program
from windermere.fast.trace import DeclinedError
from windermere.fast.traced import Traced, traced
from windermere.solvers import FastAdjoint, FastPath, Problem, Walked
from windermere.solvers.paths import Adjoined
from windermere.solvers.torch_modes import is_looked_through

STEPS_AT_FIRST = 64
"""Accepted steps that an adaptive solve has room for; one that takes more is begun again with four times the room."""
KEPT_UP_TO = 1 << 31
"""Bytes that a solve may keep for its way back."""


class RowsOnGpu(FastPath):
    """Solves on a GPU, each in one kernel, of fields whose program is known.

    devices: kinds of devices whose solves are taken.
    """

    def __init__(self, devices: tuple[str, ...] = ("cuda",), engine: Engine | None = None) -> None:
        self.devices, self.engine = devices, engine or Gpu()

    def fixed(self, problem: Problem) -> Walked | None:
        if not self.takes(problem) or problem.interpolate or problem.grid.nodes.ndim != 1:
            return None
        found = self.traced(problem)
        return None if found is None else self.over_grid(problem, found)

    def adaptive(self, problem: Problem) -> Walked | None:
        if not self.takes(problem) or not _has_known_stages(problem):
            return None
        found = self.traced(problem)
        return None if found is None else self.adapted(problem, found)

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        """The continuous adjoint of a module that depends on its own parameters alone, as it has to without this."""
        if not self.takes(problem) or not problem.adaptive:
            return None
        found = self.traced(problem) if _has_known_stages(problem) else None
        if found is None or found.unread is None:
            return None
        weights = found.externals()
        plan = self.plan(found.program, problem, weights, adjoint=True)
        if plan is None:
            return None
        way = FastAdjoint(self.way_back(problem, plan, weights), tuple(weights), problem.field)
        return to_roots(way, found, found.unread, problem.field)

    def takes(self, problem: Problem) -> bool:
        """States of rows, and not of an ensemble, where PyTorch does not want to see every operation."""
        z = problem.z0
        plain = z.ndim == 2 and z.device.type in self.devices and z.dtype in C_TYPES and not problem.layout.groups
        asked = not problem.record and len(problem.solvers) == 1 and not problem.by_sample
        return plain and asked and not (is_looked_through() or is_in_a_mode() or torch.is_anomaly_enabled())

    def traced(self, problem: Problem) -> Traced | None:
        if problem.z0.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        try:
            return traced(problem)
        except DeclinedError as reason:
            say_once(f"{type(problem.field).__name__} is not solved in one kernel: {reason}")
            return None

    def plan(self, program: Program, problem: Problem, weights: Weights, *, adjoint: bool = False) -> Plan | None:
        """How a block takes this solve; None where it does not."""
        z = problem.z0
        if not _are_plain(z, weights, program):
            return None
        graded = graded_of(weights) if adjoint or is_graded(z, weights) else None
        adaptive, engine, device = bool(problem.adaptive), self.engine, z.device
        shape = Shape(program, graded, problem.tableau, adjoint, problem.interpolate and adaptive, len(z), z.dtype)
        plan = fitting(shape, engine.threads, engine.lanes, engine.processors(device), engine.chip(device))
        if plan is None or not engine.ready(plan.machine, z.dtype, device):
            return None
        return plan if not adaptive or plan.tiles <= engine.together(plan, z.dtype, device) else None

    def over_grid(self, problem: Problem, found: Traced) -> Walked | None:
        z, grid, weights = problem.z0, problem.grid, found.externals()
        plan = self.plan(found.program, problem, weights)
        if plan is None or _kept(plan, z, grid.steps.size) > KEPT_UP_TO:
            return None
        call = Call(self.engine, plan, z, weights, is_graded(z, weights), grid.steps.size)
        call.take_grid(grid)
        stops = np.array(grid.stops[1:-1], np.int64)
        call.again = replay(found.program, Steps(problem.tableau, grid.nodes, stops))
        states = _states(call, call.there("there"), z, weights)
        return Walked.over_grid(problem.tableau.propagating, grid.taken, states)

    def adapted(self, problem: Problem, found: Traced) -> Walked | None:
        """A solve with steps that are chosen; None where something is out of the ordinary."""
        z, weights = problem.z0, found.externals()
        plan, keep = self.plan(found.program, problem, weights), is_graded(z, weights)
        if plan is None:
            return None
        for k in count():
            room = STEPS_AT_FIRST * 4**k if keep else 1
            if _kept(plan, z, room) > KEPT_UP_TO:
                return None
            call = Call(self.engine, plan, z, weights, keep, room)
            call.take_choice(problem)
            call.again = _replay_later(found.program, problem, call)
            states = _states(call, call.there("adapt"), z, weights)  # made ready while the GPU is at work
            status, *costs = call.ended()
            if status != FULL:
                break
        if status != DONE:
            return None
        accepted, evaluations, rejected = costs
        walked = Walked.adapted(problem, states, [np.array([n]) for n in (evaluations, accepted, rejected)])
        if problem.gradient != "checkpoint":
            return walked
        return replace(walked, recomputed=again_of(problem.tableau, accepted))

    def way_back(
        self, problem: Problem, plan: Plan, weights: Weights
    ) -> Callable[[tuple[float, float], Tensor, Tensor], Adjoined | None]:
        def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
            if is_looked_through() or is_in_a_mode() or z.dtype != problem.z0.dtype:
                return None
            call = Call(self.engine, plan, z, weights, keep=False, room=1)
            call.take_choice(problem.but(times=times))
            on_start, found = call.adjoined(a)
            gradient = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]
            status, _, evaluations, _ = call.ended()
            return Adjoined(on_start, gradient, np.array([evaluations])) if status == DONE else None

        return adjoin


def _has_known_stages(problem: Problem) -> bool:
    """Whether the error is the batch's, and a stage that does not propagate is the next step's first."""
    tableau = problem.tableau
    return problem.adaptive[0].control == "batch" and tableau.stages - tableau.propagating == tableau.fsal


def _are_plain(z: Tensor, weights: Weights, program: Program) -> bool:
    """Whether these are plain tensors in one place, that fit the program."""
    dtype, device = z.dtype, z.device
    for x in (z, *weights):
        if type(x) not in PLAIN or x.layout is not STRIDED or x.dtype is not dtype or x.device != device:
            return False
    sizes = [w.numel() for w in weights] == list(program.sizes)
    return sizes and 0 < len(weights) <= MOST_WEIGHTS and z.shape[1] == program.points and z.numel() > 0


def _kept(plan: Plan, z: Tensor, room: int) -> int:
    """Bytes that are kept for the way back."""
    return room * plan.numbers["stages"] * z.numel() * z.element_size()


def _states(call: Call, end: Tensor, z: Tensor, weights: Weights) -> list[Tensor]:
    found = call.on_tape(end, z, weights)
    return [z, *(found.unbind(0) if call.inner else (found,))]


def _replay_later(program: Program, problem: Problem, call: Call) -> Again:
    """The same solve by PyTorch's operations; the steps that were chosen are asked for when it is needed."""
    times = np.array(problem.times[1:-1], np.float64) if problem.interpolate else None
    tableau, held, between = problem.tableau, call.held, call.inner  # not the call, which holds this

    def again(z: Tensor, weights: Weights) -> Tensor:
        nodes, inner = chosen(held, between)
        return replay(program, Steps(tableau, nodes, inner, times))(z, weights)

    return again
