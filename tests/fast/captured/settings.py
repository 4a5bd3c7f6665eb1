"""A user's own module of settings."""

from types import SimpleNamespace
from typing import Any

from torch import Tensor

alpha = 0.5
inner = SimpleNamespace(beta=0.5)


def imports(_: Any, z: Tensor) -> Tensor:
    from tests.fast.captured import settings

    return z * settings.alpha


def with_default(_: Any, z: Tensor, scale: float = 0.5) -> Tensor:
    return z * scale
