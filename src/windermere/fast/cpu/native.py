"""Whole solves in C, for CPUs (native.c): of the sphere networks, and of networks of linear layers (layered.py).

Where there is no compiler, or `WINDERMERE_NATIVE=0`, PyTorch operations do the same work. The same inputs give the same
bits, however many threads there are: gradients are added in a fixed order.

Shapes: S members, B samples, d points, C channels; a state is [S, B, d]. *Weights* are each layer's weight and bias,
with a leading member axis; a sphere network's are those of Conv1d(1, C, 1), Conv1d(C, C, 3, padding=1) and
Conv1d(C, 1, 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windermere._torch_private import is_in_a_mode
from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.native_call import C_TYPES, Again, Call, Weights, is_graded
from windermere.fast.cpu.native_plan import Choice, Network, network_of
from windermere.solvers import Adaptive, Tableau
from windermere.solvers.field import Adapt, Adapted, Adjoined, FusedAdjoint, Groups, Rate, Walk
from windermere.solvers.grid import Grid, Steps
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
    rate: Callable[[Weights], Rate] | None = None
    """The field as PyTorch operations, where its gradient may be differentiated again; it does not depend on time."""


def sphere(weights: Weights, points: int) -> Native:
    return Native(network_of("sphere", points, weights[0].shape[-3]), weights)


def with_native(native: Native, otherwise: Callable[[], Walk] | None = None) -> Walk:
    """A walk in C where that can be, and another, if there is one, where it cannot."""

    def walk(tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor | None:
        if isinstance(grid, Grid) and can_walk(z, native):
            return walk_in_c(tableau, grid, z, native)
        return otherwise()(tableau, grid, z) if otherwise is not None else None

    return walk


def native_adapt(native: Native) -> Adapt:
    """Adaptive solves in C where that can be."""

    def adapt(
        tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], groups: Groups, z: Tensor
    ) -> Adapted | None:
        if not can_adapt(tableau, solvers, groups, z, native):
            return None
        return adapt_in_c(tableau, solvers, times, z, native)

    return adapt


def native_adjoint(native: Native, rate: Rate) -> FusedAdjoint:
    """The continuous adjoint in C; a small one on a GPU too, brought to the host and back."""

    def can(tableau: Tableau, solvers: Sequence[Any], groups: Groups, z: Tensor) -> bool:
        if not _is_brought(z):
            return can_adapt(tableau, solvers, groups, z, native)
        own = replace(native, weights=[_room_on_host(w) for w in native.weights])
        return can_adapt(tableau, solvers, groups, _room_on_host(z), own)

    def adjoin(
        tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], groups: Groups, z: Tensor, a: Tensor
    ) -> Adjoined | None:
        if not can(tableau, solvers, groups, z):
            return None
        if not _is_brought(z):
            return adjoin_in_c(tableau, solvers, times, z, a, native)
        here = replace(native, weights=[w.detach().cpu() for w in native.weights])
        found = adjoin_in_c(tableau, solvers, times, z.cpu(), a.cpu(), here)
        if found is None:
            return None
        on_start, *gradients = (x.to(z.device) for x in (found.a, *found.gradient))
        return Adjoined(on_start, gradients, found.evaluations)

    return FusedAdjoint(adjoin, can, tuple(native.weights), rate)


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


def can_adapt(tableau: Tableau, solvers: Sequence[Any], groups: Groups, z: Tensor, native: Native) -> bool:
    """Whether it takes an adaptive one: members are the groups; a stage that does not propagate is the next's first."""
    extra = tableau.stages - tableau.propagating
    by_member = groups == z.shape[:-2] and all(isinstance(s, Adaptive) and s.control == "batch" for s in solvers)
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


def adapt_in_c(
    tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, native: Native
) -> Adapted | None:
    """z at the end of a solve with steps of each member's own; None where something is out of the ordinary."""
    room = STEPS_AT_FIRST if is_graded(z, native.weights) else 1
    while True:
        choice = Choice.of(tableau, solvers, times, z.dtype, room)
        call = Call(tableau, choice, z, native.weights, native.network)
        end = call.there("adapt", STEPS_AT_FIRST)
        if not (choice.status == FULL).any():
            break
        room *= 4
    if (choice.status != DONE).any():
        return None
    call.longest = int(choice.steps.max())
    call.again = _again(native, tableau, choice.sizes[0, : call.longest])
    return Adapted(call.on_tape(end, z, native.weights), choice.evaluations, choice.steps, choice.rejected)


def adjoin_in_c(
    tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, a: Tensor, native: Native
) -> Adjoined | None:
    """The cotangent a of z, taken back in time with it, and the gradient of the weights."""
    choice = Choice.of(tableau, solvers, times, z.dtype, room=1)
    call = Call(tableau, choice, z, native.weights, native.network, adjoint=True)
    on_start, gradients = call.adjoined(STEPS_AT_FIRST, a)
    if (choice.status != DONE).any():
        return None
    return Adjoined(on_start, gradients, choice.evaluations)
