"""What PyTorch does around a solve: transforms (vmap, grad, jvp, ...) and autocast."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from windermere._torch_private import (
    PERHAPS,
    eager_stance,
    innermost_transform,
    is_any_autocast_enabled,
    is_autocast_enabled,
    is_compiling,
    is_forward_mode,
    tracing_state,
    transforms,
)
from windermere.errors import UsageError


def is_transformed() -> bool:
    """Whether the tensors of this moment are those of a transform. torch.compile cannot ask."""
    return not is_compiling() and innermost_transform() not in (None, PERHAPS)


def is_batched() -> bool:
    """Whether vmap is among the transforms: then a tensor has no value that could be asked for."""
    return is_transformed() and "Vmap" in transforms()


def may_be_transformed() -> bool:
    """Whether a function of our own may have no answer for PyTorch: in a transform, if only perhaps, or for derivatives
    in forward mode."""
    transformed = not is_compiling() and innermost_transform() is not None
    return transformed or is_forward_mode()


def is_looked_through() -> bool:
    """Whether PyTorch wants to see every operation: to compile or trace, in a transform (vmap, jvp, ...), or for
    derivatives in forward mode."""
    traced = is_compiling() or tracing_state() is not None
    return traced or innermost_transform() is not None or is_forward_mode()


def has_tangent(t: Tensor) -> bool:
    """Whether a tensor carries a derivative along (jvp, jacfwd, torch.autograd.forward_ad). In a transform of
    torch.func it may do so unseen, inside of another one."""
    return shows_tangent(t) or (not is_compiling() and is_forward_mode() and is_transformed())


def shows_tangent(t: Any) -> bool:
    """Whether it is seen of a value that it is a tensor which carries a derivative along."""
    if not isinstance(t, Tensor) or is_compiling() or not is_forward_mode():
        return False
    return forward_ad.unpack_dual(t).tangent is not None  # type: ignore[no-untyped-call]


def check_transforms(*, adaptive: bool, gradient: Any) -> None:
    """A transform sees operations, not the numbers that steps are chosen by, and has derivatives of its own."""
    if adaptive:
        raise UsageError(
            "an adaptive solve chooses its steps by numbers, which torch.func's transforms (vmap, grad, jvp, ...) do "
            "not show: take a FixedStep or an OnGrid inside of them, or torch.autograd"
        )
    hidden = "Grad" in transforms()
    if gradient != "backprop" and torch.is_grad_enabled() and (hidden or gradient != "checkpoint"):
        raise UsageError(
            f"gradient={gradient!r} cannot be had inside of torch.func's transforms (vmap, grad, jvp, ...): "
            "take gradient='backprop' there, or torch.autograd"
        )


def is_mixed(z: Tensor) -> bool:
    """Whether autocast rounds the operations of a solve of this state."""
    if not is_any_autocast_enabled():  # the one question that takes next to no time
        return False
    return is_autocast_enabled(z.device.type)


class _Uncompiled:
    """PyTorch has one stance towards compiled code, for all threads: whoever needs it first takes it, and whoever needs
    it last gives it back. If each gave back what it found, two at once could leave it as it is here for good."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.stance: AbstractContextManager[Any] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.stance is None:
                self.stance = eager_stance()
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0 and self.stance is not None:
                    self.stance.__exit__(None, None, None)
                    self.stance = None


as_if_uncompiled = _Uncompiled()
"""Within it, what torch.compile made runs as it was written: its derivatives can then be taken twice."""
