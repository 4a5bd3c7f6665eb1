"""Whole solves in C, for CPUs (native.c): of the sphere networks, and of networks of linear layers (layered.py).

Where there is no compiler, or `WINDERMERE_NATIVE=0`, PyTorch operations do the same work. The same inputs give the same
bits, however many threads there are: gradients are added in a fixed order.

Shapes: S members, B samples, d points, C channels; a state is [S, B, d]. *Weights* are each layer's weight and bias,
with a leading member axis; a sphere network's are those of Conv1d(1, C, 1), Conv1d(C, C, 3, padding=1) and
Conv1d(C, 1, 1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windermere._torch_private import is_in_a_mode
from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.native_call import C_TYPES, Again, Call, Weights, is_graded
from windermere.fast.cpu.native_plan import Choice, Network
from windermere.solvers import FastAdjoint, FastPath, Problem, Tableau, Walked
from windermere.solvers.field import Rate
from windermere.solvers.grid import Grid
from windermere.solvers.paths import Adjoined
from windermere.solvers.runge_kutta import step_through
from windermere.solvers.torch_modes import is_looked_through

CHANNELS_UP_TO, POINTS_UP_TO = 128, 4096
"""The largest sphere network that C solves: tables and shares of gradients grow with the square of the channels, and a
tile's states lie on a thread's stack."""
UNITS_UP_TO, DEPTH_UP_TO, PRODUCTS_UP_TO = 512, 16, 1 << 22
"""The most units and layers of a layered network that C solves, and the most products of one evaluation of a batch.
With more to do, PyTorch's own products have no overhead to speak of."""
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
    rate: Callable[[Weights], Rate] | None = None
    """The field as PyTorch operations, where its gradient may be differentiated again; it does not depend on time."""


class InC(FastPath):
    """Solves in C of the fields that `native_of` knows."""

    def native_of(self, field: Any) -> Native | None:
        """What native.c has to know of a field; None where it is not this path's."""

    def fixed(self, problem: Problem) -> Walked | None:
        z, grid = problem.z0, problem.grid
        if not problem.is_plain or problem.gradient == "checkpoint" or grid.nodes.ndim >= z.ndim:
            return None  # the last of these: members of one sample each
        native = self.native_of(problem.field)
        if native is None or not can_walk(z, native):
            return None
        end = walk_in_c(problem.tableau, grid, z, native)
        return Walked.over_grid(problem.tableau.propagating, grid.taken, [z, end])

    def adaptive(self, problem: Problem) -> Walked | None:
        if not problem.is_plain or problem.gradient == "checkpoint":
            return None
        native = self.native_of(problem.field)
        return None if native is None or not can_adapt(problem, problem.z0, native) else adapt_in_c(problem, native)

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        """The continuous adjoint in C; a small one on a GPU too, brought to the host and back."""
        native = self.native_of(problem.field) if problem.layout.parts is None else None
        if native is None or not _can_adjoin(problem, problem.z0, native):
            return None

        def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
            own = replace(problem, times=times)
            if not _can_adjoin(own, z, native):
                return None
            return _adjoin_on_host(own, z, a, native) if _is_brought(z) else adjoin_in_c(own, z, a, native)

        return FastAdjoint(adjoin, tuple(native.weights), native.slow)


def _can_adjoin(problem: Problem, z: Tensor, native: Native) -> bool:
    if not _is_brought(z):
        return can_adapt(problem, z, native)
    return can_adapt(problem, _room_on_host(z), replace(native, weights=[_room_on_host(w) for w in native.weights]))


def _adjoin_on_host(problem: Problem, z: Tensor, a: Tensor, native: Native) -> Adjoined | None:
    here = replace(native, weights=[w.detach().cpu() for w in native.weights])
    found = adjoin_in_c(problem, z.cpu(), a.cpu(), here)
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
    lead = z.shape[:-2]
    shapes = [lead + shape for shape in network.shapes] if lead else network.shapes
    fitting = all(w.shape == shape for w, shape in zip(weights, shapes, strict=True))
    plain = all(x.dtype is dtype and x.is_cpu and type(x) in PLAIN and x.layout is STRIDED for x in (z, *weights))
    return fitting and plain and _is_small(z, network) and library(C_TYPES[dtype], network.field) is not None


def _is_small(z: Tensor, network: Network) -> bool:
    if network.field == "sphere":
        return network.channels <= CHANNELS_UP_TO and network.points <= POINTS_UP_TO and z.numel() > 0
    samples = z.numel() // network.points
    return 0 < samples * network.products <= PRODUCTS_UP_TO and max(network.units) <= UNITS_UP_TO


def can_adapt(problem: Problem, z: Tensor, native: Native) -> bool:
    """Whether it takes an adaptive one: members are the groups; a stage that does not propagate is the next's first."""
    tableau, solvers = problem.tableau, problem.adaptive
    extra = tableau.stages - tableau.propagating
    by_member = problem.layout.groups == z.shape[:-2] and bool(solvers) and solvers[0].control == "batch"
    return by_member and extra == tableau.fsal and can_walk(z, native)


def walk_in_c(tableau: Tableau, grid: Grid, z: Tensor, native: Native) -> Tensor:
    """z at the end of a grid; for a model alone the member axis is left out."""
    call = Call(tableau, grid, z, native.weights, native.network)
    call.again = _again(native, tableau, grid.steps)
    return call.on_tape(call.there("there", call.longest), z, native.weights)


def _again(native: Native, tableau: Tableau, sizes: NDArray[np.float64]) -> Again | None:
    """The same solve by operations, of a model alone."""
    if (rate := native.rate) is None:
        return None
    return lambda z, weights: step_through(tableau, rate(weights), [float(h) for h in sizes], z)


def adapt_in_c(problem: Problem, native: Native) -> Walked | None:
    """A solve with steps of each member's own; None where something is out of the ordinary."""
    tableau, z = problem.tableau, problem.z0
    room = STEPS_AT_FIRST if is_graded(z, native.weights) else 1
    while True:
        choice = Choice.of(problem, room)
        call = Call(tableau, choice, z, native.weights, native.network)
        end = call.there("adapt", STEPS_AT_FIRST)
        if not (choice.status == FULL).any():
            break
        room *= 4
    if (choice.status != DONE).any():
        return None
    call.longest = int(choice.steps.max())
    call.again = _again(native, tableau, choice.sizes[0, : call.longest])
    states = [z, call.on_tape(end, z, native.weights)]
    return Walked.adapted(problem, states, (choice.evaluations, choice.steps, choice.rejected))


def adjoin_in_c(problem: Problem, z: Tensor, a: Tensor, native: Native) -> Adjoined | None:
    """The cotangent a of z, taken back in time with it, and the gradient of the weights."""
    choice = Choice.of(problem, room=1)
    call = Call(problem.tableau, choice, z, native.weights, native.network, adjoint=True)
    on_start, gradients = call.adjoined(STEPS_AT_FIRST, a)
    if (choice.status != DONE).any():
        return None
    return Adjoined(on_start, gradients, choice.evaluations)
