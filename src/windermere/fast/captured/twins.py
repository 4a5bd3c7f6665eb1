"""Twins of a field's parameters, in the same memory: autograd knows nothing of what was done with the others.

A graph of autograd's that is still alive, such as a loss of the last iteration, ties a parameter to the stream that it
was made on. A capture would wait for that stream, and fail.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from windermere.solvers.field import Rate


def with_twins(rate: Rate, parameters: Sequence[Tensor]) -> tuple[Rate, list[Tensor]]:
    """The same rate as a function of twins of these parameters, which lie where they do; in this thread alone."""
    twins = [p.detach().requires_grad_() for p in parameters]
    if not twins:
        return rate, []
    swap = _Swap({id(p): twin for p, twin in zip(parameters, twins, strict=True)})

    def own(t: Tensor, z: Tensor) -> Tensor:
        with swap:
            return rate(t, z)

    return own, twins


class _Swap(TorchFunctionMode):
    """Hands every function of PyTorch's the twins instead."""

    def __init__(self, twins: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.twins = twins

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*self._swapped(tuple(args)), **self._swapped(kwargs or {}))

    def _swapped(self, given: Any) -> Any:
        if isinstance(given, Tensor):
            return self.twins.get(id(given), given)
        if type(given) in (list, tuple):
            return type(given)(self._swapped(x) for x in given)
        if type(given) is dict:
            return {key: self._swapped(x) for key, x in given.items()}
        return given
