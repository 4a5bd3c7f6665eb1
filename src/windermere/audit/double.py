"""Modules in float64: a copy, and a sentence where one cannot run there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from windermere.audit.copies import deep_copy
from windermere.errors import DoublePrecisionError, FieldError, UsageError


def double_of(model: nn.Module) -> nn.Module:
    """A copy in float64, in eval mode; tensors that are plain attributes (times, constants) are converted too."""
    try:
        twin = deep_copy(model).double().eval()
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
