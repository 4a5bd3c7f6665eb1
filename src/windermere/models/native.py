"""The sphere networks' solves in C, for CPUs: native.c.

Where there is no compiler, or `WINDERMERE_NATIVE=0`, PyTorch operations do the same work: the walk in dense.py, and
adaptive.py. The same inputs give the same bits, however many threads there are: gradients are added in a fixed order.

Shapes: S members, B samples, d points, C channels; a state is [S, B, d]. *Weights* are those of Conv1d(1, C, 1),
Conv1d(C, C, 3, padding=1) and Conv1d(C, 1, 1), each with its bias, and with a leading member axis.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from windermere.models.compiled import library
from windermere.models.native_call import C_TYPES, Call, Choice, Weights, is_graded
from windermere.solvers import Adaptive, Tableau
from windermere.solvers.field import Adapt, Adapted, Adjoined, FusedAdjoint, Groups, Rate, Walk
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.surroundings import is_looked_through

CHANNELS_UP_TO, POINTS_UP_TO = 128, 4096
"""Tables and shares of gradients grow with the square of the channels; a tile's states lie on a thread's stack."""
VALUES_BROUGHT = 8192
"""Of a state on a GPU, up to which its adjoint is solved on the host."""
STEPS_AT_FIRST = 16
"""Accepted steps that an adaptive solve has room for; one that takes more is begun again with four times the room."""
DONE, FULL = 0, 1
"""What native.c says of a member's solve; anything else is trouble, which the walk in Python then explains."""


def with_native(weights: Weights, points: int, otherwise: Callable[[], Walk]) -> Walk:
    """A walk in C where that can be, and another where it cannot."""

    def walk(tableau: Tableau, grid: Grid | Steps, z: Tensor) -> Tensor:
        if isinstance(grid, Grid) and z.shape[-1] == points and can_walk(z, weights):
            return walk_in_c(tableau, grid, z, weights)
        return otherwise()(tableau, grid, z)

    return walk


def native_adapt(weights: Weights, points: int) -> Adapt:
    """Adaptive solves in C where that can be."""

    def adapt(
        tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], groups: Groups, z: Tensor
    ) -> Adapted | None:
        if z.shape[-1] != points or not can_adapt(tableau, solvers, groups, z, weights):
            return None
        return adapt_in_c(tableau, solvers, times, z, weights)

    return adapt


def native_adjoint(weights: Weights, points: int, rate: Rate) -> FusedAdjoint:
    """The continuous adjoint in C; a small one on a GPU too, brought to the host and back."""

    def can(tableau: Tableau, solvers: Sequence[Any], groups: Groups, z: Tensor) -> bool:
        here, *own = (_room_on_host(x) for x in (z, *weights)) if _is_brought(z) else (z, *weights)
        return z.shape[-1] == points and can_adapt(tableau, solvers, groups, here, own)

    def adjoin(
        tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], groups: Groups, z: Tensor, a: Tensor
    ) -> Adjoined | None:
        if not can(tableau, solvers, groups, z):
            return None
        if not _is_brought(z):
            return adjoin_in_c(tableau, solvers, times, z, a, weights)
        found = adjoin_in_c(tableau, solvers, times, z.cpu(), a.cpu(), [w.detach().cpu() for w in weights])
        if found is None:
            return None
        start, on_start, *gradients = (x.to(z.device) for x in (found.z, found.a, *found.gradient))
        return Adjoined(start, on_start, gradients, found.evaluations)

    return FusedAdjoint(adjoin, can, tuple(weights), rate)


def _is_brought(z: Tensor) -> bool:
    """Its many small steps one after the other are what a GPU is slow at."""
    return z.is_cuda and z.numel() <= VALUES_BROUGHT


def _room_on_host(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="cpu")


def can_walk(z: Tensor, weights: Weights) -> bool:
    """Whether native.c takes this solve: plain tensors on a CPU that fit together, and a compiler at hand."""
    if is_looked_through():
        return False
    first, dtype = weights[0], z.dtype
    fitting = z.ndim == first.ndim - 1 and z.shape[:-2] == first.shape[:-3]
    plain = dtype in C_TYPES and all(x.dtype is dtype and x.is_cpu for x in (z, *weights))
    small = fitting and first.shape[-3] <= CHANNELS_UP_TO and 0 < z.shape[-1] <= POINTS_UP_TO and z.numel() > 0
    return small and plain and library(C_TYPES[dtype]) is not None


def can_adapt(tableau: Tableau, solvers: Sequence[Any], groups: Groups, z: Tensor, weights: Weights) -> bool:
    """Whether it takes an adaptive one: members are the groups; a stage that does not propagate is the next's first."""
    extra = tableau.stages - tableau.propagating
    by_member = groups == z.shape[:-2] and all(isinstance(s, Adaptive) and s.control == "batch" for s in solvers)
    return by_member and extra == tableau.fsal and can_walk(z, weights)


def walk_in_c(tableau: Tableau, grid: Grid, z: Tensor, weights: Weights) -> Tensor:
    """z at the end of a grid; for a model alone the member axis is left out."""
    call = Call(tableau, grid, z, weights)
    return call.on_tape(call.there("there", call.longest), z, weights)


def adapt_in_c(
    tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, weights: Weights
) -> Adapted | None:
    """z at the end of a solve with steps of each member's own; None where something is out of the ordinary."""
    room = STEPS_AT_FIRST if is_graded(z, weights) else 1
    while True:
        choice = Choice.of(tableau, solvers, times, z.dtype, room)
        call = Call(tableau, choice, z, weights)
        end = call.there("adapt", STEPS_AT_FIRST)
        if not (choice.status == FULL).any():
            break
        room *= 4
    if (choice.status != DONE).any():
        return None
    call.longest = int(choice.steps.max())
    return Adapted(call.on_tape(end, z, weights), choice.evaluations, choice.steps, choice.rejected)


def adjoin_in_c(
    tableau: Tableau, solvers: Sequence[Adaptive], times: Sequence[float], z: Tensor, a: Tensor, weights: Weights
) -> Adjoined | None:
    """z, its cotangent a and the gradient of the weights, taken back in time."""
    choice = Choice.of(tableau, solvers, times, z.dtype, room=1)
    call = Call(tableau, choice, z, weights, adjoint=True)
    start, on_start, gradients = call.adjoined(STEPS_AT_FIRST, a)
    if (choice.status != DONE).any():
        return None
    return Adjoined(start, on_start, gradients, choice.evaluations)
