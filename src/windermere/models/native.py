"""The dense walk in C, for CPUs: native.c, compiled by the machine's own compiler when it is first needed.

Where there is no compiler, or `WINDERMERE_NATIVE=0`, the walk of PyTorch operations in dense.py does the same work. The
same inputs give the same bits, however many threads there are: gradients are added tile by tile, in order.

Shapes: S members, N steps, B samples in T tiles of L lanes, d points.
"""

import ctypes
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from windermere.solvers import Tableau
from windermere.solvers.runge_kutta import propagating_stages

SOURCE = Path(__file__).with_name("native.c")
OPTIONS = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
C_TYPES = {torch.float32: "float", torch.float64: "double"}
WIDTH_UP_TO = 512
"""Of a hidden layer: what fits on a thread's stack, and in its cache."""
HIDDEN_KEPT = 4_000_000
"""Values of second layers that a solve keeps for the way back; more would leave the cache, and are computed again."""
WORTH_A_THREAD = 256
"""Evaluations of tiles, a microsecond or so each, below which a second thread only costs."""


class _Walk(ctypes.Structure):
    """As in native.c."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("points", "width", "stages", "steps", "tiles", "keep")),
        *((name, ctypes.c_void_p) for name in ("tableau", "sizes", "layers", "inputs", "hidden")),
        *((name, ctypes.c_void_p) for name in ("cotangents", "on_mix", "on_others")),
    )


@dataclass(frozen=True)
class _Plan:
    """What is the same there and back."""

    weights: NDArray[np.float64]
    """[stages + 1, stages]: the tableau's a, and its b as the last line."""
    sizes: NDArray[np.float64]
    """[S, N]."""
    width: int
    keep: bool

    @classmethod
    def of(cls, tableau: Tableau, sizes: NDArray[np.float64], width: int, keep: bool) -> "_Plan":
        stages = propagating_stages(tableau)
        lines = [(*line, *(0.0,) * stages)[:stages] for line in (*tableau.a[:stages], tableau.b)]
        return cls(np.array(lines, np.float64), sizes, width, keep)


def can_walk(z: Tensor, layers: Sequence[Tensor]) -> bool:
    """Whether native.c takes this solve: plain tensors on a CPU that fit together, and a compiler at hand."""
    first, like = layers[0], (z.dtype, torch.device("cpu"))
    fitting = z.ndim == first.ndim and (*z.shape[:-2], z.shape[-1]) == first.shape[:-1]
    plain = z.dtype in C_TYPES and all((x.dtype, x.device) == like for x in (z, *layers))
    small = first.shape[-1] <= WIDTH_UP_TO and z.numel() > 0
    return fitting and plain and small and not torch.compiler.is_compiling() and library(C_TYPES[z.dtype]) is not None


