"""A field, made ready for one solve: called in a way that says what is wrong with it, and rounded as autocast asks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from windermere._torch_private import autocast_dtype, is_hooked, times_written
from windermere.checks import takes_two
from windermere.errors import FieldError
from windermere.solvers.layout import Layout, State

Rate: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""field(t, z): the rate of change of z. Groups with steps of their own get a t that broadcasts against z (or
against the first part of a tuple)."""
Field: TypeAlias = Callable[[Any, Any], Any]
Tensors: TypeAlias = Callable[[], tuple[Tensor, ...]]
WITHOUT_FORWARD = 'is missing the required "forward" function'
"""How PyTorch says that a module cannot be called."""


@dataclass(frozen=True)
class Prepared:
    """A field made ready for one solve that goes step by step."""

    rate: Rate
    tensors: Tensors | None
    """Gives all tensors that the rate depends on and that need gradients (making them may be work, which not every
    solve needs); None where they are not known."""


def as_it_is(field: Any) -> Prepared:
    """A field that is called as it was given."""
    return Prepared(field, parameters_of(field) if callable(getattr(field, "parameters", None)) else None)


def parameters_of(module: Any) -> Tensors:
    """The parameters of a module, or of what else has `parameters()`, that need gradients."""
    return lambda: tuple(p for p in module.parameters() if p.requires_grad)


def in_autocast(rate: Rate, device: str) -> Rate:
    """The rate as autocast computes it, on a way back that comes later too, and given in the state's own dtype."""
    low = autocast_dtype(device)

    def restored(k: Any, z: Any) -> Any:
        if isinstance(z, tuple) and isinstance(k, tuple | list) and len(k) == len(z):
            return tuple(restored(part, own) for part, own in zip(k, z, strict=True))
        return k.to(z.dtype) if isinstance(k, Tensor) and k.dtype in (low, torch.float32) else k

    def rounded(t: Tensor, z: Tensor) -> Any:
        # Weights rounded without a graph must not be kept for evaluations that need one.
        with torch.autocast(device, dtype=low, cache_enabled=torch.is_grad_enabled()):
            k = _called(rate, t, z)
        return restored(k, z)

    return rounded


def is_altered(module: nn.Module) -> bool:
    """Whether a call does more than its class's forward: hooks, its own or those of all modules, or a forward of its
    own."""
    return is_hooked(module) or "forward" in vars(module)


def stands_for(kind: type[nn.Module], module: Any) -> bool:
    """Whether a call of this module does what this class's forward does, no more and nothing else."""
    return isinstance(module, kind) and type(module).forward is kind.forward and not is_altered(module)


def packed_rate(layout: Layout, rate: Rate) -> Rate:
    """The rate of the packed state, checked at its first evaluation to be one."""
    unchecked = True

    def packed(t: Tensor, z: Tensor) -> Tensor:
        nonlocal unchecked
        if layout.parts is not None:
            if t.ndim:
                t = t.reshape(*layout.groups, *(1,) * (len(layout.parts[0]) - len(layout.groups)))
            parts = layout.unpack(z)
            rates = _called(rate, t, parts)
            check_rate(parts, rates)
            return layout.pack(rates)
        if not unchecked:
            return rate(t, z)
        k: Tensor = _called(rate, t, z)
        check_rate(z, k)
        unchecked = False
        return k

    return packed


def _called(rate: Any, t: Tensor, z: State) -> Any:
    """The rate, or in a sentence that it is no function of t and z: many a network takes z alone, or changes it."""
    before = _versions(z)
    try:
        k = rate(t, z)
    except TypeError as error:
        if takes_two(rate):
            raise
        name = getattr(rate, "__name__", type(rate).__name__)
        raise FieldError(
            f"a field is called as field(t, z), and '{name}' cannot be: let it take both, or where it takes z alone "
            "wrap it in windermere.Autonomous"
        ) from error
    except NotImplementedError as error:
        if WITHOUT_FORWARD not in str(error):
            raise
        raise FieldError(
            f"the field cannot be called, since a module in it has no forward ({error}): give it one, which takes t "
            "and z, or in windermere.Autonomous z alone"
        ) from error
    if _versions(z) != before:
        raise FieldError(
            "the field changes the state that it is given, in place, and a solver goes on from that: let it work on a "
            "copy (as a first layer, nn.ReLU(inplace=True) is to be nn.ReLU())"
        )
    return k


def _versions(z: State) -> list[int | None]:
    """How often PyTorch saw the state's parts change; inference mode does not look."""
    parts = (z,) if isinstance(z, Tensor) else z
    return [times_written(part) for part in parts]


def check_rate(z: State, k: Any) -> None:
    """The field must return what it was given: as many tensors, of the same shape, dtype and device."""
    if isinstance(z, tuple):
        if not isinstance(k, tuple | list) or len(k) != len(z):
            raise FieldError(f"the state has {len(z)} parts, but the field returned {_described(k)}")
        for part, rate in zip(z, k, strict=True):
            check_rate(part, rate)
        return
    if not isinstance(k, Tensor) or (k.shape, k.dtype, k.device) != (z.shape, z.dtype, z.device):
        raise FieldError(
            f"the state is {_described(z)}, but the field returned {_described(k)}: make it return the same"
        )


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
