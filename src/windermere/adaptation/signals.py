"""What steady controllers watch: how far a better solver moves the outputs, against how far the inputs move them, or
against how far they are from their targets.

A model that says nearly the same of every input is moved little by any solver; being measured against how much it says,
it is held to the same standard from the first iteration on.

Shapes: B samples, K classes or values; before them, only where that is said, S members of an ensemble.
"""

from typing import Any

import torch
from torch import Tensor

from windermere.errors import UsageError

ROUNDING = 1e-12
LEAST_TOLD = 1e-3
"""A model that says less than this of its inputs is not held to it: nothing is divided by less."""
RESOLVED = 1e-6
"""A model whose error is below this share of its outputs is exact, as far as float32 can tell."""


def moved_mass(trained: Tensor, checked: Tensor, *, members: bool = False) -> Tensor:
    """Share of the predicted probability that changes class between two solvers: the distance for classifiers.

    `trained` and `checked` are the logits of the training and the check solver, [samples, classes]; a number is
    returned. With `members=True` they are an ensemble's, [members, samples, classes], and there is one for each member.

    This is the mean total variation, relative to how sure the model is. Where it is sure of its classes, 0.02 says that
    two percent of the mass lie elsewhere under the other solver; where it is not, two percent of what tells its inputs
    apart: their spread around the mean prediction, over that of a sure model with the same mean.

    >>> import torch
    >>> import windermere as wm
    >>> logits = torch.tensor([[9.0, -9.0], [-9.0, 9.0], [-9.0, 9.0], [9.0, -9.0]])
    >>> changed = torch.cat([-logits[:1], logits[1:]])
    >>> round(float(wm.moved_mass(logits, changed)), 3)  # one of four samples changes its class
    0.25
    """
    _check_outputs(trained, checked, members, values=2)
    before, after = trained.double().softmax(dim=-1), checked.double().softmax(dim=-1)
    mean = before.mean(dim=-2, keepdim=True)
    spread, sure = _variation(before - mean), (mean * (1 - mean)).sum(dim=(-2, -1))
    told = (spread + ROUNDING) / (sure + ROUNDING)
    return _variation(after - before) / told.clamp(min=LEAST_TOLD)


def relative_distance(trained: Tensor, checked: Tensor, *, members: bool = False) -> Tensor:
    """The mean distance between two solvers' outputs, relative to their own spread: the distance for regressions.

    `trained` and `checked` are the outputs of the training and the check solver, [samples, values]; a number is
    returned. With `members=True` they are an ensemble's, [members, samples, values], and there is one for each member.
    Outputs with more axes, such as time series, are made into vectors first: see the sentence that refuses them.

    The spread is the mean distance of an output from the mean output, so 0.02 says that outputs lie two percent of it
    elsewhere under the other solver.

    >>> import torch
    >>> import windermere as wm
    >>> outputs = torch.tensor([[-1.0], [1.0]])
    >>> round(float(wm.relative_distance(outputs, outputs + 0.02)), 3)
    0.02
    """
    _check_outputs(trained, checked, members, values=1)
    trained, checked = trained.double(), checked.double()
    spread, size = _lengths(trained - trained.mean(dim=-2, keepdim=True)), _lengths(trained)
    return _lengths(checked - trained) / torch.maximum(spread, LEAST_TOLD * size + ROUNDING)


def error_ratio(trained: Tensor, checked: Tensor, targets: Tensor | None = None, *, members: bool = False) -> Tensor:
    """The distance between two solvers' outputs, relative to the model's own error: the distance for regressions whose
    error no other solver shall multiply.

    `trained` and `checked` are the outputs of the training and the check solver, and `targets` what they should be, all
    of the same shape, with any number of axes; a number is returned, the quotient of two root mean squares. Without
    `targets` the outputs are residuals already: outputs minus targets. With `members=True` the first axis is that of an
    ensemble's members, and there is a number for each.

    A ratio of r says that the error under the check solver is between 1 - r and 1 + r times the model's own. So with
    target=0.25, a steady controller ends with a model whose error under the flow is at most about 1.25 times its own.

    >>> import torch
    >>> import windermere as wm
    >>> targets = torch.zeros(10, 1)
    >>> round(float(wm.error_ratio(targets + 2, targets + 3, targets)), 6)  # an error of 2, and 1 more under the check
    0.5
    """
    _check_alike(trained, checked)
    if targets is not None and getattr(targets, "shape", None) != trained.shape:  # or others would be subtracted
        shape = getattr(targets, "shape", None)
        given = type(targets).__name__ if shape is None else f"targets of shape {list(shape)}"
        raise UsageError(f"outputs of shape {list(trained.shape)} need targets of the same shape, not {given}")
    before, after = trained.double(), checked.double()
    error = _size(before if targets is None else before - targets.double(), members)
    if targets is not None:
        error = torch.maximum(error, RESOLVED * _size(before, members))
    return _size(after - before, members) / (error + ROUNDING)


def _size(values: Tensor, members: bool) -> Tensor:
    """The root mean square of all entries; with `members`, of those of each along the first axis."""
    return values.square().flatten(1).mean(dim=1).sqrt() if members else values.square().mean().sqrt()


def _check_alike(outputs: Any, others: Any) -> None:
    if not isinstance(outputs, Tensor) or not isinstance(others, Tensor):
        kinds = " and ".join(type(each).__name__ for each in (outputs, others))
        raise UsageError(f"outputs must be tensors, not {kinds}: call torch.as_tensor on them")
    if outputs.shape != others.shape:
        raise UsageError(f"outputs of shapes {list(outputs.shape)} and {list(others.shape)} cannot be compared")


def _check_outputs(outputs: Any, others: Any, members: bool, *, values: int) -> None:
    _check_alike(outputs, others)
    shape = "[members, samples, values]" if members else "[samples, values]"
    if outputs.ndim > 2 + members:  # whose last axes may be neither samples nor values: pixels, times
        raise UsageError(
            f"outputs of shape {list(outputs.shape)} have too many axes to know which are the samples: give {shape}; "
            f"{_ways(members, values)}"
        )
    if outputs.ndim < 2 + members or outputs.shape[-2] < 2 or outputs.shape[-1] < values:
        raise UsageError(
            f"outputs of shape {list(outputs.shape)} cannot be told apart: "
            f"give {shape} of at least 2 samples with {values} or more values each"
        )


def _ways(members: bool, values: int) -> str:
    """How outputs with more axes become what is asked for. A series of values is one vector; a class is decided each
    time, so times and pixels are samples."""
    if members:
        return "flatten the axes of the values into one"
    ways = "[samples, values, pixels] becomes that by outputs.movedim(1, -1).flatten(0, -2)"
    if values == 1:
        ways = "[samples, times, values] becomes that by outputs.flatten(1), and [times, samples, values], as solves "
        ways += "return it, by outputs.movedim(1, 0).flatten(1)"
    return f"{ways}; an ensemble's [members, samples, values] need members=True"


def _variation(differences: Tensor) -> Tensor:
    """Mean total variation of differences between probabilities [..., B, K]: [...]."""
    return differences.abs().sum(dim=-1).mean(dim=-1) / 2


def _lengths(vectors: Tensor) -> Tensor:
    """Mean length of vectors [..., B, K]: [...]."""
    return vectors.square().sum(dim=-1).sqrt().mean(dim=-1)
