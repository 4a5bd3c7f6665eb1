"""Models that solve with zuko: its continuous flows (CNF), and what stands on them, such as sbi and lampe.

All of its solves end in one `AdaptiveCheckpointAdjoint.apply`, which `zuko.utils.odeint` looks up when it is called.
That name alone is replaced, while passes run and for their threads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import getclosurevars
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from windermere.auditing.adapters.interception import Interception
from windermere.auditing.adapters.solves import Asked, Tape, Watch, as_written
from windermere.auditing.adapters.torch_model import TorchSubject
from windermere.errors import NonFiniteError
from windermere.solvers import Adaptive, Solution, State

LARGEST_ERROR = (
    "zuko keeps the largest error of all entries below its tolerance, our adaptive solvers their root mean square: at "
    "the same tolerance its steps are finer; the model's own pass takes them"
)


def _replace_apply() -> Callable[[], None]:
    utils: Any = import_module("zuko.utils")
    own = utils.AdaptiveCheckpointAdjoint
    utils.AdaptiveCheckpointAdjoint = SimpleNamespace(apply=partial(_apply, own.apply))

    def restore() -> None:
        utils.AdaptiveCheckpointAdjoint = own

    return restore


SOLVES: Interception[Tape] = Interception(_replace_apply)


class ZukoSubject(TorchSubject):
    """A module or function that solves with zuko, as it is."""

    library = "zuko"
    calls = SOLVES


def _apply(
    own: Callable[..., Tensor], settings: Any, rate: Any, start: Tensor, t0: Tensor, t1: Tensor, *phi: Any
) -> Any:
    packing = _Packing.of(rate)
    tape = SOLVES.watcher(packing.field)
    if tape is None:
        return own(settings, rate, start, t0, t1, *phi)
    atol, rtol = (as_written(tolerance) for tolerance in settings[:2])
    return tape.answer(
        Asked(
            own=Adaptive("dopri54", rtol=rtol, atol=atol),
            notes=(LARGEST_ERROR,),
            field=packing.rate,
            start=packing.state(start),
            times=(float(t0), float(t1)),
            original=lambda watch: own(settings, partial(_watched, rate, watch), start, t0, t1, *phi),
            end_of=packing.state,
            result=_flat,
        )
    )


def _watched(rate: Callable[[Tensor, Tensor], Tensor], watch: Watch, t: Tensor, z: Tensor) -> Tensor:
    value = rate(t, z)
    watch(value)
    if not value.isfinite().all():  # zuko would go on for ever
        raise NonFiniteError("the field is not finite in a solve of zuko's: look for where that comes from")
    return value


@dataclass(frozen=True)
class _Packing:
    """The user's own field inside what zuko wraps around it: a tuple's parts, flattened, one after the other."""

    field: Any
    shapes: Sequence[torch.Size] | None

    @classmethod
    def of(cls, rate: Any) -> "_Packing":
        """By the names that zuko's wrapper closes over; where they are others, the state stays flat."""
        inner = getclosurevars(rate).nonlocals if getattr(rate, "__module__", None) == "zuko.utils" else {}
        known = {"f", "pack", "shapes"} <= inner.keys()
        return cls(inner["f"], inner["shapes"]) if known else cls(rate, None)

    def rate(self, t: Tensor, z: State) -> Any:
        return self.field(t, z) if isinstance(z, Tensor) else self.field(t, *z)

    def state(self, flat: Tensor) -> State:
        if self.shapes is None:
            return flat
        parts = flat.split_with_sizes([math.prod(shape) for shape in self.shapes])
        return tuple(part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True))


def _flat(solution: Solution) -> Tensor:
    """The end as zuko holds it inside."""
    end = solution.final
    return end if isinstance(end, Tensor) else torch.cat([part.flatten() for part in end])
