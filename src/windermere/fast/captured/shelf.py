"""What was captured, and what is known of solves of one kind: kept within bounds, and let go with its field."""

import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock

import torch
from torch import Tensor

from windermere.fast.captured.adjoint import AdjointStation
from windermere.fast.captured.recording import is_capturing
from windermere.fast.captured.walks import Station

MOST_STATIONS = 16
"""Captures that are kept; the one that was used longest ago goes first."""
MOST_KNOWN = 128
SHARE = 8
"""Captures on one device may take so large a part of its memory: an eighth."""


@dataclass
class Known:
    """What is known of solves of one kind."""

    solves: int = 0
    captures: int = 0
    served: int = 0
    """Solves since the last capture that took it."""
    why_not: str | None = None


@dataclass(frozen=True, eq=False)
class Captured:
    """A capture."""

    station: Station | AdjointStation
    places: tuple[int, ...]
    """Which tensors of its fingerprint the field reads."""
    graded: tuple[int, ...]
    """Which of these get gradients."""
    known: Known


class Shelf:
    """Captures by what they are of, the one used last at the end."""

    def __init__(self) -> None:
        self.captures: OrderedDict[Hashable, Captured] = OrderedDict()
        self.known: OrderedDict[Hashable, Known] = OrderedDict()
        self.owners: dict[int, set[Hashable]] = {}
        """By the identity of a tensor that is read where it lies: the captures that read it."""
        self.gone: deque[int] = deque()
        """Such tensors that are no more."""
        self.lock, self.users = RLock(), 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """For one thread at a time."""
        with self.lock:
            self._sweep()
            self.users += 1
            try:
                yield
            finally:
                self.users -= 1

    def find(self, key: Hashable) -> Captured | None:
        captured = self.captures.get(key)
        if captured is not None:
            self.captures.move_to_end(key)
            captured.known.served += 1
        return captured

    def known_of(self, key: Hashable) -> Known:
        known = self.known.setdefault(key, Known())
        self.known.move_to_end(key)
        while len(self.known) > MOST_KNOWN:
            self.known.popitem(last=False)
        return known

    def keep(self, key: Hashable, captured: Captured, tensors: Sequence[Tensor]) -> None:
        """Until one of these tensors is gone."""
        self.captures[key] = captured
        for tensor in tensors:
            if id(tensor) not in self.owners:
                weakref.finalize(tensor, self._forget, id(tensor)).atexit = False
            self.owners.setdefault(id(tensor), set()).add(key)
        while len(self.captures) > MOST_STATIONS or (len(self.captures) > 1 and self._is_heavy(captured.station)):
            self._drop(next(iter(self.captures)))

    def clear(self) -> None:
        for key in list(self.captures):
            self._drop(key)
        if _has_cuda():
            torch.cuda.empty_cache()

    def _is_heavy(self, newest: Station | AdjointStation) -> bool:
        device = newest.device
        if device.type != "cuda":
            return False
        total = sum(c.station.size for c in self.captures.values() if c.station.device == device)
        return total > torch.cuda.get_device_properties(device).total_memory // SHARE

    def _drop(self, key: Hashable) -> None:
        captured = self.captures.pop(key, None)
        for keys in self.owners.values():
            keys.discard(key)
        if captured is not None:
            captured.station.leave()

    def _forget(self, tensor: int) -> None:
        """The garbage collector calls this, at any moment and in any thread: even while something is captured, when
        nothing of CUDA's may be freed."""
        self.gone.append(tensor)
        if self.lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self.lock.release()

    def _sweep(self) -> None:
        if self.users or not self.gone or is_capturing():
            return
        while self.gone:
            for key in self.owners.pop(self.gone.popleft(), ()):
                self._drop(key)


def _has_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
