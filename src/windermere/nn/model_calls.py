"""Running users' modules: in eval mode, on inputs of any form, with outputs by sample.

Shapes: n samples.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from windermere.errors import AuditError
from windermere.nn.shared import places_of, plain
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
    """Arguments on the model's device and, where floating, in its dtype; never the caller's own tensors.

    A tuple is several arguments and a mapping names them, where the model's forward takes them so; else it is one.
    """
    like = floating_parameter(model)
    if like is not None and like.device.type == "meta":
        raise AuditError(
            f"the weights of this {type(model).__name__} are on the device 'meta', where they have no values: load "
            "them on another, as the cpu"
        )

    def placed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: placed(part) for name, part in value.items()}
        if isinstance(value, tuple | list):
            return tuple(placed(part) for part in value)
        value = torch.as_tensor(value) if isinstance(value, np.ndarray) else value
        if not isinstance(value, Tensor):
            return value
        alone = copied(value)
        if alone.dtype.is_floating_point and (double or like is not None):
            alone = alone.to(torch.float64 if double or like is None else like.dtype)
        return alone if like is None else alone.to(like.device)

    found = arguments_for(model.forward, placed(plain(x)))
    if found is None:
        raise AuditError(
            f"this {type(model).__name__} cannot be called with the inputs of a batch: let its forward take them; a "
            "field, which takes (t, z), goes into a windermere.ODEBlock"
        )
    return found


def copied(x: Any) -> Any:
    """Inputs that a model may write to, and call requires_grad_ on: what it does to them stays inside of a pass."""
    if isinstance(x, Mapping):
        return {name: copied(part) for name, part in x.items()}
    if isinstance(x, tuple | list):
        return tuple(copied(part) for part in x)
    if isinstance(x, Tensor):
        return x.detach().clone()
    return x.copy() if isinstance(x, np.ndarray) else x


def takes_hooks(called: Any) -> bool:
    """Whether hooks see its calls: those of a module, unless TorchScript has compiled it."""
    return isinstance(called, nn.Module) and not isinstance(called, torch.jit.ScriptModule)


def floating_parameter(model: nn.Module) -> Tensor | None:
    """The first one, which shows a model's dtype and device; None where it has no weights."""
    return next((p for p in model.parameters() if p.dtype.is_floating_point), None)


def arguments_for(function: Any, whole: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Inputs as a function takes them: one by one, by name, or all in one; None where it takes them in no way."""
    several, named = ((), whole) if isinstance(whole, dict) else (values_of(whole), {})
    if _takes(function, several, named):
        return several, named
    return ((whole,), {}) if _takes(function, (whole,), {}) else None


def _takes(function: Any, several: tuple[Any, ...], named: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*several, **named)
    except TypeError:
        return False
    except ValueError:  # compiled: it has no signature
        return True
    return True


def values_of(x: Any) -> tuple[Any, ...]:
    """The several things that a tuple or a mapping holds, or the one thing that this is."""
    if isinstance(x, Mapping):
        return tuple(x.values())
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def packed(state: State, n: int) -> Tensor | None:
    """[n, D] from the parts of a state; None where their first axis is not the samples'."""
    parts = parts_of(state)
    if any(part.ndim == 0 or part.shape[0] != n for part in parts):
        return None
    return torch.cat([part.detach().reshape(n, -1) for part in parts], dim=1)


def parts_of(state: State) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def output_of(result: Any) -> Tensor:
    """What is audited of what a model returns: the first tensor in it."""
    first = next((value for value in values_of(result) if isinstance(value, Tensor)), None)
    if first is None or first.ndim == 0:
        what = "a single number" if first is not None else f"a {type(result).__name__}"
        raise AuditError(f"the model returns {what}: wrap it so that it returns a tensor, one output for each sample")
    return first


def about(result: Any, audited: Tensor) -> tuple[str, ...]:
    """Which of several results is looked at."""
    if isinstance(result, Tensor):
        return ()
    places = ((place, part) for place, part in places_of(result).items() if part is audited)
    place = next((f"its entry {place!r}" for place, _ in places), "one tensor")
    return (f"of the {type(result).__name__} it returns, {place} alone is audited",)
