"""What comes after the last solve, found by watching which modules lead from its end to the model's output."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn

from windermere.auditing.adapters.solves import Tape
from windermere.auditing.subject import leads
from windermere.nn.model_calls import takes_hooks


@dataclass(frozen=True)
class ModuleCall:
    """One module that was called with one tensor and returned one."""

    module: nn.Module
    given: Tensor
    returned: Tensor


@contextmanager
def watching(model: nn.Module, tape: Tape) -> Iterator[list[ModuleCall]]:
    """The calls of modules after the last solve, outer ones before the inner ones that they make."""
    begun: list[tuple[int, int]] = []
    calls: list[tuple[int, ModuleCall]] = []
    found: list[ModuleCall] = []
    number = count()

    def before(module: nn.Module, given: Any) -> None:
        begun.append((next(number), len(tape.solvers)))
        if tape.solving or not tape.solvers:
            calls.clear()  # a field's activations would fill the memory

    def behind(module: nn.Module, given: Any, returned: Any) -> None:
        place, solved = begun.pop()
        single = len(given) == 1 and isinstance(given[0], Tensor) and isinstance(returned, Tensor)
        if single and not tape.solving and solved == len(tape.solvers) > 0:
            calls.append((place, ModuleCall(module, given[0], returned)))

    modules = filter(takes_hooks, model.modules())
    hooks = [(m.register_forward_pre_hook(before), m.register_forward_hook(behind)) for m in modules]
    try:
        yield found
    finally:
        for handle in chain.from_iterable(hooks):
            handle.remove()
        found.extend(call for _, call in sorted(calls, key=lambda one: one[0]))


def head_between(calls: list[ModuleCall], end: Tensor, outputs: Tensor) -> nn.Module | None:
    """The modules that lead from the last solve's end to the outputs; None where something else happens on the way."""
    layers: list[nn.Module] = []
    current = end
    for call in calls:
        if _same(call.given, current):
            layers.append(call.module)
        elif current.ndim > 2 and _same(call.given, current.flatten(1)):
            layers.extend([nn.Flatten(), call.module])
        else:
            continue
        current = call.returned
    head = nn.Sequential(*layers)
    return head if _same(current, outputs) and leads(head, end, outputs) else None


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))
