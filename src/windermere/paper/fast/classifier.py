"""A linear classifier, its losses and their gradients in C, for CPUs: where it is small, PyTorch's overhead counts.

The same inputs give the same bits, whatever other members there are and however many threads.

Shapes: S members, B samples, F features, C classes.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from windermere._torch_private import is_in_a_mode
from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.native_call import C_TYPES, laid_out
from windermere.solvers.paths import are_asked
from windermere.solvers.torch_modes import is_looked_through, is_mixed

PLAIN = (Tensor, nn.Parameter)
WEIGHTS_UP_TO = 256
"""The most weights, classes times features, of a classifier that C takes: each has a vector on a thread's stack. Up to
here C takes half as long as PyTorch's operations, with 1800 weights (Sphere900) as long; with 7840 (MNIST) PyTorch
shares the work among threads."""


class Classified(NamedTuple):
    """What a classifier makes of a batch."""

    losses: Tensor
    """[S]: mean cross-entropies."""
    logits: Tensor
    """[S, B, C]"""
    on_weight: Tensor
    """[S, C, F]: as all that follow, the gradient of the losses' sum."""
    on_bias: Tensor
    """[S, C]"""
    on_features: Tensor
    """[S, B, F]"""


def classify_in_c(weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor) -> Classified | None:
    """Logits, losses and gradients; None where PyTorch's operations are to find them, or to say what is wrong."""
    if not _is_taken(weight, bias, features, labels):
        return None
    compiled = library(C_TYPES[weight.dtype], "sphere")
    if compiled is None:
        return None
    (members, classes, inputs), samples = weight.shape, labels.shape[1]
    x, y, new, like = laid_out(features), laid_out(labels), weight.new_empty, torch.empty_like
    found = Classified(new(members), new((members, samples, classes)), like(weight), like(bias), like(x))
    places = [tensor.data_ptr() for tensor in (weight, bias, x, y, *found)]
    return found if compiled.classify(members, samples, inputs, classes, *places) else None


def _is_taken(weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor) -> bool:
    """Whether these are plain tensors that fit together, small, and nobody wants to see operations or round them."""
    if not are_asked() or is_looked_through() or is_in_a_mode() or is_mixed(features):
        return False
    (members, classes, inputs), dtype = weight.shape, weight.dtype
    return (
        0 < classes * inputs <= WEIGHTS_UP_TO
        and dtype in C_TYPES
        and all(type(t) in PLAIN and t.is_cpu and t.dtype is dtype for t in (weight, bias, features))
        and labels.dtype is torch.int64
        and labels.is_cpu
        and labels.numel() > 0
        and weight.is_contiguous()
        and bias.is_contiguous()
        and bias.shape == (members, classes)
        and features.shape == (*labels.shape, inputs)
        and labels.shape[0] == members
    )
