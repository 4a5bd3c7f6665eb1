"""Steps by the kernels of steps.cu beside the same steps by PyTorch's operations, before the kernels are trusted."""

import logging
from functools import cache

import torch
from torch import Tensor

from windermere.fast.captured.back import StepsBack
from windermere.fast.captured.steps import FixedSteps, Motion
from windermere.fast.captured.tries import Tries
from windermere.solvers.layout import Layout
from windermere.solvers.tableaus import METHODS

SIZE = 1500
"""More than one block, and no whole number of them."""
METHOD_OF_STEPS, METHODS_OF_TRIES = "rk4", ("dopri54", "fehlberg21")
"""The latter's last stage is the next step's first, or is not."""


@cache
def are_right(device: torch.device) -> bool:
    """Whether a device's kernels do what they should; what they do not is told once."""
    try:
        found, wanted = (_results(device, fused) for fused in (True, False))
        right = all(_is_close(a, b) for a, b in zip(found, wanted, strict=True))
        why = "they do not do what PyTorch does"
    except RuntimeError as error:  # CUDA's
        right, why = False, str(error)
    if not right:
        logging.getLogger("windermere").warning("kernels of captured steps are not used (please tell us): %s", why)
    return right


def _is_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=1e-4)


class _Moved(Motion):
    """Says itself whether kernels do what lies between evaluations."""

    fused = False

    @property
    def is_fused(self) -> bool:
        return self.fused


class _MovedByKernels(_Moved):
    fused = True


def _results(device: torch.device, fused: bool) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)  # nobody else's numbers are touched
    z, weight = torch.randn(2, SIZE, generator=random, dtype=torch.float32, device="cpu").to(device)
    return [
        *_steps(z, weight.requires_grad_(), fused),
        *(x for method in METHODS_OF_TRIES for kept in (False, True) for x in _tries(z, method, fused, kept)),
    ]


def _motion(z: Tensor, weight: Tensor, method: str, fused: bool) -> Motion:
    def rate(t: Tensor, z: Tensor) -> Tensor:
        return (weight * z).sin() - t * z

    kind = _MovedByKernels if fused else _Moved
    return kind(METHODS[method], rate, Layout(z.shape, ()), z, (weight,))


def _steps(z: Tensor, weight: Tensor, fused: bool) -> list[Tensor]:
    """Three fixed steps, there and back."""
    motion = _motion(z, weight, METHOD_OF_STEPS, fused)
    there, back = FixedSteps(motion, 4, kept=True), StepsBack(motion, 4, dense=True)
    for part in (there, back):
        part.reset()
        part.table.copy_(torch.linspace(0.1, 0.9, part.table.numel()).view_as(part.table))
    there.step(3)
    back.states.copy_(there.states)
    back.on_z.copy_(z.cos())
    back.on_rates.copy_(torch.linspace(-1, 1, back.on_rates.numel()).view_as(back.on_rates))
    back.place.number.fill_(2)
    back.step(3)
    return [there.z, there.states[:3], there.place.number, back.on_z, back.gathered, back.place.number]


def _tries(z: Tensor, method: str, fused: bool, kept: bool) -> list[Tensor]:
    """Tries that are rejected at first, then accepted."""
    tries = Tries(_motion(z, torch.full_like(z, 2.0), method, fused), 8, kept=kept)
    tries.reset()
    for number, value in ((tries.h, 1.0), (tries.rtol, 1e-4), (tries.atol, 1e-4)):
        number.fill_(value)
    tries.step(10)
    n = int(tries.place.number)
    state = [tries.z, tries.k, tries.clock, tries.counts, tries.known.to(torch.int64)]
    return state if not kept else [*state, tries.states[:n], tries.table[:n], tries.nodes[:n]]
