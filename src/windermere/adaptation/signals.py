"""What steady controllers watch: how far a better solver moves the outputs, against how far the inputs move them.

A model that says nearly the same of every input is moved little by any solver; being measured against how much it says,
it is held to the same standard from the first iteration on.

Shapes: B samples, K classes, any leading axes (members of an ensemble).
"""

import torch
from torch import Tensor

from windermere.errors import UsageError

TINY = torch.finfo(torch.float64).tiny


def moved_mass(trained: Tensor, checked: Tensor) -> Tensor:
    """Share of the probability mass that changes class between two solvers' logits [..., B, K]: [...].

    This is the mean total variation, relative to how sure the model is. Where it is sure of its classes, 0.02 says that
    two percent of the mass lie elsewhere under the other solver; where it is not, two percent of what tells its inputs
    apart.
    """
    _refuse_too_few(trained, classes=2)
    before, after = trained.double().softmax(dim=-1), checked.double().softmax(dim=-1)
    told = _variation(before - before.mean(dim=-2, keepdim=True)) / (1 - 1 / trained.shape[-1])
    return _variation(after - before) / told.clamp(min=TINY)


def relative_distance(trained: Tensor, checked: Tensor) -> Tensor:
    """For regression: the mean distance between two solvers' outputs [..., B, K], over the outputs' own spread: [...].

    The spread is the mean distance of an output from the mean output, so 0.02 says that outputs lie two percent of it
    elsewhere under the other solver.
    """
    _refuse_too_few(trained, classes=1)
    trained, checked = trained.double(), checked.double()
    spread = _lengths(trained - trained.mean(dim=-2, keepdim=True))
    return _lengths(checked - trained) / spread.clamp(min=TINY)


def _refuse_too_few(outputs: Tensor, *, classes: int) -> None:
    samples, values = outputs.shape[-2:]
    if samples < 2 or values < classes:
        raise UsageError(
            f"outputs of {samples} samples with {values} values each cannot be told apart: "
            f"take at least 2 samples and {classes} values, in the shape [samples, values]"
        )


def _variation(differences: Tensor) -> Tensor:
    """Mean total variation of differences between probabilities [..., B, K]: [...]."""
    return differences.abs().sum(dim=-1).mean(dim=-1) / 2


def _lengths(vectors: Tensor) -> Tensor:
    """Mean length of vectors [..., B, K]: [...]."""
    return vectors.square().sum(dim=-1).sqrt().mean(dim=-1)
