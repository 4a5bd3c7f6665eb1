"""Twins of a field's parameters, in the same memory: autograd knows nothing of what was done with the others.

A graph of autograd's that is still alive, such as a loss of the last iteration, ties a parameter to the stream that it
was made on. A capture would wait for that stream, and fail.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from windermere.solvers import Problem
from windermere.solvers.field import Rate, compiled, packed_rate


def with_twins(problem: Problem, parameters: Sequence[Tensor], *, compiles: bool) -> tuple[Rate, list[Tensor]]:
    """The problem's rate as a function of twins of these parameters, which lie where they do; in this thread alone."""
    if compiles and not isinstance(problem.field, nn.Module):  # whose parameters nobody can exchange
        return packed_rate(problem.layout, compiled(problem.field)), list(parameters)
    twins = [p.detach().requires_grad_() for p in parameters]
    if compiles:
        return packed_rate(problem.layout, _compiled(cast(nn.Module, problem.field), parameters, twins)), twins
    plain = packed_rate(problem.layout, problem.field) if problem.compile else problem.rate
    if not twins:
        return plain, []
    swap = _Swap({id(p): twin for p, twin in zip(parameters, twins, strict=True)})

    def own(t: Tensor, z: Tensor) -> Tensor:
        with swap:
            return plain(t, z)

    return own, twins


def _compiled(field: nn.Module, parameters: Sequence[Tensor], twins: Sequence[Tensor]) -> Rate:
    """A compiled module that takes its parameters as arguments."""
    places = {id(p): twin for p, twin in zip(parameters, twins, strict=True)}
    named = {name: places.get(id(p), p) for name, p in field.named_parameters()}

    def call(own: dict[str, Tensor], t: Tensor, z: Any) -> Any:
        return functional_call(field, own, (t, z))

    made = torch.compile(call)
    return lambda t, z: made(named, t, z)


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
