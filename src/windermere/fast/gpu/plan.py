"""What solves of one kind and shape have in common: instructions, and where everything lies on chip."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.fast.cpu.instructions import Code, code_of
from windermere.fast.cpu.native_plan import table
from windermere.fast.gpu.encoding import LAYERS, ON_CHIP, ON_Z, OP, ROW, SHARE, Encoding, Machine
from windermere.fast.program import Program
from windermere.solvers import Tableau
from windermere.solvers.adaptive import MOST_GROWTH, MOST_SHRINKING, SAFETY
from windermere.solvers.grid import Grid

MOST_WEIGHTS = 128
"""The most external tensors of a program, as in rows_walk.h."""
TILES = (1, 2, 4, 8, 16, 32)
"""Samples of a tile. One that is small is soon done, as long as there are processors for all."""
ALIGNED = 16


class Walk(ctypes.Structure):
    """The struct of the same name in rows_walk.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("ops", "blocks", "constants", "tableau", "dense")),
        *((name, ctypes.c_void_p) for name in ("sources", "of_gradient")),
        *((name, ctypes.c_int) for name in ("there", "back", "laid", "layers", "shares", "gradients")),
        *((name, ctypes.c_int) for name in ("samples", "points", "entries", "tiles")),
        *((name, ctypes.c_int) for name in ("stages", "evaluated", "degree")),
        *((name, ctypes.c_int) for name in ("steps", "room", "keep", "adjoint", "inner", "landed")),
        *((name, ctypes.c_int) for name in ("at_tableau", "at_layers", "at_share")),
        *((name, ctypes.c_int) for name in ("at_z", "at_row", "at_on", "at_rates")),
        *((name, ctypes.c_void_p) for name in ("nodes", "sizes", "inner_times", "inner_steps", "start", "end")),
        *((name, ctypes.c_void_p) for name in ("rows", "kept_layers", "on_end", "on_start", "share_of_tiles")),
        *((name, ctypes.c_void_p) for name in ("gradient", "counts", "sums", "arrived")),
        *((name, ctypes.c_double) for name in ("begin", "finish", "smallest", "budget", "order")),
        *((name, ctypes.c_double) for name in ("safety", "most_growth", "most_shrinking", "rounding", "rtol", "atol")),
        ("weights", ctypes.c_void_p * MOST_WEIGHTS),
    )


class Shape(NamedTuple):
    """What a plan is made for."""

    program: Program
    graded: frozenset[int] | None
    """Which external tensors need gradients, where there is a way back."""
    tableau: Tableau
    adjoint: bool
    dense: bool
    samples: int
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Plan:
    """Numbers for the kernel's struct, and arrays whose addresses go there."""

    machine: Machine
    numbers: Mapping[str, int]
    arrays: Mapping[str, NDArray[Any]]
    chip: int
    """Bytes of memory on chip that a block needs."""
    starts: Mapping[int, int]
    """Where the gradients of external tensors begin, by their number, one after the other."""
    choice: Mapping[str, float]
    """What goes for all solves whose steps are chosen."""

    @property
    def tiles(self) -> int:
        return self.numbers["tiles"]


