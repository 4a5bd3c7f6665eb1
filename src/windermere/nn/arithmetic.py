"""How the products of a field are rounded: a named choice. States, sums, parameters and their gradients are float32 in
all of them, and a solve in float64 is exact whatever the choice. A module that rounds has the name as its attribute
`arithmetic`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import nn
from torch.backends import cudnn

from windermere.errors import UnknownNameError

ARITHMETICS = ("float32", "tf32", "bfloat16")


def check_arithmetic(name: str) -> str:
    if name not in ARITHMETICS:
        raise UnknownNameError("arithmetic", name, ARITHMETICS)
    return name


@contextmanager
def convolving_in(arithmetic: str, *, tuned: bool = False) -> Iterator[None]:
    """Inside, cuDNN convolves in TF32 only if asked to (PyTorch lets it by default); `tuned` lets it try for each shape
    which of its algorithms is fastest. These are flags of the whole process, afterwards as they were before."""
    flags = cast(Any, cudnn)
    newer = [flags.conv, flags.rnn] if hasattr(cudnn, "conv") else []  # since PyTorch 2.9
    own = [flag.fp32_precision for flag in newer]
    benchmark, legacy = flags.benchmark, is_tf32_allowed()
    try:
        # Not by `conv.fp32_precision` alone: PyTorch's own readers of `allow_tf32` refuse a mixture of both.
        flags.allow_tf32, flags.benchmark = check_arithmetic(arithmetic) == "tf32", benchmark or tuned
        yield
    finally:
        flags.benchmark = benchmark
        if legacy is not None:
            flags.allow_tf32 = legacy
        for flag, precision in zip(newer, own, strict=True):
            flag.fp32_precision = precision


def is_tf32_allowed() -> bool | None:
    """Whether cuDNN may convolve in TF32. None where it cannot be read, as the user has set the newer forms of its flag
    apart from each other."""
    try:
        return cudnn.allow_tf32
    except RuntimeError:
        return None


def _rounding(model: nn.Module) -> list[Any]:
    """The modules that say how they round."""
    return [module for module in model.modules() if getattr(module, "arithmetic", None) in ARITHMETICS]


@contextmanager
def unrounded(model: nn.Module) -> Iterator[None]:
    """Inside, a model's products are those of its dtype, whatever arithmetic it was made with."""
    fields = [(module, module.arithmetic) for module in _rounding(model)]
    try:
        for field, _ in fields:
            field.arithmetic = "float32"
        with convolving_in("float32"):
            yield
    finally:
        for field, own in fields:
            field.arithmetic = own


def arithmetic_of(model: nn.Module) -> str:
    """What a model's modules were made with; the first that rounds, where they differ."""
    found = [str(module.arithmetic) for module in _rounding(model)]
    return next((name for name in found if name != "float32"), "float32")
