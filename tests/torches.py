"""What a test needs of PyTorch, where the oldest that the library works with does not have it."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])

weight_norm: Any = getattr(parametrizations, "weight_norm", nn.utils.weight_norm)


def needs_torch(minor: int, what: str) -> pytest.MarkDecorator:
    """Skip where PyTorch is older than 2.minor."""
    return pytest.mark.skipif((2, minor) > TORCH, reason=f"PyTorch 2.{minor} is the first {what}")


needs_compile = needs_torch(1, "whose torch.compile takes Python 3.11")
