"""How to look into functions: their code and all that it names, what they close over, and what calls them."""

import builtins
import types
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from windermere.fast.classes import token_of
from windermere.fast.code import BY_NAME, LOUD, is_fixed, is_standard, names_of
from windermere.fast.look import Look, UnknownFieldError, Way


def _function(look: Look, function: types.FunctionType, depth: int) -> None:
    home = function.__globals__.get("__name__") or ""
    look.found += ("function", function.__code__)
    look.at(function.__defaults__, depth)
    look.at(function.__kwdefaults__, depth)
    _closure(look, function, depth)
    if is_fixed(home):
        return
    if is_standard(home):
        raise UnknownFieldError(f"it calls {home}.{function.__name__}")
    if function.__dict__:
        look.at(function.__dict__, depth)
    _code(look, function, depth)


def _closure(look: Look, function: types.FunctionType, depth: int) -> None:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            content = None
        if name == "__class__" and isinstance(content, type):  # for super(): no objects are made
            look.at_class(content, depth)
        else:
            look.at(content, depth)


def _code(look: Look, function: types.FunctionType, depth: int) -> None:
    names = names_of(function.__code__)
    if names.writes:
        raise UnknownFieldError(f"it writes to the variable '{min(names.writes)}' outside of it")
    for module in names.imports:
        if not is_fixed(module):
            raise UnknownFieldError(f"it imports {module} when it is called")
    for chain in names.chains:
        if chain != ("hash",) or function.__name__ != "__hash__":  # as dataclasses have it
            _global(look, chain, function.__globals__, depth)
    if not BY_NAME.isdisjoint(names.others):
        look.any_name()
    fresh = names.others - look.named
    look.named |= fresh
    for name in sorted(fresh & look.waiting.keys()):
        look.no_longer_waiting(name)


def _global(look: Look, chain: tuple[str, ...], named: Mapping[str, Any], depth: int) -> None:
    """What code names, such as config.alpha: of modules the attribute, of whatever else all that it holds."""
    name, *attributes = chain
    look.note(chain)
    if name not in named:
        _builtin_name(look, name, depth)
        return
    value = named[name]
    while isinstance(value, types.ModuleType) and attributes:
        if not is_fixed(value.__name__) and is_standard(value.__name__):
            break
        value = getattr(value, attributes.pop(0), None)
    look.at(value, depth)


def _builtin_name(look: Look, name: str, depth: int) -> None:
    if name in LOUD:
        raise UnknownFieldError(f"it calls {name}")
    look.note(hasattr(builtins, name))
    value = getattr(builtins, name, None)
    if getattr(value, "__module__", None) != "builtins" and value is not NotImplemented:  # someone put it there
        look.at(value, depth)


def _builtin(look: Look, function: types.BuiltinFunctionType, depth: int) -> None:
    """A function in C: of a module, or of an object that it may depend on."""
    if function.__self__ is builtins and function.__name__ in LOUD:  # by whatever name it is called
        raise UnknownFieldError(f"it calls {function.__name__}")
    if function.__name__ in BY_NAME:
        look.any_name()
    look.note("builtin", function.__name__)
    look.at(function.__self__, depth)


def _method(look: Look, method: types.MethodType, depth: int) -> None:
    look.at(method.__func__, depth)
    look.at(method.__self__, depth)


def _partial(look: Look, value: "partial[Any]", depth: int) -> None:
    for part in (value.func, value.args, value.keywords, vars(value)):
        look.at(part, depth)


def _descriptor(look: Look, value: Any, depth: int) -> None:
    """What stands in a class for a function: a property, a static method and the like."""
    look.note(token_of(type(value)))
    inner = [getattr(value, name, None) for name in ("__func__", "fget", "fset", "func")]
    for part in inner:
        look.at(part, depth)


FUNCTIONS: tuple[tuple[Any, Way], ...] = (
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (types.BuiltinFunctionType, _builtin),
    (partial, _partial),
    ((property, staticmethod, classmethod, cached_property), _descriptor),
)
"""Kinds of functions, and how to look into each."""
