"""How well the members of an ensemble do, each under a given solver."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from windermere.paper.training.ensemble import Ensemble
from windermere.solvers import Solver, counting

Labelled: TypeAlias = tuple[Tensor, Tensor]
"""Inputs [n, ...] and labels [n]."""
VALUES_AT_ONCE, ON_A_GPU = 4_000_000, 16
"""Hidden values computed at once: bounds memory, large enough to keep every core busy; and how many times that on a
GPU, which needs more to do between two starts of a kernel."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Test results of an ensemble; numbers by member."""

    accuracy: list[float]
    evaluations: list[int]
    """Evaluations of the field for one pass (an adaptive solver's vary by batch: their mean)."""
    samples: int


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """[S]: the number of samples that each member classifies rightly."""
    return (logits.argmax(dim=-1) == labels).sum(dim=-1)


def member_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """[S]: every member's mean cross-entropy."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(dim=1)


@torch.no_grad()
def evaluate(ensemble: Ensemble, solvers: Sequence[Solver], test_set: Labelled) -> Evaluation:
    """Every member on the whole test set, in batches."""
    right = torch.zeros(ensemble.size, dtype=torch.int64)
    passes = []
    for inputs, labels in _chunks(test_set, ensemble.size):
        with counting() as count:
            logits = ensemble(inputs.expand(ensemble.size, *inputs.shape), solvers)
        right += correct(logits, labels).cpu()
        passes.append(np.broadcast_to(count.forward, ensemble.size))
    samples = len(test_set[1])
    return Evaluation(
        accuracy=(right.double() / samples).tolist(),
        evaluations=np.mean(passes, axis=0).round().astype(int).tolist(),
        samples=samples,
    )


def _chunks(test_set: Labelled, members: int) -> Iterator[Labelled]:
    inputs, labels = test_set
    most = VALUES_AT_ONCE * (ON_A_GPU if inputs.is_cuda else 1)
    size = max(1, most // (members * inputs[0].numel() * 40))
    return zip(torch.split(inputs, size), torch.split(labels, size), strict=True)
