"""What objects have of their classes, as far as those are users' own."""

import abc
import argparse
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from windermere.fast.code import is_fixed, is_foreign, is_standard

MAKING = frozenset(("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__"))
"""Methods that are called when objects are made."""
SHOWING = frozenset(("__repr__", "__str__", "__format__", "__del__", "__reduce__", "__reduce_ex__", "__getstate__"))
"""Methods that compute nothing; and `__setstate__`, `__deepcopy__` and the like are called from elsewhere."""
CALLED = frozenset(("forward", "_call_impl", "_wrapped_call_impl"))
"""Methods that a call of a module calls."""
BASES: tuple[type, ...] = (object, nn.Module, abc.ABC, argparse.Namespace, types.SimpleNamespace)
BASES = (*BASES, *argparse.Namespace.__mro__, typing.Generic, typing.Protocol)
"""Classes not of users' own whose objects hold nothing but attributes."""


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
PLACES = (types.MemberDescriptorType, types.GetSetDescriptorType, type(vars(NamedTuple("P", [("x", int)]))["x"]))
"""What stands in a class for a slot, or for a named entry of a tuple."""


class Attribute(NamedTuple):
    """One attribute of a class."""

    base: type
    """The class that has it."""
    name: str
    value: Any
    called: bool
    """Whether it counts whatever names it: Python or PyTorch may call it."""


Answer = TypeVar("Answer")


def of_class(function: Callable[[type], Answer]) -> Callable[[type], Answer]:
    """The same function, asked once for each class as long as there is that class: its methods may hold anything, and
    so it must not be kept, nor be in an answer."""
    known: dict[int, Answer] = {}
    alive: dict[int, weakref.ref[type]] = {}

    def forget(place: int) -> None:
        known.pop(place, None)
        alive.pop(place, None)

    def answer(kind: type) -> Answer:
        place = id(kind)
        try:
            return known[place]
        except KeyError:
            found = function(kind)
            alive[place] = weakref.ref(kind, lambda _: forget(place))
            return known.setdefault(place, found)

    return answer


def classes_of(kind: type) -> tuple[type, ...]:
    """Those of a class's bases, itself included, whose code might be changed."""
    places = _places_of_classes(kind)
    return tuple([kind.__mro__[k] for k in places]) if places else ()


@of_class
def _places_of_classes(kind: type) -> tuple[int, ...]:
    bases = enumerate(kind.__mro__)
    return tuple(k for k, base in bases if not is_fixed(base.__module__) and not is_standard(base.__module__))


_tokens = count()


@of_class
def token_of(kind: type) -> int:
    """A number that stands for a class, and for no other one ever."""
    return next(_tokens)


def attributes_of(kind: type, *, made: bool) -> Iterator[Attribute]:
    """The attributes of users' own classes among the bases; where objects are made, the functions that do so too.

    Read anew each time: classes can be changed.
    """
    fixed = _fixed_names(kind)
    for base in classes_of(kind):
        for name, value in list(vars(base).items()):
            special = name.startswith("__") and name.endswith("__")
            if special and (name in SHOWING or not callable(value) or (name in MAKING and not made)):
                continue
            if name != "_abc_impl" and not isinstance(value, PLACES):
                yield Attribute(base, name, value, special or name in CALLED or name in fixed)


@of_class
def _fixed_names(kind: type) -> frozenset[str]:
    """Names that code of others may ask for: of attributes of PyTorch's classes among the bases."""
    bases = (base for base in kind.__mro__ if base not in BASES and base not in classes_of(kind))
    return frozenset(name for base in bases for name in vars(base))


def slots_of(kind: type, value: Any, unset: Any = None) -> Iterator[tuple[str, Any]]:
    """The contents of an object's slots, which are not in its `__dict__`."""
    for base in classes_of(kind):
        for name, place in vars(base).items():
            if isinstance(place, types.MemberDescriptorType):
                yield name, getattr(value, name, unset)


@of_class
def is_looked_into(kind: type) -> bool:
    """Whether objects of a class hold nothing that is not in their `__dict__` or in slots."""
    for base in kind.__mro__:
        if base not in BASES and (is_foreign(base.__module__) or is_standard(base.__module__)):
            return False
    slots = sum(isinstance(place, types.MemberDescriptorType) for base in kind.__mro__ for place in vars(base).values())
    return kind.__itemsize__ == 0 and kind.__basicsize__ <= 32 + 8 * slots  # more would be memory of code in C


@of_class
def kind_of_module(kind: type) -> tuple[bool, bool]:
    """Whether modules of a class are compiled by torch.jit, and whether they are batch norms."""
    return issubclass(kind, torch.jit.ScriptModule), issubclass(kind, NORMS)
