"""What every data set looks like, wherever it comes from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from windermere.errors import UsageError


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Samples and their classes."""

    inputs: Tensor
    """float32, [n, ...]"""
    labels: Tensor
    """int64, [n]"""

    def __post_init__(self) -> None:
        if self.inputs.dtype != torch.float32 or self.labels.dtype != torch.int64:
            found = f"{self.inputs.dtype} and {self.labels.dtype}"
            raise UsageError(f"a split has float32 inputs and int64 labels, not {found}")
        if self.labels.shape != self.inputs.shape[:1]:
            raise UsageError(
                f"a split has one label per input, not labels of shape {tuple(self.labels.shape)} "
                f"for inputs of shape {tuple(self.inputs.shape)}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """What a model is trained on, and what it is tested on."""

    name: str
    train: Split
    test: Split
    classes: int
    """Labels are 0 ... classes - 1."""
