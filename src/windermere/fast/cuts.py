"""Where a field keeps gradients from what it computes (by `detach`, under `no_grad`, in a function of its own), and
where it takes numbers from tensors to Python.

A trace (trace.py) sees operations below autograd, where none of that shows; and comparing gradients finds only what has
an effect at the states at which a field is watched, which is not so behind `torch.where`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from windermere.fast import aten
from windermere.fast.recipe import tensors_in

PROPERTIES: dict[Callable[..., Any], str] = {getattr(Tensor, name).__get__: name for name in ("data", "grad_fn")}
"""Whoever asks for the last of these may leave a hook there."""
COPYING = (torch.tensor, Tensor.new_tensor)
READING = frozenset((Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__))
SPLITTING = frozenset((torch.tensor_split, Tensor.tensor_split))
"""They read the places to split at."""
CUTTING = frozenset((torch.detach, torch.detach_, Tensor.detach, Tensor.detach_, Tensor.register_hook, *COPYING))
TAGS = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape))


def read_by(func: Any, name: str, args: Sequence[Any]) -> list[Tensor]:
    """The tensors on whose numbers it depends what an operation hands to Python, or of which shape its result is; of
    places, only those that say of each number whether it is meant."""
    if name in ("index", "index_put", "index_put_"):
        return [x for x in tensors_in(args[1]) if x.dtype in (torch.bool, torch.uint8)]
    return list(tensors_in(args)) if name in aten.READING or not TAGS.isdisjoint(func.tags) else []


class Cuts(TorchFunctionMode):
    """While open, notes down what keeps or changes gradients, and what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.graded = torch.is_grad_enabled()
        self.found = ""
        """By what, where there is such a thing."""
        self.read: list[tuple[str, Tensor]] = []
        """What was taken to Python, and how."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        cuts = func in CUTTING or func in PROPERTIES
        if cuts and self.graded and _needs_gradients((*args, *named.values())):
            self.found = self.found or PROPERTIES.get(func) or func.__name__
        if func in READING or func in SPLITTING:
            given = args if func in READING else (*args[1:], *named.values())
            self.read += [(func.__name__, x) for x in tensors_in(given)]
        return func(*args, **named)

    def look(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """At an operation, as the dispatcher has it; what is compared has no gradient anyway."""
        without = self.graded and not torch.is_grad_enabled() and _needs_gradients(args)
        if without and any(x.is_floating_point() for x in tensors_in(result)):
            self.found = self.found or f"{name} without gradients"


def _needs_gradients(args: tuple[Any, ...]) -> bool:
    return any(x.requires_grad for x in tensors_in(args))
