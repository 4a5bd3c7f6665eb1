"""Which of the paper's networks take which arithmetic, and how their kernels are compiled."""

import torch

from windermere.errors import UsageError
from windermere.nn.arithmetic import check_arithmetic

IMAGES = ("mnist", "cifar10", "mnist-patches")
"""Data sets whose fields take the choice: those of the spheres are too small to gain by it."""
FUSION = {"enable_fp_fusion": True}
"""How Triton compiles every kernel: a product and the sum that it goes into are rounded once. Triton 3.9 warns that
this will no longer be its default."""


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
