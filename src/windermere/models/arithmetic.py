"""How the products of a field are rounded: a named choice. States, sums, parameters and their gradients are float32 in
all of them, and a solve in float64 is exact whatever the choice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.backends import cudnn

from windermere.errors import UnknownNameError, UsageError

ARITHMETICS = ("float32", "tf32", "bfloat16")
IMAGES = ("mnist", "cifar10")
"""Data sets whose fields take the choice: those of the spheres are too small to gain by it."""
FUSION = {"enable_fp_fusion": True}
"""How Triton compiles every kernel: a product and the sum that it goes into are rounded once. Triton 3.9 warns that
this will no longer be its default."""


def check_arithmetic(name: str) -> str:
    if name not in ARITHMETICS:
        raise UnknownNameError("arithmetic", name, ARITHMETICS)
    return name


def check_it_suits(arithmetic: str, data: str, dtype: str) -> None:
    """An arithmetic that would change nothing is refused."""
    if check_arithmetic(arithmetic) == "float32":
        return
    if dtype != "float32":
        raise UsageError(
            f"arithmetic {arithmetic} rounds products of float32, not of {dtype}: leave one of the two out"
        )
    if data not in IMAGES:
        raise UsageError(
            f"arithmetic {arithmetic} is for images ({', '.join(IMAGES)}), and the data are '{data}': leave it out"
        )


def products_in(arithmetic: str, states: torch.dtype) -> torch.dtype:
    """What the layers of a field compute in, for states of this dtype. (tf32 is float32 with a flag: see below.)"""
    return torch.bfloat16 if arithmetic == "bfloat16" and states == torch.float32 else states


@contextmanager
def convolving_in(arithmetic: str, *, tuned: bool = False) -> Iterator[None]:
    """Inside, cuDNN convolves in TF32 only if asked to (PyTorch lets it by default); `tuned` lets it try for each shape
    which of its algorithms is fastest. These are flags of the whole process, afterwards as they were before."""
    flags = cast(Any, cudnn)
    own = [flags.conv.fp32_precision, flags.rnn.fp32_precision]
    benchmark, legacy = flags.benchmark, _legacy_flag()
    try:
        # Not by `conv.fp32_precision` alone: PyTorch's own readers of `allow_tf32` refuse a mixture of both.
        flags.allow_tf32, flags.benchmark = check_arithmetic(arithmetic) == "tf32", benchmark or tuned
        yield
    finally:
        flags.benchmark = benchmark
        if legacy is not None:
            flags.allow_tf32 = legacy
        flags.conv.fp32_precision, flags.rnn.fp32_precision = own


def _legacy_flag() -> bool | None:
    """None where it cannot be read, as the user has set its newer forms apart from each other."""
    try:
        return cudnn.allow_tf32
    except RuntimeError:
        return None
