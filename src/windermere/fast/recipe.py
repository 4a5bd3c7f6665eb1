"""How a program's external tensors are made of those that its field refers to, by PyTorch, once per solve."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


class Placeholder:
    """In a recipe, for a tensor: an external one, or the result of a step before."""

    def __init__(self, place: int) -> None:
        self.place = place


@dataclass(frozen=True)
class Recipe:
    """How a program's external tensors are made of those that the field refers to: once per solve, by PyTorch."""

    roots: int
    steps: tuple[tuple[Callable[..., Any], Any, Any, int | None], ...]
    """A function, what it is given, and which of its results is meant where it has several."""
    wanted: tuple[int, ...]
    compared: frozenset[int] = frozenset()
    """Those of the wanted ones, by their order, that the program only compares: none has a gradient, be its derivative
    what it may."""

    def made(self, roots: Sequence[Tensor]) -> list[Tensor]:
        """The external tensors, from the roots."""
        if not (self.steps or self.compared):  # nearly always
            return [roots[k] for k in self.wanted]
        found = list(roots)
        for function, given, named, index in self.steps:
            made = function(*_filled(given, found), **_filled(named, found))
            found.append(made if index is None else made[index])
        return [found[k].detach() if n in self.compared else found[k] for n, k in enumerate(self.wanted)]


def _filled(given: Any, found: Sequence[Tensor]) -> Any:
    if isinstance(given, Placeholder):
        return found[given.place]
    if isinstance(given, tuple | list):
        return type(given)([_filled(x, found) for x in given])
    return {key: _filled(x, found) for key, x in given.items()} if isinstance(given, dict) else given


def mapped(given: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same arguments with something else for each tensor."""
    if isinstance(given, Tensor):
        return change(given)
    if isinstance(given, tuple | list):
        return type(given)([mapped(x, change) for x in given])
    return given


def tensors_in(given: Any) -> Iterator[Tensor]:
    """All tensors among these arguments."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple | list | dict):
        for x in given.values() if isinstance(given, dict) else given:
            yield from tensors_in(x)
