"""What every data set looks like, wherever it comes from."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from windermere.errors import UsageError


class _Pair(NamedTuple):
    inputs: Tensor
    """float32, [n, ...]"""
    labels: Tensor
    """int64, [n]"""


class Split(_Pair):
    """Samples and their classes: the pair (inputs, labels) that audits and trainings take."""

    __slots__ = ()

    def __new__(cls, inputs: Tensor, labels: Tensor) -> "Split":
        if inputs.dtype != torch.float32 or labels.dtype != torch.int64:
            raise UsageError(f"a split has float32 inputs and int64 labels, not {inputs.dtype} and {labels.dtype}")
        if labels.shape != inputs.shape[:1]:
            raise UsageError(
                f"a split has one label per input, not labels of shape {tuple(labels.shape)} "
                f"for inputs of shape {tuple(inputs.shape)}"
            )
        return super().__new__(cls, inputs, labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """What a model is trained on, and what it is tested on."""

    name: str
    train: Split
    test: Split
    classes: int
    """Labels are 0 ... classes - 1."""
