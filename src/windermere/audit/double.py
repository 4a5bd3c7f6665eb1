"""Modules in float64: a copy, and a sentence where one cannot run there."""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from windermere.errors import DoublePrecisionError, FieldError, UsageError


def double_of(model: nn.Module) -> nn.Module:
    """A copy in float64, in eval mode; tensors that are plain attributes (times, constants) are converted too."""
    modules = list(model.modules())
    strays = [v for m in modules for v in vars(m).values() if isinstance(v, Tensor) and not v.is_leaf]
    # Tensors with a graph behind them, which models keep of their last pass, refuse to be copied: their values suffice.
    known: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in strays}
    try:
        twin = copy.deepcopy(model, known).double().eval()
    except (RuntimeError, TypeError) as error:
        raise DoublePrecisionError(f"this {type(model).__name__} cannot be copied into float64: {error}") from error
    for module in twin.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.dtype.is_floating_point:
                vars(module)[name] = value.double()
    return twin


@contextmanager
def naming_double(name: str, double: bool) -> Iterator[None]:
    """A pass in float64 that stumbles over a dtype says so in one sentence."""
    try:
        yield
    except (RuntimeError, FieldError, UsageError, DoublePrecisionError) as error:
        told = "float32" if isinstance(error, FieldError) else r"dtype|scalar type|double|float64"
        if not double or not re.search(told, str(error), re.IGNORECASE):
            raise
        first = str(error).splitlines()[0]
        raise DoublePrecisionError(
            f"this {name} cannot run in float64, so it hard-codes float32: {first}; for a reference in float64 take "
            "dtypes from the inputs, as x.new_zeros(...) does"
        ) from error
