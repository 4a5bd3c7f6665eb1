"""A recording without a GPU: a list of operations on tensors that stay where they are, as a CUDA graph is one.

Whatever Python did on the way (attributes, branches, numbers) is part of the list as it was; only the contents of
tensors are read anew. So a stale capture is as stale on a CPU as it would be on a GPU.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from windermere.fast.captured.recording import Recording
from windermere.fast.recipe import tensors_in

_recording: list["Tape"] = []


def note(work: Callable[..., None], *given: Any) -> None:
    """Do some work that is no operation of PyTorch's; it is done again with the tape that is being recorded."""
    work(*given)
    if _recording:
        _recording[-1].operations.append((work, given, {}, None))


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes down the operations of some work, and does them again."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        with self:
            _recording.append(self)
            try:
                work()
            finally:
                _recording.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, result in self.operations:
            again = func(*args, **kwargs)
            given = {_memory(x) for x in tensors_in((args, kwargs))}
            for old, new in zip(tensors_in(result), tensors_in(again), strict=True):
                if old.numel() and _memory(old) not in given:  # neither a view nor written in place
                    old.copy_(new)


def record_on_tape(recordings: Sequence[Recording], device: torch.device, reset: Callable[[], None]) -> None:
    """As `record` does on a GPU, by all ways to do several at once."""
    for recording in recordings:
        work = recording.work
        assert work is not None
        reset()
        work()
        reset()
        recording.graph = cast(Any, Tape(work))
        for times, way in zip(recording.at_once, cycle(recording.ways), strict=False):
            reset()
            recording.several[times] = cast(Any, Tape(partial(way, times)))
        recording.let_go()


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
