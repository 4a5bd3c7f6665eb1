"""Twins of the tensors that a field reads, which take their place while a step is captured.

Parameters and buffers stay where they are. A twin of a parameter lies in the same memory, but autograd knows nothing of
what was done with the other. (A graph of autograd's that is still alive, such as a loss of the last iteration, ties a
parameter to the stream that it was made on. A capture would wait for that stream, and fail.) All other tensors (*loose*
ones: attributes and closures) may be others at each solve. Their twins have memory of their own, to which they are
copied.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from windermere.solvers import Problem
from windermere.solvers.field import Rate, packed_rate


class Twins:
    """Twins of the tensors that a field reads, in their order."""

    def __init__(self, reads: Sequence[Tensor], loose: Sequence[bool], *, others: bool = True) -> None:
        """Where a field's tensors cannot be exchanged, there are no `others`: it reads its own."""
        self.reads = tuple(reads)
        self.all = [_twin(x, apart) if others else x for x, apart in zip(reads, loose, strict=True)]
        self.loose = [(k, twin) for k, (twin, apart) in enumerate(zip(self.all, loose, strict=True)) if apart]
        """Those with memory of their own, and their places."""

    def in_place(self, rate: Rate) -> Rate:
        """The same rate as a function of the twins; in this thread alone."""
        swap = _Swap(self._others)

        def own(t: Tensor, z: Tensor) -> Tensor:
            # Fields that take derivatives themselves call z.requires_grad_(): not of what stays here.
            with swap:
                return rate(t.detach(), z if z.requires_grad else z.detach())

        return own

    @property
    def _others(self) -> dict[int, Tensor]:
        """By the identities of those that they stand for."""
        return {id(x): twin for x, twin in zip(self.reads, self.all, strict=True) if twin is not x}

    def compiled(self, problem: Problem) -> Rate:
        """A problem's rate as a function of the twins, compiled by torch.compile: a module's, which takes its
        parameters as arguments, or that of a function that has no other twins."""
        if not isinstance(problem.field, nn.Module):
            return packed_rate(problem.layout, torch.compile(problem.field))
        field, others = problem.field, self._others
        named = {name: others.get(id(p), p) for name, p in field.named_parameters()}

        def call(own: dict[str, Tensor], t: Tensor, z: Any) -> Any:
            return functional_call(field, own, (t, z))

        made = torch.compile(call)
        return packed_rate(problem.layout, lambda t, z: made(named, t, z))

    def follow(self, reads: Sequence[Tensor]) -> None:
        """Take over the numbers of the loose tensors, as they are now."""
        for k, twin in self.loose:
            twin.copy_(reads[k])

    def let_go(self) -> None:
        """Hold nothing any more of what stays where it is."""
        self.reads, self.all = (), []


def _twin(x: Tensor, loose: bool) -> Tensor:
    if loose:
        return x.detach().clone().requires_grad_(x.requires_grad)
    return x.detach().requires_grad_() if x.requires_grad else x


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
