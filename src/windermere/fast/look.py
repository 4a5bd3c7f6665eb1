"""A look through all that a field depends on: what it found so far, and which attributes of classes still wait.

How to go into one object is a function for each kind of object, its *way* (functions.py, fingerprint.py).
"""

import types
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from windermere.fast.classes import Attribute, attributes_of, slots_of
from windermere.fast.code import is_fixed

PLAIN = frozenset((bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType))
DEPTH, MOST = 24, 4000


Way: TypeAlias = Callable[["Look", Any, int], None]
"""Looks into an object, at a depth."""


class UnknownFieldError(Exception):
    """Why a field has no fingerprint."""


@dataclass
class Look:
    way_into: Callable[[type], Way | None]
    """How to look into objects of a type; None where nobody can."""
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
        elif (way := self.way_into(kind)) is None:
            raise UnknownFieldError(f"it holds a {kind.__name__}, which cannot be looked into")
        elif depth > DEPTH or len(self.seen) > MOST:
            raise UnknownFieldError("it holds too much to look at")
        else:
            self.seen[id(value)] = len(self.seen)
            self.alive.append(value)
            way(self, value, depth + 1)

    def at_class(self, kind: type, depth: int, *, value: Any = None, made: bool = False) -> None:
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

    def no_longer_waiting(self, name: str) -> None:
        for value, depth in self.waiting.pop(name, ()):
            self.note(name)
            self.at(value, depth)

    def any_name(self) -> None:
        """From here on, attributes may be asked for whatever they are called."""
        if not self.by_name:
            self.by_name = True
            for waiting in list(self.waiting):
                self.no_longer_waiting(waiting)
