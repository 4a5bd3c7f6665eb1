"""Margins: how far each reference output lies from the nearest decision boundary, against what errors can move it.

The decision is the largest logit, or for a single logit its sign. Shapes: n samples, D entries of a state, C classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor, nn

from windermere.auditing.evidence.jacobians import pull_back
from windermere.errors import UsageError

AT_ONCE = 256
"""Samples whose gradients an estimate takes at a time."""


@dataclass(frozen=True, kw_only=True)
class LinearHead:
    """A decision layer: logits = weight z + bias."""

    weight: Tensor
    """[C, D]"""
    bias: Tensor
    """[C]"""


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Distances to the decision boundary, and the share of decisions that they keep safe."""

    exact: bool
    """Whether margins are distances; else they are first-order estimates: gap of logits over norm of its gradient."""
    margin: Tensor
    """[n], Euclidean in the state; infinite where no other decision can be reached."""
    safe: float
    """Share whose margin exceeds the training solver's error plus the reference's."""
    median_margin: float

    @property
    def proves(self) -> str:
        if not self.exact:
            return "Nothing: behind a head that is not linear a margin is only a first-order estimate."
        return (
            "Where the margin exceeds the training solver's error plus the reference's, no solver at least as "
            "accurate on that sample can change the decision."
        )

    @property
    def limits(self) -> str:
        return (
            "It says nothing of the other samples, whose decisions may still hold, nor whether a decision is right; "
            "and the reference's own error is an estimate."
        )


@torch.inference_mode(False)
def margins(head: nn.Module, states: Tensor, error: Tensor, reference_error: Tensor) -> Margins:
    """The margins of reference states [n, ...] before the head; errors are Euclidean norms in the state, [n].

    An error that is not finite (the training solver blew up on that sample) makes no decision safe.
    """
    _check(states)
    linear, flat = linear_head(head), states.reshape(len(states), -1).detach()
    # nn.Linear acts on the last axis: on an image, without a Flatten before it, it is no decision layer.
    exact = linear is not None and linear.weight.shape[1] == flat.shape[1]
    if linear is not None and exact:
        margin = _distances(linear, flat)
    else:
        margin = torch.cat([_estimates(head, z) for z in torch.split(states, AT_ONCE)])
    allowed = (error + reference_error).to(margin)
    safe = float((margin > allowed).double().mean())
    return Margins(exact=exact, margin=margin, safe=safe, median_margin=float(margin.median()))


def linear_head(head: nn.Module) -> LinearHead | None:
    """The head as a linear decision layer, None where it is not known to be one.

    Layers that only reshape, rest in evaluation, or come last and keep the decision do not count.
    """
    layers = [layer for layer in _decisive(head) if not _idle(layer)]
    if len(layers) != 1 or not isinstance(layers[0], nn.Linear) or type(layers[0]).forward is not nn.Linear.forward:
        return None
    weight, bias = layers[0].weight.detach(), layers[0].bias
    return LinearHead(weight=weight, bias=weight.new_zeros(len(weight)) if bias is None else bias.detach())


def _decisive(head: nn.Module) -> list[nn.Module]:
    """The head's layers without those at the end that turn logits into probabilities and keep the decision."""
    layers = list(_layers(head))
    while len(layers) > 1 and (_keeps_decision(layers[-1]) or _idle(layers[-1])):
        layers.pop()
    return layers


def _layers(head: nn.Module) -> Iterator[nn.Module]:
    """The layers one after the other; a module with a forward of its own is one."""
    if isinstance(head, nn.Sequential) and type(head).forward is nn.Sequential.forward:
        for layer in head:
            yield from _layers(layer)
    else:
        yield head


def _keeps_decision(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Softmax | nn.LogSoftmax):
        return layer.dim in (None, 1, -1)
    return isinstance(layer, nn.Sigmoid)


def _idle(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Flatten):
        return layer.start_dim == 1 and layer.end_dim == -1
    return isinstance(layer, nn.Identity) or (isinstance(layer, nn.Dropout) and not layer.training)


def _distances(head: LinearHead, flat: Tensor) -> Tensor:
    """Exactly: the boundary to class j is a plane, (logit_c - logit_j) / |w_c - w_j| away."""
    weight, bias = head.weight.to(flat), head.bias.to(flat)
    if len(weight) == 1:  # against a second logit that is always 0
        weight, bias = (torch.cat([x, torch.zeros_like(x)]) for x in (weight, bias))
    logits = flat @ weight.T + bias
    # Not by products of matrices, which cancel where rows are near each other.
    apart = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
    return _nearest(logits, apart[logits.argmax(dim=1)])


def _estimates(head: nn.Module, states: Tensor) -> Tensor:
    """First order: the gap to each class over the norm of the gap's gradient, one backward pass for each class."""
    with torch.enable_grad():
        leaf = states.detach().clone().requires_grad_()
        logits = _logits(head, leaf)
        gaps = logits.gather(1, logits.argmax(dim=1, keepdim=True)) - logits
        slopes = torch.zeros_like(gaps, requires_grad=False)
        for j, gap in enumerate(gaps.unbind(1)) if gaps.requires_grad else ():
            slope = pull_back(gap.sum(), leaf)
            slopes[:, j] = slope.reshape(len(slope), -1).norm(dim=1)
    return _nearest(logits.detach(), slopes)


def _logits(head: nn.Module, states: Tensor) -> Tensor:
    """[n, C]; a single logit stands against one that is always 0."""
    out = states
    for layer in _decisive(head):
        out = layer(out)
    out = out.unsqueeze(1) if out.ndim == 1 else out
    if out.ndim != 2 or len(out) != len(states):
        raise UsageError(f"margins need a head that returns [samples, classes], not {list(out.shape)}")
    return torch.cat([out, torch.zeros_like(out)], dim=1) if out.shape[1] == 1 else out


def _nearest(logits: Tensor, slopes: Tensor) -> Tensor:
    """The smallest gap over slope. A gap that no move changes is no boundary, unless the sample lies on it."""
    decision = logits.argmax(dim=1, keepdim=True)
    gaps = logits.gather(1, decision) - logits
    distances = torch.where(slopes > 0, gaps / slopes, torch.where(gaps > 0, inf, 0.0))
    return distances.scatter(1, decision, inf).amin(dim=1)


def _check(states: Tensor) -> None:
    if not states.isfinite().all():
        bad = ~states.isfinite().reshape(len(states), -1).all(dim=1)
        raise UsageError(f"{int(bad.sum())} of {len(states)} reference states are not finite: leave them out")
