"""Which samples an audit looks at: a stated random subsample, or all of them, streamed batch by batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere.errors import UsageError

Batch: TypeAlias = tuple[Any, Any]
"""Inputs and labels."""
VALUES_AT_ONCE = 500_000


@dataclass(frozen=True)
class Chosen:
    batches: Iterable[Batch]
    population: str


def choose(batches: Any, samples: int | None, seed: int) -> Chosen:
    """`samples` at random from all batches (None: all of them), as batches of a size that fits."""
    given = [batches] if isinstance(batches, tuple) and len(batches) == 2 else batches
    if samples is None:
        return Chosen((piece for batch in given for piece in _pieces(batch)), "all that were given")
    kept, seen = _draw(given, samples, seed)
    population = "all that were given" if seen <= samples else f"a random subsample of {seen}, seed {seed}"
    return Chosen(list(_pieces(kept)), population)


def _draw(batches: Iterable[Batch], samples: int, seed: int) -> tuple[Batch, int]:
    """One pass, keeping the samples with the smallest random keys so far: memory does not grow with the data."""
    generator = np.random.default_rng(seed)
    x: Any = None
    y: Any = None
    keys, seen = np.zeros(0), 0
    for batch in batches:
        inputs, labels = _checked(batch)
        seen += len(labels)
        keys = np.concatenate([keys, generator.random(len(labels))])
        x = inputs if x is None else _concatenate(x, inputs)
        y = labels if y is None else _concatenate(y, labels)
        if len(keys) > samples:
            best = np.sort(np.argpartition(keys, samples)[:samples])
            keys, x, y = keys[best], x[best], y[best]
    if seen == 0:
        raise UsageError("an audit needs samples, but there are none in the batches given")
    return (x, y), seen


def _checked(batch: Any) -> Batch:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise UsageError("batches must be pairs of inputs and labels (one pair, or an iterable of pairs)")
    inputs, labels = batch
    if len(inputs) != len(labels):
        raise UsageError(f"a batch has {len(inputs)} inputs but {len(labels)} labels")
    return inputs, labels


def _concatenate(one: Any, other: Any) -> Any:
    if isinstance(one, Tensor):
        return torch.cat([one, other])
    return np.concatenate([np.asarray(one), np.asarray(other)])


def _pieces(batch: Any) -> Iterator[Batch]:
    inputs, labels = _checked(batch)
    size = max(1, min(1000, VALUES_AT_ONCE // max(1, int(np.prod(inputs.shape[1:])))))
    for start in range(0, len(labels), size):
        yield inputs[start : start + size], labels[start : start + size]
