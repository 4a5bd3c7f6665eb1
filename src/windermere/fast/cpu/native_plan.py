"""What solves in C of one kind and shape have in common: the network, how steps are chosen, and the memory needed."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.instructions import Code, code_of
from windermere.fast.program import Program
from windermere.solvers import Adaptive, Problem, Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.gradients import GRADIENTS
from windermere.solvers.grid import Grid


@dataclass(frozen=True)
class Network:
    """What native.c has to know of a field beside its weights."""

    field: str
    """The kind of field: "sphere" (native_sphere.h) or "rows" (native_rows.h)."""
    points: int
    channels: int = 0
    """The channels of a sphere network; 0 for a row program."""
    program: Program | None = None
    graded: frozenset[int] = frozenset()
    """Which of a program's external tensors need gradients."""

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of a sphere network's weights, without the member axis."""
        c = self.channels
        return [(c, 1, 1), (c,), (c, c, 3), (c,), (1, c, 1), (1,)]

    @property
    def work(self) -> float:
        """About how long one evaluation on a tile takes, in half microseconds."""
        return self.points if self.program is None else self.program.products / 512


WORTH_A_SHARE = 128
"""Half microseconds of work, below which tiles add to one share of the gradients: to sum up shares takes as long as a
few steps. However many threads there are, so that the bits are the same."""


network_of = lru_cache(maxsize=16)(Network)
"""Kept, as a training asks for the same one at each iteration."""


class NativeWalk(ctypes.Structure):
    """The struct of the same name in native.c."""

    kept: list[Any]
    """The objects whose addresses the struct holds, kept alive here: torch.compile lets go of local variables that are
    not read again."""
    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "tiles", "channels", "width")),
        ("ops", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("there", "back")),
        ("block", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("blocks", "graded")),
        ("constants", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("laid", "noted", "shared_out", "working")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep", "checkpoint", "shared")),
        *((name, ctypes.c_void_p) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "dense")),
        ("degree", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("nodes", "sizes", "steps", "start")),
        ("inner", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("inner_times", "inner_steps", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "starts", "rates", "notes", "on_end", "on_start", "shares")),
        ("sharing", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("redone", "memory")),
        *((name, ctypes.c_long) for name in ("for_layers", "for_rows", "for_starts", "for_rates", "adjoint", "reuse")),
        ("choice", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in ("begin", "finish", "smallest", "budget", "order")),
        *((name, ctypes.c_double) for name in ("safety", "most_growth", "most_shrinking", "rounding")),
        *((name, ctypes.c_void_p) for name in ("rtol", "atol", "evaluations", "rejected", "status")),
        ("by_sample", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("begins", "finishes", "leasts", "asked", "tries", "before")),
    )


class Steps(NamedTuple):
    """The steps that a model alone took."""

    tableau: Tableau
    nodes: NDArray[np.float64]
    """The times between steps, with both ends."""
    inner_steps: NDArray[np.int64]
    """How many steps lie before each time asked for between them, or before the step that it is in."""
    inner_times: NDArray[np.float64] | None = None
    """These times, where steps passed over them."""


@lru_cache(maxsize=64)
def _numbers(
    tableau: Tableau, ends: tuple[float, float], solvers: tuple[Adaptive, ...], dtype: torch.dtype
) -> NDArray[np.float64]:
    """What a choice of steps depends on, in native.c's order."""
    bounds = (SAFETY, MOST_GROWTH, MOST_SHRINKING, torch.finfo(dtype).eps)
    numbers = (*ends, smallest_step(ends, dtype), solvers[0].max_steps, tableau.embedded_order + 1, *bounds)
    return np.array((*numbers, *(s.rtol for s in solvers), *(s.atol for s in solvers)), np.float64)


