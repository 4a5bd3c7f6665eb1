"""What solves in C of one kind and shape have in common: the network, how steps are chosen, and the memory needed."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from windermere.fast.cpu.compiled import library
from windermere.solvers import Problem, Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY, smallest_step
from windermere.solvers.grid import Grid


@dataclass(frozen=True)
class Network:
    """What native.c has to know of a field beside its weights: each layer's weight and bias."""

    field: str
    """The kind of field: "sphere" (native_sphere.h) or "layers" (native_layers.h)."""
    points: int
    channels: int = 0
    """The channels of a sphere network; 0 for a layered one."""
    units: tuple[int, ...] = ()
    """The units of a layered network, with the points at both ends; the next two say what follows each layer."""
    activations: tuple[int, ...] = ()
    slopes: tuple[float, ...] = ()

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the weights, without the member axis."""
        if self.field == "layers":
            return [shape for i, o in pairwise(self.units) for shape in ((o, i), (o,))]
        c = self.channels
        return [(c, 1, 1), (c,), (c, c, 3), (c,), (1, c, 1), (1,)]

    @cached_property
    def products(self) -> int:
        """How many products one evaluation of a layered network takes for one sample."""
        return sum(i * o for i, o in pairwise(self.units))

    @property
    def work(self) -> float:
        """About how long one evaluation on a tile takes, in half microseconds."""
        return self.products / 512 if self.field == "layers" else self.points


network_of = lru_cache(maxsize=16)(Network)
"""Kept, as a training asks for the same one at each iteration."""


class NativeWalk(ctypes.Structure):
    """The struct of the same name in native.c."""

    kept: list[Any]
    """The objects whose addresses the struct holds, kept alive here: torch.compile lets go of local variables that are
    not read again."""
    _fields_ = (
        *((name, ctypes.c_long) for name in ("members", "samples", "points", "tiles", "channels", "width", "depth")),
        *((name, ctypes.c_void_p) for name in ("units", "activations", "slopes")),
        *((name, ctypes.c_long) for name in ("stages", "evaluated", "room", "keep", "shared")),
        *((name, ctypes.c_void_p) for name in ("weights", "gradients")),
        *((name, ctypes.c_void_p) for name in ("layers", "tableau", "sizes", "steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "rates", "notes", "on_end", "on_start", "shares")),
        ("adjoint", ctypes.c_long),
        *((name, ctypes.c_double) for name in ("begin", "finish", "smallest", "budget", "order")),
        *((name, ctypes.c_double) for name in ("safety", "most_growth", "most_shrinking", "rounding")),
        *((name, ctypes.c_void_p) for name in ("rtol", "atol", "evaluations", "rejected", "status")),
    )


@dataclass(frozen=True)
class Choice:
    """How steps are chosen, which they were, and what that cost."""

    numbers: Mapping[str, float]
    tolerances: Mapping[str, NDArray[np.float64]]
    sizes: NDArray[np.float64]
    """[members, room]"""
    steps: NDArray[np.int64]
    evaluations: NDArray[np.int64]
    rejected: NDArray[np.int64]
    status: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem, room: int) -> "Choice":
        """The choice of steps for this problem, with room for the sizes of so many accepted steps."""
        tableau, solvers, (begin, finish), dtype = problem.tableau, problem.adaptive, problem.ends, problem.z0.dtype
        numbers = {"begin": begin, "finish": finish, "order": tableau.embedded_order + 1}
        numbers |= {"smallest": smallest_step((begin, finish), dtype), "budget": solvers[0].max_steps}
        numbers |= {"safety": SAFETY, "rounding": torch.finfo(dtype).eps}
        numbers |= {"most_growth": MOST_GROWTH, "most_shrinking": MOST_SHRINKING}
        tolerances = {name: np.array([getattr(s, name) for s in solvers]) for name in ("rtol", "atol")}
        counts = (np.zeros(len(solvers), np.int64) for _ in range(4))
        return cls(numbers, tolerances, np.zeros((len(solvers), room)), *counts)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        counts = {"evaluations": self.evaluations, "rejected": self.rejected, "status": self.status}
        return {**self.tolerances, "sizes": self.sizes, "steps": self.steps, **counts}


@dataclass(frozen=True)
class Plan:
    """What solves of one kind and shape have in common."""

    walk: NativeWalk
    """The struct for native.c, without what differs from solve to solve."""
    arrays: Mapping[str, NDArray[Any]]
    """The arrays whose addresses the walk holds, kept alive here."""
    parts: Mapping[str, int]
    """Entries that the parts of a solve's memory take, one after the other."""
    share: int
    """Entries of a tile's share of the gradients; for an adjoint also of that of a step not yet accepted."""


@lru_cache(maxsize=16)
def plan_of(
    tableau: Tableau,
    steps: Grid | int,
    shape: tuple[int, ...],
    network: Network,
    real: str,
    lanes: int,
    keep: bool,
    adjoint: bool,
) -> Plan:
    """The plan for steps on a grid, or for at most so many chosen steps, with vectors of so many numbers (`lanes`). It
    is cached, as a training asks for the same one at each iteration."""
    *lead, samples, points = shape
    (members,) = lead or (1,)
    width, tiles = -(-network.channels // (2 * lanes)) * 2 * lanes, -(-samples // lanes)
    arrays: dict[str, NDArray[Any]] = {"tableau": table(tableau), "slopes": np.array(network.slopes, float)}
    arrays |= {name: np.array(getattr(network, name), np.int64) for name in ("units", "activations")}
    numbers = {"members": members, "samples": samples, "points": points, "tiles": tiles}
    numbers |= {"channels": network.channels, "width": width, "depth": len(network.activations)}
    numbers |= {"stages": tableau.propagating, "evaluated": tableau.stages, "keep": keep, "adjoint": adjoint}
    if isinstance(steps, Grid):
        numbers |= {"room": steps.steps.shape[-1], "shared": steps.nodes.ndim == 1}
        arrays |= {"sizes": steps.steps, "steps": steps.taken}
    else:
        numbers["room"] = steps
    walk = NativeWalk(**numbers, **{name: array.ctypes.data for name, array in arrays.items()})
    layers, notes, share = _measured(walk, real, network.field)
    state = members * tiles * lanes * points * (1 + adjoint)
    rows = (numbers["room"] if keep else 1) * tableau.propagating + 1
    parts = {"layers": members * layers, "rows": state * rows, "rates": state * tableau.stages}
    parts |= {"notes": members * tiles * notes * (rows if keep else 1)}
    return Plan(walk, arrays, parts, share * (1 + adjoint))


def _measured(walk: NativeWalk, real: str, field: str) -> tuple[int, ...]:
    """Numbers that a member's layers, a row's notes on a tile and a tile's share of the gradients take."""
    found = (ctypes.c_long * 3)()
    loaded = library(real, field)
    assert loaded is not None
    loaded.measure(ctypes.byref(walk), found)
    return tuple(found)


@cache
def table(tableau: Tableau) -> NDArray[np.float64]:
    """[stages + 2, stages]: a, b, and the weights of the error where there is an estimate."""
    error = (0.0,) * tableau.stages if tableau.b_embedded is None else tableau.error_weights
    lines = [(*line, *(0.0,) * tableau.stages)[: tableau.stages] for line in (*tableau.a, tableau.b, error)]
    return np.array(lines, np.float64)
