"""Where a field keeps gradients from what it computes (by `detach`, under `no_grad`, in a function of its own), where
it takes numbers from tensors to Python, and what else it asks of them, or does to them, beside operations.

A trace (trace.py) sees operations below autograd, where none of that shows; and comparing gradients finds only what has
an effect at the states at which a field is watched, which is not so behind `torch.where`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from windermere.fast import aten
from windermere.fast.recipe import tensors_in

Named = Mapping[Any, str]


def _asking(*names: str) -> Named:
    return {getattr(Tensor, name).__get__: name for name in names if hasattr(Tensor, name)}


def _setting(*names: str) -> Named:
    return {getattr(Tensor, name).__set__: name for name in names}


def _calling(*names: str) -> Named:
    return {getattr(Tensor, name): name for name in names if hasattr(Tensor, name)}


PROPERTIES = _asking("data", "grad_fn")
"""Whoever asks for the last of these may leave a hook there."""
COPYING = (torch.tensor, Tensor.new_tensor)
READING = _calling("tolist", "numpy", "__array__", "__dlpack__", "__repr__")
SPLITTING = frozenset((torch.tensor_split, Tensor.tensor_split))
"""They read the places to split at."""
CUTTING = frozenset((torch.detach, torch.detach_, Tensor.detach, Tensor.detach_, Tensor.register_hook, *COPYING))
TAGS = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape))
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
STATE = {
    **_asking("_version", "grad", "_grad", "_cdata", "_base", "is_leaf", "output_nr", "retains_grad", *HOOKS),
    **_calling("data_ptr", "const_data_ptr", "storage", "untyped_storage", "_typed_storage"),
    **_calling("is_shared", "is_pinned", "is_inference", "is_set_to", "_is_view", "__deepcopy__"),
}
"""What may change of a tensor that a field refers to, be its numbers and its kind the same."""
CHANGING = {
    **_calling("requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "share_memory_"),
    **_setting("grad", "requires_grad"),
}
"""What a tensor that a field refers to would keep after the call."""
UNSEEN = {**_calling("apply_", "map_", "map2_", "backward"), **_setting("data")}
"""They change tensors, and no operation shows it."""
PLACED = _calling("storage_offset")
"""Where a tensor lies in its memory: a state may lie elsewhere at the next solve."""
OUTSIDE = {**READING, **STATE, **CHANGING}
"""What is not to be done with tensors that are there before a call, and after it."""


def read_by(func: Any, name: str, args: Sequence[Any]) -> list[Tensor]:
    """The tensors on whose numbers it depends what an operation hands to Python, or of which shape its result is; of
    places, only those that say of each number whether it is meant."""
    if name in ("index", "index_put", "index_put_"):
        return [x for x in tensors_in(args[1]) if x.dtype in (torch.bool, torch.uint8)]
    return list(tensors_in(args)) if name in aten.READING or not TAGS.isdisjoint(func.tags) else []


class Questions(TorchFunctionMode):
    """While open, refuses what a field asks of tensors that it was not given and has not made itself, or does to them,
    where no operation shows it."""

    def __init__(self, is_own: Callable[[Tensor], bool], refuse: Callable[[str], NoReturn]) -> None:
        super().__init__()
        self.is_own, self.refuse = is_own, refuse
        self.given: tuple[Any, ...] = ()
        """To the function that is called."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        self.given = (*args, *named.values())
        self.ask(func, args, named)
        return func(*args, **named)

    def ask(self, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if func in UNSEEN:
            self.refuse(f"it changes tensors by {UNSEEN[func]}")
        if func in PLACED:
            self.refuse(f"it asks where a tensor lies ({PLACED[func]})")
        if func in OUTSIDE and not all(self.is_own(x) for x in tensors_in((*args, *named.values()))):
            self.refuse(f"it asks more of a tensor than its numbers ({OUTSIDE[func]})")


class Cuts(Questions):
    """While open, notes down what keeps or changes gradients, and what is read."""

    def __init__(self, is_own: Callable[[Tensor], bool], refuse: Callable[[str], NoReturn]) -> None:
        super().__init__(is_own, refuse)
        self.graded = torch.is_grad_enabled()
        self.found = ""
        """By what, where there is such a thing."""
        self.read: list[tuple[str, Tensor]] = []
        """What was taken to Python, and how."""

    def ask(self, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        super().ask(func, args, named)
        cuts = func in CUTTING or func in PROPERTIES
        if cuts and self.graded and _needs_gradients((*args, *named.values())):
            self.found = self.found or PROPERTIES.get(func) or func.__name__
        if func in READING or func in SPLITTING:
            given = args if func in READING else (*args[1:], *named.values())
            self.read += [(func.__name__, x) for x in tensors_in(given)]

    def look(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """At an operation, as the dispatcher has it; what is compared has no gradient anyway."""
        without = self.graded and not torch.is_grad_enabled() and _needs_gradients(args)
        if without and any(x.is_floating_point() for x in tensors_in(result)):
            self.found = self.found or f"{name} without gradients"

    def look_at_entries(self) -> None:
        """A tensor is made of numbers in Python, as of a list: PyTorch reads tensors among them, and shows nobody."""
        nested = (x for x in self.given if not isinstance(x, Tensor))
        self.read += [("a list of tensors", x) for x in _entries(nested)]


PLAIN = (str, bytes, range, np.ndarray, np.generic)


def _entries(given: Any) -> Iterator[Tensor]:
    """All tensors in containers of any kind."""
    if isinstance(given, Tensor):
        yield given
    elif (hasattr(given, "__iter__") or hasattr(given, "__getitem__")) and not isinstance(given, PLAIN):
        for entry in given.values() if isinstance(given, Mapping) else given:
            yield from _entries(entry)


def _needs_gradients(args: tuple[Any, ...]) -> bool:
    return any(x.requires_grad for x in tensors_in(args))
