"""How a batch of a LightningModule is scored under review: with another solver, in eval mode, and without a trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere.adaptation.score import Score
from windermere.errors import (
    ToleranceError,
    UsageError,
)
from windermere.nn import ODEBlock, using
from windermere.nn.float64 import double_of
from windermere.nn.model_calls import evaluating
from windermere.nn.ode_block import ode_blocks
from windermere.solvers import Solver, counting

if TYPE_CHECKING:
    from pytorch_lightning import LightningModule

Scoring: TypeAlias = Callable[["LightningModule", Any], float | tuple[float, Any]]
"""A module and a batch to a value, or to a value and the outputs that it was taken from."""


def accuracy_and_logits(module: "LightningModule", batch: Any) -> tuple[float, Tensor]:
    """The share of a batch (x, y) whose class module(x) finds, and the logits [samples, K]; of logits [B, K, ...] every
    pixel is a sample."""
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise UsageError("AdaptPrecision scores batches of (x, y) by itself: for others give it a score(module, batch)")
    x, y = batch
    logits = module(x)
    if logits.ndim < 2 or logits.shape[1] < 2 or logits.argmax(dim=1).shape != y.shape:
        raise UsageError(
            "AdaptPrecision scores logits [B, K, ...] of labels [B, ...] by itself, not "
            f"{list(logits.shape)} of {list(y.shape)}: for others give it a score(module, batch)"
        )
    return float((logits.argmax(dim=1) == y).double().mean()), logits.movedim(1, -1).flatten(0, -2)


def is_one_sample(outputs: Any) -> bool:
    """Whether outputs [samples, values] are of one sample only."""
    return isinstance(outputs, Tensor) and outputs.ndim == 2 and len(outputs) == 1


def score_of_batch(module: "LightningModule", batch: Any, solver: Solver, score: Scoring) -> tuple[Score, Any]:
    """The score without a distance, and the outputs, or None where the user's score has none. In eval mode: a review
    must neither move running statistics nor draw the random numbers of dropout."""
    with using(module, solver), evaluating(module):
        try:
            return _count_and_score(module, batch, score)
        except ToleranceError:  # a check may ask for more than float32 resolves
            with _solving_in_double(module):
                return _count_and_score(module, batch, score)


def _count_and_score(module: "LightningModule", batch: Any, score: Scoring) -> tuple[Score, Any]:
    with counting() as count:
        found = score(module, batch)
    value, outputs = found if isinstance(found, tuple) else (found, None)
    return Score(value=float(value), steps=int(np.max(count.longest)), evaluations=int(np.max(count.checks))), outputs


@contextmanager
def _solving_in_double(module: torch.nn.Module) -> Iterator[None]:
    """The blocks only: a whole LightningModule holds on to its Trainer, which is nothing to copy."""
    blocks = ode_blocks(module)
    try:
        for block in blocks:
            block.forward = _through_double(block)  # type: ignore[assignment, method-assign]
        yield
    finally:
        for block in blocks:
            vars(block).pop("forward", None)


def _through_double(block: ODEBlock) -> Callable[[Any], Any]:
    twin = double_of(block)

    def forward(z: Any) -> Any:
        dtype = z[0].dtype if isinstance(z, tuple) else z.dtype
        return _cast(twin(_cast(z, torch.float64)), dtype)

    return forward


def _cast(z: Any, dtype: torch.dtype) -> Any:
    return tuple(part.to(dtype) for part in z) if isinstance(z, tuple) else z.to(dtype)
