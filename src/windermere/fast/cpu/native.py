"""Whole solves in C, for CPUs (native.c): of the sphere networks, and of row programs (rows.py).

Where there is no compiler, or `WINDERMERE_NATIVE=0`, PyTorch operations do the same work. The same inputs give the same
bits, however many threads there are: gradients are added in a fixed order.

Shapes: S members, B samples, d points, C channels; a state is [S, B, d]. *Weights* are each layer's weight and bias,
with a leading member axis: of Conv1d(1, C, 1), Conv1d(C, C, 3, padding=1) and Conv1d(C, 1, 1). A row program's are its
external tensors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windermere._torch_private import is_in_a_mode
from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.native_call import C_TYPES, Again, Call, Weights, is_graded, lanes_of
from windermere.fast.cpu.native_plan import Choice, Network, Steps
from windermere.fast.cpu.native_samples import SampleChoice
from windermere.solvers import FastAdjoint, FastPath, Problem, Tableau, Walked
from windermere.solvers.field import Rate
from windermere.solvers.fixed import is_finite
from windermere.solvers.gradients import GradientName
from windermere.solvers.grid import Grid, make_grid
from windermere.solvers.paths import Adjoined
from windermere.solvers.problem import Stacked
from windermere.solvers.torch_modes import is_looked_through

CHANNELS_UP_TO, POINTS_UP_TO = 128, 4096
"""The largest sphere network that C solves: tables and shares of gradients grow with the square of the channels, and a
tile's states lie on a thread's stack."""
WIDTH_UP_TO, PRODUCTS_UP_TO = 512, 1 << 24
"""The widest rows of a program that C follows, and the most products of one evaluation of a batch. With more to do,
PyTorch's own products have no overhead to speak of."""
PLAIN, STRIDED = (Tensor, nn.Parameter), torch.strided
VALUES_BROUGHT = 8192
"""A state on a GPU with at most so many values has its adjoint solved on the host."""
STEPS_AT_FIRST = 16
"""Accepted steps that an adaptive solve has room for; one that takes more is begun again with four times the room."""
DONE, FULL = 0, 1
"""What native.c says of a member's solve; anything else is trouble, which the walk in Python then explains."""


@dataclass(frozen=True)
class Native:
    """A field that native.c can solve."""

    network: Network
    weights: Weights
    slow: Rate
    """The field by way of PyTorch, from these very weights."""
    again: Callable[[Steps], Again] | None = None
    """A solve with these steps by PyTorch's operations, where its gradient may be differentiated again."""
    again_by_sample: Callable[[Problem, SampleChoice], Again] | None = None
    """The same where each sample has steps of its own."""
    is_fitting: bool = False
    """Whether it is known for this moment that the weights are plain tensors that fit together and to the state."""


class InC(FastPath):
    """Solves in C of the fields that `native_of` knows."""

    def native_of(self, problem: Problem) -> Native | None:
        """What native.c has to know of a problem's field; None where it is not this path's."""

    def takes(self, problem: Problem) -> bool:
        """Whether problems like this one are this path's, whatever their field is."""
        return problem.is_plain

    def fixed(self, problem: Problem) -> Walked | None:
        z, grid = problem.z0, problem.grid
        if not self.takes(problem) or grid.nodes.ndim >= z.ndim:
            return None  # the last of these: members of one sample each
        native = self.native_of(problem)
        if native is None or not can_walk(z, native):
            return None
        states = walk_in_c(problem.tableau, grid, z, native, _way(problem))
        return Walked.over_grid(problem.tableau.propagating, grid.taken, states)

    def adaptive(self, problem: Problem) -> Walked | None:
        if not self.takes(problem) or (problem.gradient == "checkpoint" and problem.layout.groups):
            return None  # the latter's evaluations again are counted as they are in Python, of all members at once
        native = self.native_of(problem)
        if native is not None and can_adapt_samples(problem, problem.z0, native):
            return adapt_samples_in_c(problem, native)
        return None if native is None or not can_adapt(problem, problem.z0, native) else adapt_in_c(problem, native)

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        native = self.native_of(problem) if problem.layout.parts is None else None
        return None if native is None else way_back(problem, native)


