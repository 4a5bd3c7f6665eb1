"""What the C code that only the sphere networks have (native_sphere.h) gains over that of any field of rows.

The same Sphere2 network, batch 128, forward and backward pass: by its table of segments, and as the dense layers that
its convolutions amount to, which native_rows.h solves. Where the general one comes within `WORTH` times of the special
one in all of this work, the special one is to be deleted.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import windermere as wm
from benchmarks.measuring import Bar, keep, show, side_by_side
from windermere.nn import ode_blocks
from windermere.paper.architectures import architecture, initialise
from windermere.paper.fast.dense import banded, repeated

WORTH, POINTS, CHANNELS = 1.3, 2, 32
DOPRI = wm.Adaptive("dopri54", tolerance=1e-4)
WORK: dict[str, tuple[Any, Any]] = {
    "Euler, 2 steps": (wm.FixedStep.of("euler", steps=2), "backprop"),
    "Euler, 64 steps": (wm.FixedStep.of("euler", steps=64), "backprop"),
    "dopri54 at 1e-4": (DOPRI, "backprop"),
    "dopri54 at 1e-4, adjoint": (DOPRI, "adjoint"),
}


def fields() -> dict[str, nn.Module]:
    """The network as the paper has it, and as dense layers with the same weights."""
    model = architecture("sphere2", DOPRI)
    initialise(model, 0)
    special = ode_blocks(model)[0].field
    wide = POINTS * CHANNELS
    layers = [nn.Linear(*sides) for sides in ((POINTS, wide), (wide, wide), (wide, POINTS))]
    weights = [parameter.detach() for parameter in special.parameters()]
    with torch.no_grad():
        for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
            layer.weight.copy_(banded(weight, POINTS).T)
            layer.bias.copy_(repeated(bias, POINTS)[0])
    first, second, third = layers
    return {"special": special, "general": wm.Autonomous(nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third))}


def _pass(field: nn.Module, z: torch.Tensor, solver: Any, gradient: Any) -> Callable[[], None]:
    def go() -> None:
        wm.solve(field, z, solver, gradient=gradient).final.square().mean().backward()

    return go


def run(*, rounds: int = 40) -> list[Bar]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found, z, seconds = fields(), 0.4 * torch.randn(128, POINTS), {}
    for name, (solver, gradient) in WORK.items():
        passes = {kind: _pass(field, z, solver, gradient) for kind, field in found.items()}
        seconds[name] = side_by_side(passes, rounds=rounds, lead=1, clock=time.process_time)
    torch.set_num_threads(threads)
    ratios = {name: both["general"] / both["special"] for name, both in seconds.items()}
    show("Sphere2 by the C code of any field, times that of its own", {k: f"{v:.2f}" for k, v in ratios.items()})
    keep("special_spheres", {"seconds": seconds, "ratios": ratios})
    gained = max(ratios.values())
    return [Bar(name="Sphere2 in C of its own gains", measured=gained, limit=WORTH, at_least=True, unit="x")]
