"""Gradients made in one go: they can be had, and not differentiated again."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from windermere.errors import UsageError

Backward = Callable[..., Any]


def differentiable_once(backward: Backward) -> Backward:
    """Refuse to be asked with create_graph=True. PyTorch's `once_differentiable` would hand out what counts as a
    constant: a penalty on such a gradient has no effect, and nobody says so."""

    @wraps(backward)
    def guarded(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise UsageError(
                "the gradient of this solve, by the adjoint or by a field's own fast way, cannot be differentiated "
                "again (create_graph=True): take gradient='backprop', and wrap a field of Windermere's in a module"
            )
        return backward(ctx, *grads)

    return guarded
