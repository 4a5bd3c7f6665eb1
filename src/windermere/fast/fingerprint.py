"""What a field may depend on beside its time and state: a fingerprint of it, which changes when any of that does.

Fast paths that keep what they learned of a field (a traced program, a captured step) take it again only for a field of
the same fingerprint. It has the values of plain attributes, of closures and of globals that the field's code names, and
of each tensor how it lies in memory, not its numbers: those are read at every solve. Whatever it cannot look into (an
object of a foreign kind, a generator) has no fingerprint.
"""

import builtins
import enum
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from windermere._torch_private import is_hooked
from windermere.fast.classes import (
    Attribute,
    attributes_of,
    classes_of,
    is_looked_into,
    kind_of_module,
    of_class,
    slots_of,
    token_of,
)
from windermere.fast.code import BY_NAME, LOUD, is_fixed, is_standard, names_of

PLAIN = frozenset((bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType))
FIXED: Any = (torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout, range, enum.Enum, np.dtype)
FIXED = (*FIXED, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, np.ufunc)
"""What its name says all of."""
BOOKKEEPING = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, modules and mode, and the hooks, of which it may have none."""
TENSORS = (Tensor, nn.Parameter)
DEPTH, MOST = 24, 4000
MOST_NUMBERS = 64
"""Entries of a NumPy array that is looked at: a longer one takes time."""
MOST_LOOSE = 1 << 22
"""Entries of a tensor that may be copied for each solve; a larger one is known by its place in memory."""


class UnknownFieldError(Exception):
    """Why a field has no fingerprint."""


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
    look = _Look()
    try:
        look.at(of, 0)
    except UnknownFieldError:
        raise
    except Exception as error:  # of attributes that are more than that
        raise UnknownFieldError(f"it cannot be looked through ({type(error).__name__})") from error
    structure, tensors, loose = tuple(look.found), tuple(look.tensors), frozenset(look.loose)
    places = [x.data_ptr() for k, x in enumerate(tensors) if k not in loose]
    return Fingerprint((*structure, *places), structure, tensors, loose, tuple(look.alive))


@dataclass
class _Look:
    found: list[Hashable] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    loose: list[int] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    """What was looked at, so that no other object takes its identity meanwhile."""
    met: set[tuple[type, str]] = field(default_factory=set)
    """Attributes of classes that were seen."""
    named: set[str] = field(default_factory=set)
    """Every name in the code seen so far: a method of none of these names is not called."""
    waiting: dict[str, list[tuple[Any, int]]] = field(default_factory=dict)
    """Attributes of classes that no code seen so far has named."""
    by_name: bool = False
    """Whether some code may ask for attributes of any name."""

    def note(self, *what: Any) -> None:
        self.found += what

    def at(self, value: Any, depth: int) -> None:
        kind: Any = type(value)
        if kind in PLAIN:
            unequal = kind is float and not (value < 0 or value > 0)  # a NaN equals nothing, and 0.0 equals -0.0
            self.found += (kind, str(value) if unequal else value)
        elif (before := self.seen.get(id(value))) is not None:
            self.found += ("again", before)
        elif (way := _way_into(kind)) is None:
            raise UnknownFieldError(f"it holds a {kind.__name__}, which cannot be looked into")
        elif depth > DEPTH or len(self.seen) > MOST:
            raise UnknownFieldError("it holds too much to look at")
        else:
            self.seen[id(value)] = len(self.seen)
            self.alive.append(value)
            way(self, value, depth + 1)

    def _fixed(self, value: Any, depth: int) -> None:
        self.note(token_of(type(value)), str(value))

    # Tensors and numbers

    def _tensor(self, x: Tensor, depth: int, *, loose: bool = True) -> None:
        if type(x) not in TENSORS or x.layout is not torch.strided or x.is_meta or x.is_inference():
            raise UnknownFieldError("it holds a tensor of a special kind")
        self.found += ("tensor", x.shape, x.stride(), x.dtype, x.device, x.requires_grad)
        if loose and type(x) is Tensor and x.numel() <= MOST_LOOSE:
            self.loose.append(len(self.tensors))
        self.tensors.append(x)
        if x.__dict__:
            self.at(x.__dict__, depth)

    def _buffer(self, x: Tensor, depth: int) -> None:
        """A tensor that stays where it is."""
        if x is None or id(x) in self.seen:
            self.at(x, depth)
            return
        self.seen[id(x)] = len(self.seen)
        self.alive.append(x)
        self._tensor(x, depth, loose=not x.is_leaf)

    def _array(self, value: Any, depth: int) -> None:
        """A NumPy array or number."""
        if value.size > MOST_NUMBERS or value.dtype.hasobject:
            raise UnknownFieldError("it holds a NumPy array: make it a buffer")
        self.note(token_of(type(value)), value.shape, value.dtype.str, value.tobytes())

    # Modules and other objects

    def _module(self, module: nn.Module, depth: int) -> None:
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
        self.found += ("module", token_of(kind), training, len(own))
        self.at(kind.forward, depth)
        for place, look in (("_parameters", _Look._buffer), ("_buffers", _Look._buffer), ("_modules", _Look.at)):
            for name, value in own[place].items():
                self.found.append(name)
                look(self, value, depth)
        for name in _beside_bookkeeping(tuple(own)):
            self.found.append(name)
            self.at(own[name], depth)
        if classes_of(kind):
            self._class(kind, depth, value=module)

    def _object(self, value: Any, depth: int) -> None:
        self.note("object", token_of(type(value)))
        self.at(getattr(value, "__dict__", None), depth)
        self._class(type(value), depth, value=value)

    def _class(self, kind: type, depth: int, *, value: Any = None, made: bool = False) -> None:
        """What objects of a class have of it: methods and attributes; and where objects are made, what makes them."""
        if not is_fixed(type(kind).__module__):
            raise UnknownFieldError(f"the class {kind.__name__} has a metaclass")
        if value is not None:
            for name, content in slots_of(kind, value):
                self.note(name)
                self.at(content, depth)
        for attribute in attributes_of(kind, made=made):
            mark = (attribute.base, attribute.name)
            if mark not in self.met:
                self.met.add(mark)
                self._attribute(attribute, depth)

    def _attribute(self, attribute: Attribute, depth: int) -> None:
        if attribute.called or self.by_name or attribute.name in self.named:
            self.note(attribute.name)
            self.at(attribute.value, depth)
        else:
            self.waiting.setdefault(attribute.name, []).append((attribute.value, depth))

    def _type(self, kind: type, depth: int) -> None:
        if is_standard(kind.__module__) and not is_fixed(kind.__module__):
            raise UnknownFieldError(f"it uses {kind.__module__}.{kind.__name__}, a class of any behaviour")
        if kind.__name__ in BY_NAME:
            self._any_name()
        self.note(token_of(kind))
        if classes_of(kind):
            self._class(kind, depth, made=True)

    # Functions

    def _function(self, function: types.FunctionType, depth: int) -> None:
        home = function.__globals__.get("__name__") or ""
        self.found += ("function", function.__code__)
        self.at(function.__defaults__, depth)
        self.at(function.__kwdefaults__, depth)
        self._closure(function, depth)
        if is_fixed(home):
            return
        if is_standard(home):
            raise UnknownFieldError(f"it calls {home}.{function.__name__}")
        if function.__dict__:
            self.at(function.__dict__, depth)
        self._code(function, depth)

    def _closure(self, function: types.FunctionType, depth: int) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # not filled yet
                content = None
            if name == "__class__" and isinstance(content, type):  # for super(): no objects are made
                self._class(content, depth)
            else:
                self.at(content, depth)

    def _code(self, function: types.FunctionType, depth: int) -> None:
        names = names_of(function.__code__)
        if names.writes:
            raise UnknownFieldError(f"it writes to the variable '{min(names.writes)}' outside of it")
        for module in names.imports:
            if not is_fixed(module):
                raise UnknownFieldError(f"it imports {module} when it is called")
        for chain in names.chains:
            self._global(chain, function.__globals__, depth)
        if not BY_NAME.isdisjoint(names.others):
            self._any_name()
        fresh = names.others - self.named
        self.named |= fresh
        for name in sorted(fresh & self.waiting.keys()):
            self._no_longer_waiting(name)

    def _no_longer_waiting(self, name: str) -> None:
        for value, depth in self.waiting.pop(name, ()):
            self.note(name)
            self.at(value, depth)

    def _global(self, chain: tuple[str, ...], named: Mapping[str, Any], depth: int) -> None:
        """What code names, such as config.alpha: of modules the attribute, of whatever else all that it holds."""
        name, *attributes = chain
        self.note(chain)
        if name not in named:
            self._builtin_name(name, depth)
            return
        value = named[name]
        while isinstance(value, types.ModuleType) and attributes:
            if not is_fixed(value.__name__) and is_standard(value.__name__):
                break
            value = getattr(value, attributes.pop(0), None)
        self.at(value, depth)

    def _builtin_name(self, name: str, depth: int) -> None:
        if name in LOUD:
            raise UnknownFieldError(f"it calls {name}")
        self.note(hasattr(builtins, name))
        value = getattr(builtins, name, None)
        if getattr(value, "__module__", None) != "builtins" and value is not NotImplemented:  # someone put it there
            self.at(value, depth)

    def _any_name(self) -> None:
        """From here on, attributes may be asked for whatever they are called."""
        if not self.by_name:
            self.by_name = True
            for waiting in list(self.waiting):
                self._no_longer_waiting(waiting)

    def _builtin(self, function: types.BuiltinFunctionType, depth: int) -> None:
        """A function in C: of a module, or of an object that it may depend on."""
        if function.__self__ is builtins and function.__name__ in LOUD:  # by whatever name it is called
            raise UnknownFieldError(f"it calls {function.__name__}")
        if function.__name__ in BY_NAME:
            self._any_name()
        self.note("builtin", function.__name__)
        self.at(function.__self__, depth)

    def _method(self, method: types.MethodType, depth: int) -> None:
        self.at(method.__func__, depth)
        self.at(method.__self__, depth)

    def _partial(self, value: "partial[Any]", depth: int) -> None:
        for part in (value.func, value.args, value.keywords, vars(value)):
            self.at(part, depth)

    def _descriptor(self, value: Any, depth: int) -> None:
        """What stands in a class for a function: a property, a static method and the like."""
        self.note(token_of(type(value)))
        inner = [getattr(value, name, None) for name in ("__func__", "fget", "fset", "func")]
        for part in inner:
            self.at(part, depth)

    def _python_module(self, module: types.ModuleType, depth: int) -> None:
        if not is_fixed(module.__name__):
            raise UnknownFieldError(f"it uses the module {module.__name__} as a whole")
        self.note(module.__name__)

    # Containers

    def _sequence(self, value: list[Any] | tuple[Any, ...], depth: int) -> None:
        self.note(token_of(type(value)), len(value))
        for part in value:
            self.at(part, depth)
        self._rest(value, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> None:
        self.note(token_of(type(value)), len(value))
        for key, part in value.items():
            self.at(key, depth)
            self.at(part, depth)
        if not isinstance(value, dict):  # it may keep them elsewhere, from where a snapshot takes them
            self.at(getattr(value, "__dict__", None), depth)
        self._rest(value, depth)

    def _set(self, value: set[Any], depth: int) -> None:
        if not all(type(part) in PLAIN for part in value):
            raise UnknownFieldError("it holds a set of objects")
        self.note(token_of(type(value)), frozenset(value))
        self._rest(value, depth)

    def _rest(self, value: Any, depth: int) -> None:
        """What a container of a class of its own has beside its contents."""
        kind: Any = type(value)
        if classes_of(kind):
            self._object(value, depth)

    def _mode(self, value: Any, depth: int) -> None:
        """torch.no_grad() and the like, which decorate functions."""
        self.note(token_of(type(value)), getattr(value, "mode", None))


_WAYS: tuple[tuple[Any, Callable[[_Look, Any, int], None]], ...] = (
    (FIXED, _Look._fixed),
    (Tensor, _Look._tensor),
    (nn.Module, _Look._module),
    (types.FunctionType, _Look._function),
    (types.MethodType, _Look._method),
    (types.BuiltinFunctionType, _Look._builtin),
    (partial, _Look._partial),
    ((property, staticmethod, classmethod, cached_property), _Look._descriptor),
    ((np.ndarray, np.generic), _Look._array),
    ((list, tuple), _Look._sequence),
    (Mapping, _Look._mapping),
    ((set, frozenset), _Look._set),
    (slice, lambda look, cut, depth: look._sequence((cut.start, cut.stop, cut.step), depth)),
    (type, _Look._type),
    (types.ModuleType, _Look._python_module),
    ((torch.no_grad, torch.enable_grad, torch.set_grad_enabled), _Look._mode),
)


@lru_cache(maxsize=1024)
def _beside_bookkeeping(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a module's attributes that not every module has."""
    return tuple(name for name in names if name not in BOOKKEEPING)


@of_class
def _way_into(kind: type) -> Callable[[_Look, Any, int], None] | None:
    """How to look into objects of a type; None where nobody can."""
    for kinds, look in _WAYS:
        if issubclass(kind, kinds):
            return look
    return _Look._object if is_looked_into(kind) else None
