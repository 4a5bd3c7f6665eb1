"""What a field may ask of its state beside its numbers: how many samples it has, whether it needs a gradient, and how
it lies in memory."""

from contextlib import suppress
from typing import TypeAlias

from torch import Tensor

Start: TypeAlias = tuple[int, bool, tuple[int, ...] | None]
"""How many samples a state has, whether it needs a gradient, and its strides, unless it lies one number after the
other."""


def start_of(z: Tensor) -> Start:
    """What a field may ask of this state."""
    return len(z), z.requires_grad, strides_of(z)


def strides_of(z: Tensor) -> tuple[int, ...] | None:
    """The strides of what does not lie one number after the other."""
    return None if z.is_contiguous() else z.stride()


def as_laid(numbers: Tensor, like: Tensor) -> Tensor:
    """Numbers in memory of their own, as another tensor's lie; its own, where some of them share their place."""
    if like.is_contiguous():
        return numbers.detach().contiguous().clone()
    size = 1 + sum((n - 1) * step for n, step in zip(like.shape, like.stride(), strict=True))
    room = like.detach().as_strided((size,), (1,), like.storage_offset()).clone()
    laid = room.as_strided(like.shape, like.stride())
    with suppress(RuntimeError):
        laid.copy_(numbers.detach())
    return laid