@lru_cache(maxsize=64)
def fitting(shape: Shape, threads: int, lanes: int, processors: int, chip: int) -> Plan | None:
    """The plan with the smallest tiles for which there are processors, or where these do not fit on chip, with smaller
    ones. Kept, as a training asks for the same one at each iteration."""
    machines = [Machine(threads, lanes, rows) for rows in TILES]
    first = next((k for k, m in enumerate(machines) if -(-shape.samples // m.rows) <= processors), len(machines) - 1)
    plans = (plan_of(shape, machine) for machine in reversed(machines[: first + 1] if chip else []))
    return next((plan for plan in plans if plan.chip <= chip), None)


def plan_of(shape: Shape, machine: Machine) -> Plan:
    """The plan for blocks of this kind."""
    program, tableau, rows = shape.program, shape.tableau, machine.rows
    code = code_of(program, shape.graded, 1)
    encoding = Encoding.of(code, machine, program.points)
    starts, sources, of_gradient = _gradients(program, shape.graded or frozenset(), code)
    degree = len(tableau.dense[0]) if shape.dense else 0
    arrays = {"blocks": encoding.blocks(), "constants": code.constants, "tableau": table(tableau)}
    arrays |= {"dense": np.array(tableau.dense if shape.dense else [0.0], np.float64)}
    arrays |= {"sources": sources, "of_gradient": of_gradient}
    entries = program.points * (1 + shape.adjoint)
    numbers = {"laid": code.laid, "layers": encoding.layers}
    numbers |= {"shares": int(code.sizes["shared_out"]), "gradients": len(of_gradient) - 1}
    numbers |= {"samples": shape.samples, "points": program.points, "entries": entries}
    numbers |= {"tiles": -(-shape.samples // rows), "stages": tableau.propagating, "evaluated": tableau.stages}
    numbers |= {"degree": degree, "adjoint": int(shape.adjoint)}
    doubles = (tableau.stages + 3 + degree) * tableau.stages + 2 * (machine.threads // machine.lanes) + 2
    parts = {"at_layers": encoding.layers, "at_share": numbers["shares"], "at_values": encoding.values * rows}
    parts |= {"at_z": entries * rows, "at_row": (entries + 1) * rows, "at_on": program.points * rows}
    parts |= {"at_rates": entries * rows * (tableau.stages + 1)}
    count = sum(map(len, encoding.lists()))
    places, chip = _placed(count * OP.itemsize, 8 * doubles, parts, shape.dtype.itemsize)
    bases = {ON_CHIP: "at_values", ROW: "at_row", ON_Z: "at_on", LAYERS: "at_layers", SHARE: "at_share"}
    arrays["ops"], numbers["there"] = encoding.program({space: places[name] for space, name in bases.items()})
    numbers["back"] = count - numbers["there"]
    del places["at_values"]
    choice = {"order": tableau.embedded_order + 1, "rounding": torch.finfo(shape.dtype).eps, "safety": SAFETY}
    choice |= {"most_growth": MOST_GROWTH, "most_shrinking": MOST_SHRINKING}
    return Plan(machine, {**numbers, **places}, arrays, chip, starts, choice)


def _placed(ops: int, doubles: int, parts: Mapping[str, int], size: int) -> tuple[dict[str, int], int]:
    """Where parts begin on chip, in numbers, after the instructions and the tableau; and where they end, in bytes."""
    places, end = {"at_tableau": _up(ops) // size}, _up(_up(ops) + doubles)
    for name, numbers in parts.items():
        places[name], end = end // size, _up(end + numbers * size)
    return places, end


def _up(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _gradients(
    program: Program, graded: frozenset[int], code: Code
) -> tuple[dict[int, int], NDArray[np.int32], NDArray[np.int32]]:
    """Where each tensor's gradient begins, and which numbers of a share each of its numbers is the sum of."""
    starts, total = {}, 0
    for k in sorted(graded):
        starts[k], total = total, total + program.sizes[k]
    targets, sources = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for block in code.blocks[code.laid :]:
        inputs, outputs = np.arange(int(block["in"])), np.arange(max(1, int(block["out"])))
        own = inputs[:, None] * int(block["by_in"]) + outputs * int(block["by_out"])
        targets.append((own + starts[int(block["external"])] + int(block["offset"])).ravel())
        sources.append(int(block["place"]) + np.arange(own.size))
    target, source = np.concatenate(targets), np.concatenate(sources)
    order = np.argsort(target, kind="stable")
    ends = np.searchsorted(target[order], np.arange(total + 1))
    return starts, np.append(source[order], 0).astype(np.int32), ends.astype(np.int32)


class OnDevice(NamedTuple):
    """A plan where kernels read it."""

    walk: Walk
    arrays: dict[str, Tensor]
    """Those whose addresses the struct holds: who uses it has to hold them as well."""


@lru_cache(maxsize=64)
def on_device(plan: Plan, device: torch.device) -> OnDevice:
    brought = {name: _brought(array, device) for name, array in plan.arrays.items()}
    addresses = {name: tensor.data_ptr() for name, tensor in brought.items()}
    return OnDevice(Walk(**plan.numbers, **plan.choice, **addresses), brought)


def _brought(array: NDArray[Any], device: torch.device) -> Tensor:
    flat = np.frombuffer(bytearray(np.ascontiguousarray(array).tobytes()), np.uint8)
    return torch.from_numpy(flat).to(device)


@lru_cache(maxsize=16)
def grid_on_device(grid: Grid, device: torch.device) -> tuple[Tensor, ...]:
    """A grid's times, steps, and after how many of these its stops are."""
    stops = np.array(grid.stops[1:-1], np.int32)
    return tuple(_brought(array, device) for array in (grid.nodes, grid.steps, stops))


@lru_cache(maxsize=16)
def times_on_device(times: tuple[float, ...], device: torch.device) -> Tensor:
    return _brought(np.array(times, np.float64), device)
