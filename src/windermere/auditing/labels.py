"""Labels that accuracy can read: one class for each sample, counted from 0. Anything else gets a sentence."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.errors import UsageError

OTHERWISE = "for a regression take metric='mse', and without labels leave them out"


def check_classes(outputs: Tensor, labels: Any) -> None:
    """Every label is whole, finite and the number of one of the K outputs (0 or 1 for a single logit)."""
    if sum(length > 1 for length in outputs.shape[1:]) > 1:
        raise UsageError(
            "accuracy needs one row of outputs for each sample, but those of a sample have shape "
            f"{tuple(outputs.shape[1:])}: return the last time only, or whatever decides the class; {OTHERWISE}"
        )
    values = _numbers(labels)
    if values.size != len(outputs):
        raise UsageError(
            f"accuracy needs one class for each of {len(outputs)} samples, but the labels have shape "
            f"{tuple(values.shape)}: {OTHERWISE}"
        )
    lost = int((~np.isfinite(values)).sum())
    if lost:
        raise UsageError(f"{lost} of {values.size} labels are not finite: leave those samples out")
    broken = values[values != np.round(values)]
    if broken.size:
        raise UsageError(f"labels must be whole numbers, the classes, but there is a {broken.flat[0]:g}: {OTHERWISE}")
    _check_range(values, outputs)


def _numbers(labels: Any) -> np.ndarray[Any, Any]:
    values = np.asarray(labels.detach().cpu().double() if isinstance(labels, Tensor) else labels)
    if values.dtype.kind not in "biuf":
        raise UsageError(
            f"accuracy needs labels that are numbers, but there is {str(values.flat[0])!r}: number the classes from 0, "
            "or give a metric=... (and its threshold=...) that reads them"
        )
    return values.astype(np.float64)


def _check_range(values: np.ndarray[Any, Any], outputs: Tensor) -> None:
    count = outputs[0].numel()
    classes = max(2, count)
    low, high = int(values.min()), int(values.max())
    if low >= 0 and high < classes:
        return
    several = f"{count} outputs are the classes 0 to {count - 1}"
    known = "a single output, a logit, has the classes 0 and 1" if count == 1 else several
    advice = _advice(values, low, high, classes)
    if count == 1 and bool((outputs == outputs.round()).all()):
        advice = "these are whole numbers, like classes: return the scores of all classes, before argmax"
    raise UsageError(f"labels go from {low} to {high}, but {known}: {advice}; {OTHERWISE}")


def _advice(values: np.ndarray[Any, Any], low: int, high: int, classes: int) -> str:
    if set(np.unique(values)) <= {-1.0, 1.0}:
        return "make -1 and 1 into 0 and 1, by (labels + 1) / 2"
    if high - low < classes:
        return f"{'subtract' if low > 0 else 'add'} {abs(low)} so that they begin with 0"
    return "number the classes from 0, without gaps"


def as_classes(labels: Any) -> Tensor:
    """[n], of labels that were checked."""
    return torch.as_tensor(labels).flatten().long()
