"""What steady controllers watch: how far a better solver moves the outputs, against how far the inputs move them.

A model that says nearly the same of every input is moved little by any solver; being measured against how much it says,
it is held to the same standard from the first iteration on.

Shapes: B samples, K classes; one axis may come before them, of an ensemble's S members.
"""

from typing import Any

import torch
from torch import Tensor

from windermere.errors import UsageError

ROUNDING = 1e-12
LEAST_TOLD = 1e-3
"""A model that says less than this of its inputs is not held to it: nothing is divided by less."""


def moved_mass(trained: Tensor, checked: Tensor) -> Tensor:
    """Share of the predicted probability that changes class between two solvers: the distance for classifiers.

    `trained` and `checked` are the logits of the training and the check solver, [samples, classes]; a number is
    returned. Of an ensemble's, [members, samples, classes], one for each member.

    This is the mean total variation, relative to how sure the model is. Where it is sure of its classes, 0.02 says that
    two percent of the mass lie elsewhere under the other solver; where it is not, two percent of what tells its inputs
    apart: their spread around the mean prediction, over that of a sure model with the same mean.
    """
    _check_outputs(trained, checked, values=2)
    before, after = trained.double().softmax(dim=-1), checked.double().softmax(dim=-1)
    mean = before.mean(dim=-2, keepdim=True)
    spread, sure = _variation(before - mean), (mean * (1 - mean)).sum(dim=(-2, -1))
    told = (spread + ROUNDING) / (sure + ROUNDING)
    return _variation(after - before) / told.clamp(min=LEAST_TOLD)


def relative_distance(trained: Tensor, checked: Tensor) -> Tensor:
    """The mean distance between two solvers' outputs, relative to their own spread: the distance for regressions.

    `trained` and `checked` are the outputs of the training and the check solver, [samples, values]; a number is
    returned. Of an ensemble's, [members, samples, values], one for each member.

    The spread is the mean distance of an output from the mean output, so 0.02 says that outputs lie two percent of it
    elsewhere under the other solver.
    """
    _check_outputs(trained, checked, values=1)
    trained, checked = trained.double(), checked.double()
    spread, size = _lengths(trained - trained.mean(dim=-2, keepdim=True)), _lengths(trained)
    return _lengths(checked - trained) / torch.maximum(spread, LEAST_TOLD * size + ROUNDING)


def _check_outputs(outputs: Any, others: Any, *, values: int) -> None:
    if not isinstance(outputs, Tensor) or not isinstance(others, Tensor):
        kinds = " and ".join(type(each).__name__ for each in (outputs, others))
        raise UsageError(f"outputs must be tensors, not {kinds}: call torch.as_tensor on them")
    if outputs.shape != others.shape:
        raise UsageError(f"outputs of shapes {list(outputs.shape)} and {list(others.shape)} cannot be compared")
    if outputs.ndim > 3:  # [B, K, height, width], whose last axes are neither samples nor classes
        raise UsageError(
            f"outputs of shape {list(outputs.shape)} have too many axes: give [samples, values]; where values are on "
            "axis 1 and every pixel is a sample, outputs.movedim(1, -1).flatten(0, -2)"
        )
    if outputs.ndim < 2 or outputs.shape[-2] < 2 or outputs.shape[-1] < values:
        raise UsageError(
            f"outputs of shape {list(outputs.shape)} cannot be told apart: "
            f"give [samples, values] of at least 2 samples with {values} or more values each"
        )


def _variation(differences: Tensor) -> Tensor:
    """Mean total variation of differences between probabilities [..., B, K]: [...]."""
    return differences.abs().sum(dim=-1).mean(dim=-1) / 2


def _lengths(vectors: Tensor) -> Tensor:
    """Mean length of vectors [..., B, K]: [...]."""
    return vectors.square().sum(dim=-1).sqrt().mean(dim=-1)
