"""Running others' modules: in eval mode, on inputs of any form, with outputs by sample.

Shapes: n samples, T times asked for in the last solve.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from windermere.audit.adapters.solves import Asked, parts_of
from windermere.solvers import State, checking


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In eval mode and without gradients; solves count as checks. Every module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), checking():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def inputs_for(model: nn.Module, x: Any, *, double: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments on the model's device and, where floating, in its dtype; never the caller's own tensors."""
    like = next((p for p in model.parameters() if p.dtype.is_floating_point), None)

    def placed(value: Any) -> Any:
        value = torch.as_tensor(value) if isinstance(value, np.ndarray) else value
        if not isinstance(value, Tensor):
            return value
        alone = value.detach()  # a field may call requires_grad_ on what it is given: that stays inside
        if alone.dtype.is_floating_point and (double or like is not None):
            alone = alone.to(torch.float64 if double or like is None else like.dtype)
        return alone if like is None else alone.to(like.device)

    if isinstance(x, Mapping):
        return (), {name: placed(value) for name, value in x.items()}
    return tuple(placed(value) for value in values_of(x)), {}


def values_of(x: Any) -> tuple[Any, ...]:
    """The several things that a tuple or a mapping holds, or the one thing that this is."""
    if isinstance(x, Mapping):
        return tuple(x.values())
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def samples_of(x: Any) -> int:
    """Length of the first axis of the first input that has one."""
    return next((len(v) for v in values_of(x) if isinstance(v, Tensor | np.ndarray) and v.ndim), -1)


def packed(state: State, n: int) -> Tensor | None:
    """[n, D] from the parts of a state; None where their first axis is not the samples'."""
    parts = parts_of(state)
    if any(part.ndim == 0 or part.shape[0] != n for part in parts):
        return None
    return torch.cat([part.detach().reshape(n, -1) for part in parts], dim=1)


def batch_first(outputs: Tensor, n: int, last: Asked | None) -> Tensor:
    """Outputs at all times come as [T, n, ...] from most libraries: make that [n, T, ...]."""
    if last is None or not last.shown or outputs.ndim < 2 or outputs.shape[1] != n:
        return outputs
    moments, trajectory = outputs.shape[0], outputs.ndim == parts_of(last.start)[0].ndim + 1
    if moments == n:  # it may be either: a trajectory has one axis more than a state
        return outputs.movedim(1, 0) if trajectory and moments == last.shown else outputs
    return outputs.movedim(1, 0) if trajectory or moments == last.shown else outputs