def walk(tableau: Tableau, sizes: NDArray[np.float64], z: Tensor, layers: Sequence[Tensor]) -> Tensor:
    """z at the end of steps of these sizes, [N] or [S, N]; for a model alone the member axis is left out."""
    if z.ndim == 2:
        return walk(tableau, sizes, z.unsqueeze(0), [x.unsqueeze(0) for x in layers]).squeeze(0)
    each = np.ascontiguousarray(np.broadcast_to(sizes, (len(z), sizes.shape[-1])), np.float64)
    lanes = _lanes(z)
    width = -(-layers[0].shape[-1] // lanes) * lanes
    plan = _Plan.of(tableau, each, width, torch.is_grad_enabled())
    return cast(Tensor, _NativeWalk.apply(plan, z, *layers))  # type: ignore[no-untyped-call]


class _NativeWalk(torch.autograd.Function):
    """z(T) by any explicit method; the backward pass is the exact gradient of these operations."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, z0: Tensor, *layers: Tensor) -> Tensor:
        start = _in_tiles(z0)
        (steps, stages) = plan.sizes.shape[1], plan.weights.shape[1]
        inputs = start.new_empty(*start.shape[:2], (steps if plan.keep else 1) * stages + 1, *start.shape[2:])
        inputs[:, :, 0] = start
        filled = [_filled(x, plan, k) for k, x in enumerate(layers)]
        packed = torch.cat([x.flatten(1) for x in (*filled, *(w.mT for w in filled[::2]))], dim=1)
        values = start.shape[0] * start.shape[1] * steps * stages * plan.width * start.shape[-1]
        hidden = start.new_empty(values) if plan.keep and values <= HIDDEN_KEPT else None
        _run("there", plan, packed, inputs, hidden)
        if plan.keep:
            ctx.plan, ctx.samples, ctx.hidden = plan, z0.shape[1], hidden
            ctx.save_for_backward(inputs, packed, *layers)
        return _from_tiles(inputs[:, :, -1], z0.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs, packed, *layers = ctx.saved_tensors
        cotangents, width, (members, tiles, _, points, lanes) = _in_tiles(grads[0]), ctx.plan.width, inputs.shape
        on_mix = inputs.new_zeros(members, tiles, width, width)
        shapes = [(points, width), (1, width), (1, width), (width, points), (1, points)]
        on_others = inputs.new_zeros(members, tiles, sum(m * n for m, n in shapes), lanes)
        _run("back", ctx.plan, packed, inputs, ctx.hidden, cotangents, on_mix, on_others)
        w1, b1, b2, w3, b3 = on_others.sum(dim=(1, 3)).split_with_sizes([m * n for m, n in shapes], dim=1)
        gradients = [g.reshape(members, *shape) for g, shape in zip((w1, b1, b2, w3, b3), shapes, strict=True)]
        gradients.insert(2, on_mix.sum(dim=1))
        cut = (g[:, : x.shape[1], : x.shape[2]] for g, x in zip(gradients, layers, strict=True))
        return None, _from_tiles(cotangents, ctx.samples), *cut


def _filled(layer: Tensor, plan: _Plan, index: int) -> Tensor:
    """One of W1, b1, ..., b3 with hidden layers filled up with units that are always zero."""
    rows, columns = ((0, 1), (0, 1), (1, 1), (0, 1), (1, 0), (0, 0))[index]
    more = [plan.width - layer.shape[-1] if columns else 0, plan.width - layer.shape[-2] if rows else 0]
    return torch.nn.functional.pad(layer, (0, more[0], 0, more[1])) if any(more) else layer


def _lanes(z: Tensor) -> int:
    """Samples of a tile: what a vector of 64 bytes holds."""
    return 64 // z.element_size()


def _in_tiles(z: Tensor) -> Tensor:
    """[S, B, d] as [S, T, d, L], filled up with zeros."""
    members, samples, points = z.shape
    filled = torch.nn.functional.pad(z, (0, 0, 0, -samples % _lanes(z)))
    return filled.reshape(members, -1, _lanes(z), points).mT.contiguous()


def _from_tiles(tiles: Tensor, samples: int) -> Tensor:
    return tiles.mT.flatten(1, 2)[:, :samples].contiguous()


def _run(
    name: str,
    plan: _Plan,
    packed: Tensor,
    inputs: Tensor,
    hidden: Tensor | None,
    cotangents: Tensor | None = None,
    on_mix: Tensor | None = None,
    on_others: Tensor | None = None,
) -> None:
    """Call a function of native.c, each thread with some of the tiles."""
    members, tiles, _, points, _ = inputs.shape
    steps, stages = plan.sizes.shape[1], plan.weights.shape[1]
    addresses = (x if x is None else x.data_ptr() for x in (packed, inputs, hidden, cotangents, on_mix, on_others))
    tables = (plan.weights.ctypes.data, plan.sizes.ctypes.data)
    given = _Walk(points, plan.width, stages, steps, tiles, plan.keep, *tables, *addresses)
    function = getattr(library(C_TYPES[inputs.dtype]), name)
    items = members * tiles
    threads = min(torch.get_num_threads(), items, 1 + items * steps * stages // WORTH_A_THREAD)
    bounds = [items * k // threads for k in range(threads + 1)]
    others = [
        _pool(os.getpid(), torch.get_num_threads()).submit(function, ctypes.byref(given), begin, end)
        for begin, end in pairwise(bounds[1:])
    ]
    function(ctypes.byref(given), bounds[0], bounds[1])
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """A process's own: after a fork, the child has none of its parent's threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix="windermere")


@cache
def library(real: str) -> ctypes.CDLL | None:
    """native.c for float or double, compiled now or by an earlier process; None where that cannot be."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if os.environ.get("WINDERMERE_NATIVE") == "0" or not command or shutil.which(command[0]) is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        loaded = ctypes.CDLL(str(_compiled([*command, *OPTIONS, f"-DREAL={real}"])))
        for function in (loaded.there, loaded.back):
            function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_long, ctypes.c_long), None
        return loaded
    return None


def _compiled(command: list[str]) -> Path:
    """Kept under a name that says from what, how and for which processor it was made."""
    made_of = "\n".join([SOURCE.read_text(), shlex.join(command), _processor()])
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windermere"
    kept = home / f"native-{sha256(made_of.encode()).hexdigest()[:16]}.so"
    if not kept.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            fresh = Path(folder) / kept.name
            subprocess.run([*command, str(SOURCE), "-o", str(fresh)], check=True, capture_output=True)
            fresh.replace(kept)
    return kept


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        return "\n".join(sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*$", text, re.MULTILINE))))
    return f"{platform.machine()} {platform.processor()}"
