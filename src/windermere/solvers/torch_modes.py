"""What PyTorch does around a solve: transforms (vmap, grad, jvp, ...) and autocast."""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack, peek_interpreter_stack
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from windermere.errors import UsageError


def is_transformed() -> bool:
    """Whether the tensors of this moment are those of a transform. torch.compile cannot ask."""
    return not torch.compiler.is_compiling() and peek_interpreter_stack() is not None


def is_batched() -> bool:
    """Whether vmap is among the transforms: then a tensor has no value that could be asked for."""
    return is_transformed() and any(level.key() == TransformType.Vmap for level in get_interpreter_stack())


def is_forward_mode() -> bool:
    """Whether derivatives are carried along (torch.autograd.forward_ad): a function of our own has none to give."""
    return forward_ad._current_level >= 0


def is_looked_through() -> bool:
    """Whether PyTorch wants to see every operation: to compile or trace, in a transform (vmap, jvp, ...), or for
    derivatives in forward mode."""
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return traced or peek_interpreter_stack() is not None or is_forward_mode()


def is_in_a_mode() -> bool:
    """Whether someone wants to see every operation, or to put others in their place: to count them, say. A default
    device, which is such a mode too, does neither."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return True
    modes = torch._C._len_torch_function_stack()
    return modes > 0 and any(not isinstance(torch._C._get_function_stack_at(k), DeviceContext) for k in range(modes))


def check_transforms(*, adaptive: bool, gradient: Any) -> None:
    """A transform sees operations, not the numbers that steps are chosen by, and has derivatives of its own."""
    if adaptive:
        raise UsageError(
            "an adaptive solve chooses its steps by numbers, which torch.func's transforms (vmap, grad, jvp, ...) do "
            "not show: take a FixedStep or an OnGrid inside of them, or torch.autograd"
        )
    hidden = any(level.key() == TransformType.Grad for level in get_interpreter_stack())
    if gradient != "backprop" and torch.is_grad_enabled() and (hidden or gradient != "checkpoint"):
        raise UsageError(
            f"gradient={gradient!r} cannot be had inside of torch.func's transforms (vmap, grad, jvp, ...): "
            "take gradient='backprop' there, or torch.autograd"
        )


def is_mixed(z: Tensor) -> bool:
    """Whether autocast rounds the operations of a solve of this state."""
    if not torch._C._is_any_autocast_enabled():  # the one question that takes next to no time
        return False
    return z.device.type in ("cpu", "cuda", "mps", "xpu") and torch.is_autocast_enabled(z.device.type)
