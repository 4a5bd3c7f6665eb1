"""The end of a training step's way there and the beginning of its way back: classifier, losses and their gradients.

For a small model, autograd's tape takes several times as long as the arithmetic on it. So on a CPU a linear classifier
goes without: a small one in C (paper/fast/classifier.py), any other by the operations that autograd itself would use,
so that the bits are the same.

Shapes: S members, B samples, F features, C classes.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from windermere._torch_private import has_hooks, log_softmax_back, ungraded
from windermere.fast.cpu.native_call import pull_back
from windermere.paper.fast.classifier import Classified, classify_in_c
from windermere.paper.training.ensemble import Ensemble, apply
from windermere.paper.training.evaluation import correct, member_losses


class Stepped(NamedTuple):
    """What a training step saw; on no tape."""

    losses: Tensor
    """[S]"""
    logits: Tensor
    """[S, B, C]"""
    labels: Tensor
    """[S, B]"""

    def of(self, members: slice) -> "Stepped":
        """What was seen of some members only."""
        return Stepped(*(tensor[members] for tensor in self))

    @property
    def right(self) -> Tensor:
        """[S]: the samples that were classified rightly."""
        return correct(self.logits, self.labels)


def classify_and_differentiate(ensemble: Ensemble, features: Tensor, labels: Tensor) -> Stepped:
    """Classify what the last layer is given; the gradients of the sum of losses go to the parameters' `grad`."""
    layer, tensors = ensemble.last
    if not _is_plain(layer, tensors, features):
        logits = apply(layer, tensors, features)
        losses = member_losses(logits, labels)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        return Stepped(losses.detach(), logits.detach(), labels)
    weight, bias, x = tensors["weight"], tensors["bias"], features.detach()
    with ungraded():
        found = classify_in_c(weight, bias, x, labels) or _classified(layer, tensors, x, labels)
    weight.grad, bias.grad = found.on_weight, found.on_bias
    if features.requires_grad and not pull_back(features, found.on_features):
        features.backward(found.on_features)  # type: ignore[no-untyped-call]
    return Stepped(found.losses, found.logits, labels)


def _classified(layer: nn.Module, tensors: dict[str, Tensor], x: Tensor, labels: Tensor) -> Classified:
    """By PyTorch's operations."""
    logits = apply(layer, tensors, x)
    likelihoods, chosen = logits.transpose(1, 2).log_softmax(1), labels.unsqueeze(1)  # [S, C, B]
    losses = likelihoods.gather(1, chosen).squeeze(1).mean(1).neg_()
    on_chosen = torch.zeros_like(likelihoods).scatter_(1, chosen, -1 / labels.shape[1])
    on_logits = log_softmax_back(on_chosen, likelihoods, 1).transpose(1, 2)
    on_weight = x.transpose(1, 2).bmm(on_logits).transpose(1, 2).contiguous()
    return Classified(losses, logits, on_weight, on_logits.sum(1), on_logits.bmm(tensors["weight"]))


def _is_plain(layer: nn.Module, tensors: dict[str, Tensor], features: Tensor) -> bool:
    linear = type(layer) is nn.Linear and "bias" in tensors and features.ndim == 3
    return linear and features.is_cpu and all(t.requires_grad and not has_hooks(t) for t in tensors.values())
