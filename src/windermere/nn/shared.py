"""Inputs that all samples share, such as the times of `forward(x, t)`: marked once, and left whole ever after.

Numbers, flags, texts, None and tensors without axes are shared by nature; other inputs where the user names them.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from windermere.errors import UsageError

Place: TypeAlias = str | int
"""The place of one input among several: its key or its position."""


@dataclass(frozen=True, eq=False)
class Shared:
    """An input that is never cut into samples."""

    value: Any


def share(x: Any, names: Sequence[Place], called: Any = None) -> Any:
    """The inputs, with those marked that are named: by key, by position, or as the arguments of what is called."""
    if not names:
        return x
    parts = places_of(x)
    if len(parts) < 2:
        raise UsageError("shared=... names some of several inputs, but there is only one: leave it out")
    arguments = {} if isinstance(x, Mapping) else _arguments(called, len(parts))
    chosen = {_place(name, parts, arguments) for name in names}
    if len(chosen) == len(parts):
        raise UsageError("shared=... names all of the inputs: leave out those that hold the samples")
    marked = {place: Shared(part) if place in chosen else part for place, part in parts.items()}
    return marked if isinstance(x, Mapping) else tuple(marked.values())


def plain(x: Any) -> Any:
    """The inputs without marks, as a model takes them."""
    if isinstance(x, Mapping):
        return {name: _opened(part) for name, part in x.items()}
    if isinstance(x, tuple) and any(isinstance(part, Shared) for part in x):
        return tuple(_opened(part) for part in x)
    return x


def places_of(x: Any) -> dict[Any, Any]:
    """The several inputs by their keys or positions; one alone is the first."""
    if isinstance(x, Mapping):
        return dict(x)
    return dict(enumerate(x)) if isinstance(x, tuple | list) else {0: x}


def holds_samples(leaf: Any) -> bool:
    """Whether it is an array with a first axis, and not marked."""
    return bool(getattr(leaf, "ndim", 0))


def arrays_of(tree: Any) -> Iterator[Any]:
    """The arrays in inputs that have an entry for each sample."""
    if isinstance(tree, Mapping | tuple | list):
        for part in places_of(tree).values():
            yield from arrays_of(part)
    elif holds_samples(tree):
        yield tree


def cut_places(x: Any) -> list[Place]:
    """The places of the inputs that are cut into samples."""
    return [place for place, part in places_of(x).items() if any(True for _ in arrays_of(part))]


def _opened(part: Any) -> Any:
    return part.value if isinstance(part, Shared) else part


def _place(name: Place, parts: Mapping[Any, Any], arguments: Mapping[str, int]) -> Place:
    if name in parts:
        return name
    if name in arguments:
        return arguments[str(name)]
    known = ", ".join(map(repr, [*parts, *arguments]))
    raise UsageError(f"there is no input {name!r} that could be shared: the inputs are {known}")


def _arguments(called: Any, several: int) -> dict[str, int]:
    """The positions of what is called by its argument names; none where it does not take so many."""
    try:
        signature = inspect.signature(getattr(called, "forward", called))
        signature.bind(*range(several))
    except (TypeError, ValueError):  # it takes them otherwise, or nothing is known of it
        return {}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, parameter in signature.parameters.items() if parameter.kind in positional]
    return {name: position for position, name in enumerate(names[:several])}
