"""Modules in float64: a copy, and a sentence where one cannot run there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from torch import Tensor, float64, nn

from windermere.errors import DoublePrecisionError, FieldError, UsageError, is_out_of_memory
from windermere.nn.functions import CopyError, deep_copy, in_double

IN_OWN = "so its reference flow is found in its own dtype"
NO_MEMORY = f"does not fit into memory in float64, {IN_OWN}; audit fewer samples at a time, or on a larger machine"
NO_DOUBLES = r"doesn't support float64|does not support float64|does not have support for double"
"""What PyTorch says on devices such as Apple's GPUs."""


def double_of(model: nn.Module) -> nn.Module:
    """A copy in float64, in eval mode; networks that are not registered as submodules, and tensors that are plain
    attributes (times, constants), are converted too.

    Raises `DoublePrecisionError` where it can't be made, fit into memory, or be held by the model's device.
    """
    name = type(model).__name__
    try:
        return _converted(model)
    except CopyError as error:
        if is_out_of_memory(error.__cause__ or error):
            raise DoublePrecisionError(f"this {name} {NO_MEMORY}") from error
        raise DoublePrecisionError(f"this {name} cannot be copied into float64: {error}") from error
    except (MemoryError, RuntimeError, TypeError, NotImplementedError) as error:
        why = (
            NO_MEMORY if is_out_of_memory(error) else f"cannot be converted to float64: {_first_line(error)}; {IN_OWN}"
        )
        raise DoublePrecisionError(f"this {name} {why}") from error


def _converted(model: nn.Module) -> nn.Module:
    twin = deep_copy(model)
    for module in twin.modules:
        module.double().eval()
    for owner in (*twin.modules, *twin.holders):
        for name, value in vars(owner).items():
            if isinstance(value, Tensor) and value.dtype.is_floating_point:
                vars(owner)[name] = value.double()
    for function in twin.functions:
        in_double(function)
    return twin.model


@contextmanager
def naming_double(name: str, double: bool) -> Iterator[None]:
    """A pass in float64 that stumbles over a dtype, or finds no memory, says so in one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError, FieldError, UsageError, DoublePrecisionError) as error:
        if double and is_out_of_memory(error):
            raise DoublePrecisionError(f"this {name} {NO_MEMORY}") from error
        told = "float32" if isinstance(error, FieldError) else r"dtype|scalar type|double|float64"
        if not double or not re.search(told, str(error), re.IGNORECASE):
            raise
        first = _first_line(error)
        if re.search(NO_DOUBLES, first):
            raise DoublePrecisionError(f"this {name} is on a device without float64: {first}; {IN_OWN}") from error
        if (stray := _unregistered(error.__traceback__)) is not None:
            raise DoublePrecisionError(
                f"this {name} cannot run in float64, since it uses a {type(stray).__name__} that is not registered as "
                f"a submodule, and that a copy in float64 does not reach: {first}; make it an attribute of the module"
            ) from error
        raise DoublePrecisionError(
            f"this {name} cannot run in float64, so it hard-codes float32: {first}; for a reference in float64 take "
            "dtypes from the inputs, as x.new_zeros(...) does"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _unregistered(trace: TracebackType | None) -> nn.Module | None:
    """The module that raised, where the outermost one does not know of it, and it was left as it is."""
    called: list[nn.Module] = []
    while trace is not None:
        me = trace.tb_frame.f_locals.get("self")
        called.extend([me] if isinstance(me, nn.Module) else [])
        trace = trace.tb_next
    if not called or any(module is called[-1] for module in called[0].modules()):
        return None
    kinds = {tensor.dtype for tensor in (*called[-1].parameters(), *called[-1].buffers())}
    return called[-1] if any(kind.is_floating_point and kind != float64 for kind in kinds) else None
