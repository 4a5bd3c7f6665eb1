"""What a field may depend on beside its time and state: a fingerprint of it, which changes when any of that does.

Fast paths that keep what they learned of a field (a traced program, a captured step) take it again only for a field of
the same fingerprint. It has the values of plain attributes, of closures and of globals that the field's code names, and
of each tensor how it lies in memory, not its numbers: those are read at every solve. Whatever it cannot look into (an
object of a foreign kind, a generator) has no fingerprint.
"""

import enum
import types
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from windermere._torch_private import is_hooked
from windermere.fast.classes import classes_of, is_looked_into, kind_of_module, of_class, token_of
from windermere.fast.code import BY_NAME, is_fixed, is_standard
from windermere.fast.functions import FUNCTIONS
from windermere.fast.look import PLAIN, Look, UnknownFieldError, Way

FIXED: Any = (torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout, range, np.dtype)
FIXED = (*FIXED, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, np.ufunc)
"""What its name says all of."""
BOOKKEEPING = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, modules and mode, and the hooks, of which it may have none."""
TENSORS = (Tensor, nn.Parameter)
MOST_NUMBERS = 64
"""Entries of a NumPy array that is looked at: a longer one takes time."""
MOST_LOOSE = 1 << 22
"""Entries of a tensor that may be copied for each solve; a larger one is known by its place in memory."""


@dataclass(frozen=True)
class Fingerprint:
    """Equal for two fields (or one field at two moments) that compute the same from their time and state."""

    key: tuple[Hashable, ...]
    structure: tuple[Hashable, ...]
    """The key without the places of tensors in memory."""
    tensors: tuple[Tensor, ...]
    """All tensors that were found, in the same order for equal fingerprints."""
    loose: frozenset[int]
    """Which of them are known by their kind alone: neither parameters nor buffers, they may be others at each solve."""
    met: tuple[Any, ...]
    """All objects that were looked into."""


def fingerprint(of: Any) -> Fingerprint:
    """The fingerprint of a field; an `UnknownFieldError` where it has none."""
    look = Look(_way_into)
    try:
        look.at(of, 0)
    except UnknownFieldError:
        raise
    except Exception as error:  # of attributes that are more than that
        raise UnknownFieldError(f"it cannot be looked through ({type(error).__name__})") from error
    structure, tensors, loose = tuple(look.found), tuple(look.tensors), frozenset(look.loose)
    places = [x.data_ptr() for k, x in enumerate(tensors) if k not in loose]
    return Fingerprint((*structure, *places), structure, tensors, loose, tuple(look.alive))


def _fixed(look: Look, value: Any, depth: int) -> None:
    if isinstance(value, np.ufunc) and value.__name__.endswith("(vectorized)"):
        raise UnknownFieldError("it calls a function of Python's by way of NumPy")
    look.note(token_of(type(value)), str(value))


def _tensor(look: Look, x: Tensor, depth: int, *, loose: bool = True) -> None:
    if type(x) not in TENSORS or x.layout is not torch.strided or x.is_meta or x.is_inference():
        raise UnknownFieldError("it holds a tensor of a special kind")
    look.found += ("tensor", x.shape, x.stride(), x.dtype, x.device, x.requires_grad)
    if loose and type(x) is Tensor and x.numel() <= MOST_LOOSE:
        look.loose.append(len(look.tensors))
    look.tensors.append(x)
    if x.__dict__:
        look.at(x.__dict__, depth)


def _buffer(look: Look, x: Tensor, depth: int) -> None:
    """A tensor that stays where it is."""
    if x is None or id(x) in look.seen:
        look.at(x, depth)
        return
    look.seen[id(x)] = len(look.seen)
    look.alive.append(x)
    _tensor(look, x, depth, loose=not x.is_leaf)


def _array(look: Look, value: Any, depth: int) -> None:
    """A NumPy array or number."""
    if value.size > MOST_NUMBERS or value.dtype.hasobject:
        raise UnknownFieldError("it holds a NumPy array: make it a buffer")
    look.note(token_of(type(value)), value.shape, value.dtype.str, value.tobytes())


def _module(look: Look, module: nn.Module, depth: int) -> None:
    kind: Any = type(module)
    own = vars(module)
    scripted, normed = kind_of_module(kind)
    if scripted:
        raise UnknownFieldError("it is compiled by torch.jit")
    if is_hooked(module):
        raise UnknownFieldError("it has hooks")
    training = own.get("training")
    if normed and training and own["track_running_stats"]:
        raise UnknownFieldError("it has batch norm in training mode")
    look.found += ("module", token_of(kind), training, len(own))
    look.at(kind.forward, depth)
    for place, way in (("_parameters", _buffer), ("_buffers", _buffer), ("_modules", Look.at)):
        for name, value in own[place].items():
            look.found.append(name)
            way(look, value, depth)
    for name in _beside_bookkeeping(tuple(own)):
        look.found.append(name)
        look.at(own[name], depth)
    if classes_of(kind):
        look.at_class(kind, depth, value=module)


def _object(look: Look, value: Any, depth: int) -> None:
    look.note("object", token_of(type(value)))
    look.at(getattr(value, "__dict__", None), depth)
    look.at_class(type(value), depth, value=value)


def _member(look: Look, value: enum.Enum, depth: int) -> None:
    """A member of an enumeration: what it is called, and what it holds beside the enumeration itself."""
    look.note("member", token_of(type(value)))
    look.at({name: own for name, own in vars(value).items() if name != "__objclass__"}, depth)
    look.at_class(type(value), depth, value=value)


def _type(look: Look, kind: type, depth: int) -> None:
    if is_standard(kind.__module__) and not is_fixed(kind.__module__):
        raise UnknownFieldError(f"it uses {kind.__module__}.{kind.__name__}, a class of any behaviour")
    if kind.__name__ in BY_NAME:
        look.any_name()
    look.note(token_of(kind))
    if classes_of(kind):
        look.at_class(kind, depth, made=True)


def _sequence(look: Look, value: list[Any] | tuple[Any, ...], depth: int) -> None:
    look.note(token_of(type(value)), len(value))
    for part in value:
        look.at(part, depth)
    _rest(look, value, depth)


def _mapping(look: Look, value: Mapping[Any, Any], depth: int) -> None:
    look.note(token_of(type(value)), len(value))
    for key, part in value.items():
        look.at(key, depth)
        look.at(part, depth)
    if not isinstance(value, dict):  # it may keep them elsewhere, from where a snapshot takes them
        look.at(getattr(value, "__dict__", None), depth)
    _rest(look, value, depth)


def _set(look: Look, value: set[Any], depth: int) -> None:
    if not all(type(part) in PLAIN for part in value):
        raise UnknownFieldError("it holds a set of objects")
    look.note(token_of(type(value)), frozenset(value))
    _rest(look, value, depth)


def _rest(look: Look, value: Any, depth: int) -> None:
    """What a container of a class of its own has beside its contents."""
    kind: Any = type(value)
    if classes_of(kind):
        _object(look, value, depth)


def _mode(look: Look, value: Any, depth: int) -> None:
    """torch.no_grad() and the like, which decorate functions."""
    look.note(token_of(type(value)), getattr(value, "mode", None))


def _python_module(look: Look, module: types.ModuleType, depth: int) -> None:
    if not is_fixed(module.__name__):
        raise UnknownFieldError(f"it uses the module {module.__name__} as a whole")
    look.note(module.__name__)


_WAYS: tuple[tuple[Any, Way], ...] = (
    (FIXED, _fixed),
    (enum.Enum, _member),
    (Tensor, _tensor),
    (nn.Module, _module),
    *FUNCTIONS,
    ((np.ndarray, np.generic), _array),
    ((list, tuple), _sequence),
    (Mapping, _mapping),
    ((set, frozenset), _set),
    (slice, lambda look, cut, depth: _sequence(look, (cut.start, cut.stop, cut.step), depth)),
    (type, _type),
    (types.ModuleType, _python_module),
    ((torch.no_grad, torch.enable_grad, torch.set_grad_enabled), _mode),
)


@lru_cache(maxsize=1024)
def _beside_bookkeeping(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a module's attributes that not every module has."""
    return tuple(name for name in names if name not in BOOKKEEPING)


@of_class
def _way_into(kind: type) -> Way | None:
    """How to look into objects of a type; None where nobody can."""
    for kinds, look in _WAYS:
        if issubclass(kind, kinds):
            return look
    return _object if is_looked_into(kind) else None