class Choice:
    """How steps are chosen, which they were, and what that cost: numbers one after the other, as native.c has them."""

    def __init__(self, problem: Problem, times: tuple[float, ...], room: int) -> None:
        """The choice for a problem between these times, with room for the sizes of so many accepted steps."""
        solvers, inner = problem.adaptive, times[1:-1]
        given = _numbers(problem.tableau, (times[0], times[-1]), solvers, problem.z0.dtype)
        self.members, self.room, self.inner, self.known = len(solvers), room, len(inner), len(given)
        self.values = np.zeros(len(given) + self.members * (2 * room + 5) + 2 * len(inner))
        self.values[: len(given)] = given
        if inner:
            self.values[self._after(2 * room + 1) :][: len(inner)] = inner

    def _after(self, numbers: int) -> int:
        """Where a part begins that comes after so many numbers of each member."""
        return self.known + self.members * numbers

    @property
    def nodes(self) -> NDArray[np.float64]:
        """[members, room + 1]: the times between steps."""
        return self.values[self.known : self._after(self.room + 1)].reshape(self.members, -1)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """[members, room]"""
        return self.values[self._after(self.room + 1) : self._after(2 * self.room + 1)].reshape(self.members, -1)

    @property
    def inner_times(self) -> NDArray[np.float64]:
        """Those asked for between the first and the last."""
        return self.values[self._after(2 * self.room + 1) :][: self.inner]

    @property
    def inner_steps(self) -> NDArray[np.int64]:
        """How many steps lie before each of them; where they are passed over, before the step that they are in."""
        return self.values[self._after(2 * self.room + 5) + self.inner :].view(np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """[4, members]: evaluations, rejected steps, what native.c says of the solve, and accepted steps."""
        begin = self._after(2 * self.room + 1) + self.inner
        return self.values[begin : begin + 4 * self.members].view(np.int64).reshape(4, -1)


@dataclass(frozen=True)
class Plan:
    """What solves of one kind and shape have in common."""

    walk: NativeWalk
    """The struct for native.c, without what differs from solve to solve."""
    arrays: Mapping[str, NDArray[Any]]
    """The arrays whose addresses the walk holds, kept alive here."""
    entries: int
    """Entries of a solve's memory."""
    rates: int
    """Those of its part for rates, and for room to work in, on the way back."""
    redone: int
    """Those of steps that are evaluated again on a checkpoint's way back."""
    shares: int
    """Entries of all shares of the gradients: each of some tiles, or for an adjoint as native_adaptive.h has them."""


@lru_cache(maxsize=16)
def plan_of(
    tableau: Tableau,
    steps: Grid | int,
    shape: tuple[int, ...],
    network: Network,
    real: str,
    lanes: int,
    back: str,
    dense: bool,
    by_sample: bool,
) -> Plan:
    """The plan for steps on a grid, or for at most so many chosen steps, with vectors of so many numbers (`lanes`), and
    perhaps `dense` output; `back` says how a gradient is taken back (as "" it is not). It is cached, as a training asks
    for the same one at each iteration."""
    keep, checkpoint, adjoint = (back == name for name in GRADIENTS)
    *lead, samples, points = shape
    (members,) = lead or (1,)
    width, tiles = -(-network.channels // (2 * lanes)) * 2 * lanes, -(-samples // lanes)
    arrays: dict[str, NDArray[Any]] = {"tableau": table(tableau)}
    numbers = {"members": members, "samples": samples, "points": points, "tiles": tiles}
    numbers |= {"channels": network.channels, "width": width}
    numbers |= {"stages": tableau.propagating, "evaluated": tableau.stages}
    numbers |= {"keep": keep, "checkpoint": checkpoint, "adjoint": adjoint}
    numbers["reuse"] = adjoint and not lead and not isinstance(steps, Grid)  # as `reuses_stages` says
    if network.program is not None:
        _add_program(code_of(network.program, network.graded if back else None, lanes), arrays, numbers)
    if dense:
        arrays["dense"] = np.array(tableau.dense, np.float64)
        numbers["degree"] = len(tableau.dense[0])
    if isinstance(steps, Grid):
        inner = np.array(steps.stops[1:-1], np.int64)
        numbers |= {"room": steps.steps.shape[-1], "shared": steps.nodes.ndim == 1, "inner": len(inner)}
        arrays |= {"sizes": steps.steps, "nodes": steps.nodes, "steps": steps.taken, "inner_steps": inner}
    else:
        numbers["room"] = steps
    walk = NativeWalk(**numbers, **{name: array.ctypes.data for name, array in arrays.items()})
    layers, notes, share, work, redone = _measured(walk, real, network.field)
    state = members * tiles * lanes * points * (1 + adjoint)
    rows = (numbers["room"] if keep else 1) * tableau.propagating + 1
    shares = min(tiles, 1 + int(tiles * numbers["room"] * tableau.propagating * network.work) // WORTH_A_SHARE)
    walk.sharing = -(-tiles // shares)
    walk.for_layers, walk.for_rows = members * layers, state * rows
    walk.for_starts = state * (numbers["room"] + 1) if checkpoint else 0
    places = members * tiles if isinstance(steps, Grid) or by_sample else members
    walk.for_rates = state * tableau.stages + places * work
    known = walk.for_layers + walk.for_rows + walk.for_starts + walk.for_rates
    entries = known + (members * tiles * rows if keep else places) * notes
    rates = state * tableau.stages + members * tiles * work
    redone *= members * -(-tiles // walk.sharing) if checkpoint else 0
    of_shares = (4 if numbers["reuse"] else 2) if adjoint else shares
    return Plan(walk, arrays, entries, rates, redone, members * share * of_shares)


def _add_program(code: Code, arrays: dict[str, NDArray[Any]], numbers: dict[str, int]) -> None:
    """What native.c has to know of a row program."""
    arrays |= {"ops": code.ops, "block": code.blocks, "constants": code.constants}
    numbers |= {"there": code.there, "back": len(code.ops) - code.there, **code.sizes}
    numbers |= {"blocks": code.laid, "graded": len(code.blocks) - code.laid}


def _measured(walk: NativeWalk, real: str, field: str) -> tuple[int, ...]:
    """Numbers that a member's layers, a row's notes on a tile, a tile's share of the gradients, its work and a step
    that is evaluated again take."""
    found = (ctypes.c_long * 5)()
    loaded = library(real, field)
    assert loaded is not None
    loaded.measure(ctypes.byref(walk), found)
    return tuple(found)


@cache
def table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 3, stages]: a, b, the weights of the error where there is an estimate, and c."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error, tableau.c)]
    return np.array(lines, np.float64)