def way_back(problem: Problem, native: Native) -> FastAdjoint | None:
    """The continuous adjoint in C; a small one on a GPU too, brought to the host and back."""
    if not _can_adjoin(problem, problem.z0, native):
        return None
    native = replace(native, is_fitting=False)  # later the weights may be others

    def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
        if not _can_adjoin(problem, z, native):
            return None
        adjoined = _adjoin_on_host if _is_brought(z) else adjoin_in_c
        return adjoined(problem, times, z, a, native)

    return FastAdjoint(adjoin, tuple(native.weights), native.slow)


def _can_adjoin(problem: Problem, z: Tensor, native: Native) -> bool:
    if problem.fixed:  # of a model alone
        return z.is_cpu and z.ndim == 2 and not problem.layout.groups and can_walk(z, native)
    if not _is_brought(z):
        return can_adapt(problem, z, native)
    return can_adapt(problem, _room_on_host(z), replace(native, weights=[_room_on_host(w) for w in native.weights]))


def _adjoin_on_host(
    problem: Problem, times: tuple[float, float], z: Tensor, a: Tensor, native: Native
) -> Adjoined | None:
    here = replace(native, weights=[w.detach().cpu() for w in native.weights])
    found = adjoin_in_c(problem, times, z.cpu(), a.cpu(), here)
    if found is None:
        return None
    on_start, *gradients = (x.to(z.device) for x in (found.a, *found.gradient))
    return Adjoined(on_start, gradients, found.evaluations)


def _is_brought(z: Tensor) -> bool:
    """Whether a solve on a GPU is brought to the host: a GPU is slow at many small steps one after the other."""
    return z.is_cuda and z.numel() <= VALUES_BROUGHT


def _room_on_host(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="cpu")


def can_walk(z: Tensor, native: Native) -> bool:
    """Whether native.c takes this solve: plain tensors on a CPU that fit together, and a compiler at hand."""
    network, weights, dtype = native.network, native.weights, z.dtype
    watched = is_looked_through() or is_in_a_mode()
    if watched or z.shape[-1:] != (network.points,) or dtype not in C_TYPES or z.ndim not in (2, 3):
        return False
    for x in (z,) if native.is_fitting else (z, *weights):
        if x.dtype is not dtype or not x.is_cpu or type(x) not in PLAIN or x.layout is not STRIDED:
            return False
    fitting = native.is_fitting or _is_fitting(z, weights, network)
    return fitting and _is_small(z, network) and library(C_TYPES[dtype], network.field) is not None


def _is_fitting(z: Tensor, weights: Weights, network: Network) -> bool:
    lead = tuple(z.shape[:-2])
    if network.program is not None:
        return not lead and tuple([w.numel() for w in weights]) == network.program.sizes
    return [w.shape for w in weights] == [lead + shape for shape in network.shapes]


def _is_small(z: Tensor, network: Network) -> bool:
    if network.program is None:
        return network.channels <= CHANNELS_UP_TO and network.points <= POINTS_UP_TO and z.numel() > 0
    program = network.program
    return 0 < z.shape[0] * program.products <= PRODUCTS_UP_TO and program.widest <= WIDTH_UP_TO


def can_adapt(problem: Problem, z: Tensor, native: Native) -> bool:
    """Whether it takes an adaptive one: members are the groups; a stage that does not propagate is the next's first."""
    tableau, solvers = problem.tableau, problem.adaptive
    extra = tableau.stages - tableau.propagating
    by_member = problem.layout.groups == z.shape[:-2] and bool(solvers) and solvers[0].control == "batch"
    return by_member and extra == tableau.fsal and can_walk(z, native)


def can_adapt_samples(problem: Problem, z: Tensor, native: Native) -> bool:
    """Whether it takes one where each sample chooses its steps: of a row program."""
    tableau, solvers = problem.tableau, problem.adaptive
    extra, alone = tableau.stages - tableau.propagating, z.ndim == 2 and problem.layout.groups == (len(z),)
    by_sample = alone and native.network.program is not None and solvers[0].control == "sample"
    return by_sample and extra == tableau.fsal and can_walk(z, native)


def walk_in_c(
    tableau: Tableau, grid: Grid, z: Tensor, native: Native, gradient: GradientName = "backprop"
) -> Sequence[Tensor]:
    """z at the times asked for; for a model alone the member axis is left out."""
    call = Call(tableau, grid, z, native.weights, native.network, gradient)
    if native.again is not None and call.keep:
        call.again = native.again(Steps(tableau, grid.nodes, np.array(grid.stops[1:-1], np.int64)))
    return _states(call, call.there("there", call.longest), z, native)


