"""What a field may depend on beside its time and state: a fingerprint of it, which changes when any of that does.

Fast paths that keep what they learned of a field (a traced program, a captured step) take it again only for a field of
the same fingerprint. It has the values of plain attributes, of closures and of globals that the field's code names, and
of each tensor where it lies and how, not its numbers: those are read at every solve. Whatever it cannot look into (an
object of a foreign kind, a generator) has no fingerprint.
"""

import enum
import sys
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from windermere._torch_private import is_hooked

PLAIN = (bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType)
FIXED = (torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout, range, slice, enum.Enum)
CODE = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
FOREIGN = (
    "torch",
    "numpy",
    "math",
    "typing",
    "collections",
    "functools",
    "itertools",
    "builtins",
    "operator",
    "abc",
    "enum",
)
"""Packages whose functions and classes do not change while a program runs."""
STANDARD = sys.stdlib_module_names
BOOKKEEPING = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, modules and mode, and the hooks, of which it may have none."""
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
DEPTH, MOST = 12, 4000


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


def fingerprint(of: Any) -> Fingerprint:
    """The fingerprint of a field; an `UnknownFieldError` where it has none."""
    look = _Look()
    look.at(of, 0)
    structure, tensors = tuple(look.found), tuple(look.tensors)
    return Fingerprint((*structure, *[x.data_ptr() for x in tensors]), structure, tensors)


def objects_of(field: Any) -> list[Any]:
    """All objects that a field leads to."""
    look = _Look()
    look.at(field, 0)
    return look.alive


@dataclass
class _Look:
    found: list[Hashable] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    """What was looked at, so that no other object takes its identity meanwhile."""

    def note(self, *what: Hashable) -> None:
        self.found += what

    def at(self, value: Any, depth: int) -> None:
        kind: Any = type(value)
        if kind in PLAIN:
            self.found += (kind.__name__, value if value == value else "nan")
        elif (before := self.seen.get(id(value))) is not None:
            self.found += ("again", before)
        elif (way := _way_into(kind)) is _Look._fixed:
            self.found.append(str(value))
        elif way is None:
            raise UnknownFieldError(f"it holds a {kind.__name__}, which cannot be looked into")
        elif depth > DEPTH or len(self.seen) > MOST:
            raise UnknownFieldError("it holds too much to look at")
        else:
            self.seen[id(value)] = len(self.seen)
            self.alive.append(value)
            way(self, value, depth + 1)

    def _fixed(self, value: Any, depth: int) -> None:
        self.note(str(value))

    def _code(self, value: Any, depth: int) -> None:
        self.note(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}")

    def _tensor(self, x: Tensor, depth: int) -> None:
        if type(x) not in (Tensor, nn.Parameter) or x.layout is not torch.strided or x.is_meta:
            raise UnknownFieldError("it holds a tensor of a special kind")
        self.note("tensor", x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.is_leaf)
        self.tensors.append(x)

    def _module(self, module: nn.Module, depth: int) -> None:
        if is_hooked(module):
            raise UnknownFieldError("it has hooks")
        own = vars(module)
        kind: Any = type(module)
        _refuse(kind, own["training"])
        self.found += ("module", kind, own["training"], len(own))
        for place in ("_parameters", "_buffers", "_modules"):
            for name, value in own[place].items():
                self.found.append(name)
                self.at(value, depth)
        for name in [name for name in own if name not in BOOKKEEPING]:
            self.found.append(name)
            self.at(own[name], depth)
        self._class(kind, depth)

    def _class(self, kind: type, depth: int) -> None:
        """The functions of classes that are not PyTorch's, and their plain attributes."""
        for base in _own_classes(kind):
            if id(base) in self.seen:
                continue
            self.seen[id(base)] = len(self.seen)
            for name, value in list(vars(base).items()):
                if name.startswith("__") and name not in ("__call__", "__getattr__"):
                    continue
                inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                if isinstance(inner, types.FunctionType | Tensor | list | dict | tuple) or type(inner) in PLAIN:
                    self.note(name)
                    self.at(inner, depth)

    def _object(self, value: Any, depth: int) -> None:
        self.note("object", type(value).__module__, type(value).__qualname__)
        self._mapping(vars(value), depth)
        self._class(type(value), depth)

    def _method(self, method: types.MethodType, depth: int) -> None:
        self.at(method.__func__, depth)
        self.at(method.__self__, depth)

    def _partial(self, value: "partial[Any]", depth: int) -> None:
        for part in (value.func, value.args, value.keywords):
            self.at(part, depth)

    def _function(self, function: types.FunctionType, depth: int) -> None:
        if is_fixed(function.__module__ or ""):
            self.note(function.__module__, function.__qualname__)
            return
        self.alive.append(function.__code__)
        self.note("function", id(function.__code__))
        self.at(function.__defaults__ or (), depth)
        self.at(function.__kwdefaults__ or {}, depth)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not filled yet
                content = None
            if not isinstance(content, type) or content.__name__ != "super":
                self.at(content, depth)
        self._globals(function.__code__, function.__globals__, depth)

    def _globals(self, code: types.CodeType, named: Mapping[str, Any], depth: int) -> None:
        """The values of globals that the code names; of modules that are not foreign ones the attributes named."""
        for name in code.co_names:
            if name not in named:
                continue
            value = named[name]
            self.note(name)
            if isinstance(value, types.ModuleType):
                if not is_fixed(value.__name__) and value.__name__ not in STANDARD:
                    self._globals(code, vars(value), depth) if depth < DEPTH else None
                continue
            if not isinstance(value, type):
                self.at(value, depth)
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self._globals(inner, named, depth)

    def _sequence(self, value: list[Any] | tuple[Any, ...], depth: int) -> None:
        self.note(type(value).__name__, len(value))
        for part in value:
            self.at(part, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> None:
        self.note("mapping", len(value))
        for key, part in value.items():
            self.at(key, depth)
            self.at(part, depth)

    def _set(self, value: set[Any], depth: int) -> None:
        if not all(type(part) in PLAIN for part in value):
            raise UnknownFieldError("it holds a set of objects")
        self.note("set", frozenset(value))


@lru_cache(maxsize=1024)
def _refuse(kind: type[nn.Module], training: bool) -> None:
    """Refuse modules of some types."""
    if issubclass(kind, torch.jit.ScriptModule):
        raise UnknownFieldError("it is compiled by torch.jit")
    if issubclass(kind, NORMS) and training:
        raise UnknownFieldError("it has batch norm in training mode")


_WAYS: tuple[tuple[Any, Callable[[_Look, Any, int], None]], ...] = (
    (FIXED, _Look._fixed),
    (Tensor, _Look._tensor),
    (nn.Module, _Look._module),
    (types.FunctionType, _Look._function),
    (types.MethodType, _Look._method),
    (partial, _Look._partial),
    ((list, tuple), _Look._sequence),
    (Mapping, _Look._mapping),
    ((set, frozenset), _Look._set),
    (CODE, _Look._code),
)


@lru_cache(maxsize=1024)
def _way_into(kind: type) -> Callable[[_Look, Any, int], None] | None:
    """How to look into objects of a type; None where nobody can."""
    for kinds, look in _WAYS:
        if issubclass(kind, kinds):
            return look
    unseen = is_foreign(kind.__module__) or any("__slots__" in vars(base) for base in kind.__mro__)
    return None if unseen or kind.__dictoffset__ == 0 else _Look._object


@lru_cache(maxsize=1024)
def _own_classes(kind: type) -> tuple[type, ...]:
    """Those of a class's bases, itself included, whose code might be changed."""
    return tuple(base for base in kind.__mro__ if not is_fixed(base.__module__))


def is_foreign(module: str) -> bool:
    """Whether this is a package whose code stays as it is, and whose objects may hold anything."""
    return module.split(".")[0] in FOREIGN


def is_fixed(module: str) -> bool:
    """Whether this is a package whose code stays as it is."""
    return is_foreign(module) or module.split(".")[0] == "windermere"
