"""What a field does when it is called: which tensors it reads, and whether it could be replayed.

A call is watched below autograd. It can be replayed if it computes with tensors only: no random numbers, no number read
by the host, nothing written that was there before, everything on one device.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from windermere._torch_private import DispatchMode, name_of, written_by
from windermere.fast.fingerprint import Fingerprint, UnknownFieldError, fingerprint

READING = frozenset(
    ("_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "unique", "_unique2", "allclose")
)
"""Operations whose result, or the shape of it, the host waits for."""
HARMLESS = frozenset(("detach_", "requires_grad_", "_version"))


class NotReplayableError(Exception):
    """Why a field cannot be replayed."""


@dataclass(frozen=True)
class Observed:
    """A field that can be replayed."""

    fingerprint: Fingerprint
    reads: tuple[int, ...]
    """Which of the fingerprint's tensors a call reads."""


def observe(field: Any, rate: Callable[[Tensor, Tensor], Tensor], t: Tensor, z: Tensor) -> Observed:
    """Watch the field when this rate calls it, twice; a `NotReplayableError` where it could not be replayed."""
    if DispatchMode is None:
        raise NotReplayableError("this PyTorch does not show what a field does")
    before = _fingerprint(field)
    with _watching((t, z)) as watch:
        first, second = rate(t, z), rate(t, z)
    if _fingerprint(field).key != before.key:
        raise NotReplayableError("a call changes the field itself (such as a counter of evaluations)")
    if not torch.equal(first, second):
        raise NotReplayableError("it is not deterministic")
    places = {id(x): k for k, x in reversed(list(enumerate(before.tensors)))}
    memory = {(x.data_ptr(), x.numel()): k for k, x in reversed(list(enumerate(before.tensors)))}
    reads = {places.get(id(x), memory.get((x.data_ptr(), x.numel()))) for x in watch.external}
    if None in reads:
        raise NotReplayableError("it reads a tensor that is no attribute of it")
    return Observed(before, tuple(sorted(k for k in reads if k is not None)))


def _fingerprint(field: Any) -> Fingerprint:
    try:
        return fingerprint(field)
    except UnknownFieldError as error:
        raise NotReplayableError(str(error)) from error


def _watching(given: Sequence[Tensor]) -> Any:
    class Watch(DispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.external: list[Tensor] = []
            self.own: dict[int, Tensor] = {id(x): x for x in given}
            """Tensors that were made on the way, or given, by their identity; held, so that no other takes it."""
            self.kept = {_memory(x) for x in given}
            """Where tensors lie that are there after the call, too."""
            self.devices = {x.device for x in given}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self._check(func, args, kwargs or {})
            result = func(*args, **(kwargs or {}))
            for x in _tensors(result):
                self.own[id(x)] = x
                if x.numel() and x.is_cpu and any(d.type == "cuda" for d in self.devices):
                    raise NotReplayableError("it brings numbers to the host")
            return result

        def _check(self, func: Any, args: Any, named: dict[str, Any]) -> None:
            name, _ = name_of(func)
            if torch.Tag.nondeterministic_seeded in func.tags:
                raise NotReplayableError(f"it draws random numbers ({name})")
            if name in READING or torch.Tag.data_dependent_output in func.tags:
                raise NotReplayableError(f"the host reads numbers ({name})")
            for x in _tensors((args, named)):
                if id(x) not in self.own:
                    self.own[id(x)] = x
                    self.external.append(x)
                    self.kept.add(_memory(x))
                    self.devices.add(x.device)
            if name not in HARMLESS and any(_memory(x) in self.kept for x in _written(func, args, named)):
                raise NotReplayableError(f"it changes a tensor in place ({name})")

    return Watch()


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _written(func: Any, args: Sequence[Any], named: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes to."""
    for place, name in written_by(func):
        yield from _tensors(args[place] if place < len(args) else named.get(name))


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple | list):
        for x in given:
            yield from _tensors(x)
    elif isinstance(given, dict):
        for x in given.values():
            yield from _tensors(x)