def _states(call: Call, end: Tensor, z: Tensor, native: Native) -> Sequence[Tensor]:
    found = call.on_tape(end, z, native.weights)
    return Stacked(torch.cat([z.unsqueeze(0), found])) if call.walk.inner else [z, found]


def _way(problem: Problem) -> GradientName:
    return "checkpoint" if problem.gradient == "checkpoint" else "backprop"


def adapt_in_c(problem: Problem, native: Native) -> Walked | None:
    """A solve with steps of each member's own; None where something is out of the ordinary."""
    tableau, z, dense = problem.tableau, problem.z0, problem.interpolate
    room = STEPS_AT_FIRST if is_graded(z, native.weights) else 1
    while True:
        choice = Choice(problem, problem.times, room)
        call = Call(tableau, choice, z, native.weights, native.network, _way(problem), dense)
        end = call.there("adapt", STEPS_AT_FIRST)
        evaluations, rejected, status, steps = choice.counts
        if FULL not in (said := status.tolist()):
            break
        room *= 4
    if set(said) != {DONE}:
        return None
    call.longest = max(steps.tolist())
    if native.again is not None and call.keep:
        nodes, inner = choice.nodes[0, : call.longest + 1], choice.inner_steps
        call.again = native.again(Steps(tableau, nodes, inner, choice.inner_times if dense else None))
    walked = Walked.adapted(problem, _states(call, end, z, native), (evaluations, steps, rejected))
    return replace(walked, recomputed=again_of(tableau, call.longest)) if problem.gradient == "checkpoint" else walked


def adapt_samples_in_c(problem: Problem, native: Native) -> Walked | None:
    """A solve with steps of each sample's own, times too; None where something is out of the ordinary."""
    tableau, z, dense = problem.tableau, problem.z0, problem.interpolate
    room, lanes = STEPS_AT_FIRST if is_graded(z, native.weights) else 1, lanes_of(z.dtype, native.network.field)
    while True:
        choice = SampleChoice(problem, room, lanes)
        call = Call(tableau, choice, z, native.weights, native.network, dense=dense)
        end = call.there("adapt_samples", STEPS_AT_FIRST)
        if FULL not in (said := choice.status.tolist()):
            break
        room *= 4
    if set(said) != {DONE}:
        return None
    call.longest = int(choice.steps.max())
    if native.again_by_sample is not None and call.keep:
        call.again = native.again_by_sample(problem, choice)
    return Walked.adapted(problem, _states(call, end, z, native), tuple(choice.costs))


def again_of(tableau: Tableau, accepted: int) -> NDArray[np.int64]:
    """How often a checkpoint's way back counts to evaluate the field, after so many chosen steps: as step by step."""
    return np.asarray(accepted * (tableau.stages - 1) + (1 if tableau.fsal else accepted))


def adjoin_in_c(problem: Problem, times: tuple[float, float], z: Tensor, a: Tensor, native: Native) -> Adjoined | None:
    """The cotangent a of z, taken back in time with it, and the gradient of the weights."""
    if problem.fixed:
        return _adjoin_over_grid(problem, make_grid(problem.fixed, times), z, a, native)
    choice = Choice(problem, times, room=1)
    call = Call(problem.tableau, choice, z, native.weights, native.network, "adjoint")
    _, on_start, gradients = call.adjoined(STEPS_AT_FIRST, a)
    evaluations, _, status, _ = choice.counts
    if set(status.tolist()) != {DONE}:
        return None
    return Adjoined(on_start, gradients, evaluations)


def _adjoin_over_grid(problem: Problem, grid: Grid, z: Tensor, a: Tensor, native: Native) -> Adjoined | None:
    """The same with fixed steps; None where the end is not finite, as Python then says where."""
    call = Call(problem.tableau, grid, z, native.weights, native.network, "adjoint")
    start, on_start, gradients = call.adjoined(call.longest, a)
    if not (is_finite(start) and is_finite(on_start)):
        return None
    return Adjoined(on_start, gradients, np.asarray(problem.tableau.propagating * grid.taken))
