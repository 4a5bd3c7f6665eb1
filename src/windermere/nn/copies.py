"""Copies of users' modules: an audit sets modes, hooks and dtypes, and must do so where nobody else looks."""

from itertools import count
from typing import Any

from torch import nn

from windermere.nn import ODEBlock
from windermere.nn.functions import CopyError, deep_copy
from windermere.nn.ode_block import is_swapped

MARK = "_windermere_audit"
"""An attribute of every module in a copy: the copy's number. DataParallel's replicas have it too."""
_numbers = count(1)


def copy_of(model: nn.Module) -> nn.Module:
    """A copy in eval mode that an audit may write to; the module itself where that is such a copy already, or where it
    cannot be copied (see `why_not_copied`). A `using` around the audit counts: its solvers are the copy's own."""
    if number_of(model) is not None:
        return model
    try:
        twin = deep_copy(model)
    except CopyError:  # a lock in it, say
        return model
    number = next(_numbers)
    for module in twin.modules:  # those too that are not registered as submodules
        vars(module)[MARK] = number
        module.eval()
    for own, block in zip(model.modules(), twin.model.modules(), strict=False):
        if isinstance(own, ODEBlock) and is_swapped(own) and isinstance(block, ODEBlock):
            block.solver = own.solver
    return twin.model


def why_not_copied(model: nn.Module) -> tuple[str, ...]:
    """A note where a model is audited itself."""
    if number_of(model) is not None:
        return ()
    return (
        f"this {type(model).__name__} cannot be copied, so it is audited itself, in eval mode meanwhile: do not run it "
        "in another thread during an audit",
    )


def number_of(owner: Any) -> int | None:
    """The number of the copy that a module, or a method of one, belongs to."""
    number: int | None = getattr(getattr(owner, "__self__", owner), MARK, None)
    return number


def without_replicas(model: Any) -> Any:
    """The module inside DataParallel and its like, whose threads and processes a swapped solver would not reach."""
    while isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    return model
