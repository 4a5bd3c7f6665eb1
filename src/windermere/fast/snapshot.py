"""What a field held before it was called to be watched: a call that changes it is undone."""

import types
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from windermere.fast.classes import attributes_of, classes_of, slots_of
from windermere.fast.code import names_of

Undo = Callable[[], Any]
UNSET = object()
"""What is in a slot before anything is put there."""
PLACES = ("_parameters", "_buffers", "_modules")
"""Where a module has what is not in its `__dict__`."""


def take_snapshot(objects: Iterable[Any]) -> Callable[[], None]:
    """A function that gives these objects back what they hold now."""
    undo = [step for value in objects for step in _steps(value)]

    def restore() -> None:
        for step in undo:
            step()

    return restore


def _steps(value: Any) -> Iterator[Undo]:
    if isinstance(value, dict):
        yield partial(_refill, value, dict(value))
    elif isinstance(value, list):
        yield partial(value.__setitem__, slice(None), list(value))
    elif isinstance(value, set):
        yield from (value.clear, partial(value.update, set(value)))
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        yield partial(value.__setitem__, ..., value.copy())
    elif isinstance(value, types.FunctionType):
        yield from _variables(value)
    elif isinstance(value, type):
        yield from _attributes(value)
    elif isinstance(value, Tensor) and value.is_leaf:
        yield partial(setattr, value, "grad", value.grad)
    yield from (partial(_put_into_slot, value, name, own) for name, own in slots_of(type(value), value, UNSET))
    own = getattr(value, "__dict__", None)
    if type(own) is dict and own is not value and not isinstance(value, types.ModuleType):
        yield partial(_refill, own, dict(own))
        yield from (partial(_refill, own[name], dict(own[name])) for name in PLACES if type(own.get(name)) is dict)
        yield from _attributes(type(value))


def _refill(own: dict[Any, Any], kept: dict[Any, Any]) -> None:
    if own.keys() != kept.keys() or any(own[name] is not value for name, value in kept.items()):
        own.clear()
        own.update(kept)


def _put_into_slot(value: Any, name: str, own: Any) -> None:
    if getattr(value, name, UNSET) is own:
        return
    if own is UNSET:
        object.__delattr__(value, name)
    else:
        object.__setattr__(value, name, own)  # that of a frozen class raises


def _variables(function: types.FunctionType) -> Iterator[Undo]:
    """Those of its closure, and globals that it names."""
    for cell in function.__closure__ or ():
        try:
            yield partial(setattr, cell, "cell_contents", cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    named = function.__globals__
    for name, *_ in names_of(function.__code__).chains:
        if name in named:
            yield partial(named.__setitem__, name, named[name])


def _attributes(kind: type) -> Iterator[Undo]:
    """Those of users' own classes."""
    for base, name, value, _ in attributes_of(kind, made=False) if classes_of(kind) else ():
        yield partial(_put_back, base, name, value)


def _put_back(base: type, name: str, value: Any) -> None:
    if vars(base).get(name) is not value:
        setattr(base, name, value)
