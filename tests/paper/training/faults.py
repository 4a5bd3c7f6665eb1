"""Devices that fail in the middle of a training: errors as PyTorch raises them, at the n-th call of a function."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch

from windermere.paper.training.captured import CapturedSteps

ACCELERATOR: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)
LOST: list[RuntimeError] = [
    ACCELERATOR("CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported\n"),
    RuntimeError("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
]
FULL: list[BaseException] = [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free"),
    ACCELERATOR("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"),
    MemoryError(),
]


@contextmanager
def failing(owner: Any, name: str, call: int, error: BaseException, *, after: bool = False) -> Iterator[None]:
    """That call of a function raises, before or after it has done its work; so do all that follow, as on a lost
    device."""
    real, calls = getattr(owner, name), 0

    def fails(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < call:
            return real(*given, **named)
        if after and calls == call:
            real(*given, **named)
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fails)
        yield


class Replayed:
    """Stands for a CUDA graph: the step as it is written, by way of `replay`."""

    def __init__(self, steps: CapturedSteps) -> None:
        self.steps = steps

    def replay(self) -> None:
        self.steps.last = self.steps.step()


def captured_as_written(steps: CapturedSteps) -> None:
    """A capture without a GPU."""
    steps._warm_up()
    steps.graph = cast(Any, Replayed(steps))
