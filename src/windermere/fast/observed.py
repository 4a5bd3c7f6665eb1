"""What a field does when it is called: which tensors it reads, and whether it could be replayed.

A call is watched below autograd. It can be replayed if it computes with tensors only: no random numbers, no number read
by the host or copied from it, nothing written that was there before, everything on one device.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from windermere._torch_private import DispatchMode, argument_of, name_of, pulled_back, written_by
from windermere.fast.cuts import Questions
from windermere.fast.fingerprint import Fingerprint, fingerprint
from windermere.fast.recipe import tensors_in
from windermere.fast.snapshot import take_snapshot
from windermere.fast.starts import as_laid
from windermere.solvers.adjoint import check_nothing_is_hidden

READING = frozenset(
    ("_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "unique", "_unique2", "allclose")
)
"""Operations whose result, or the shape of it, the host waits for."""
COPYING = frozenset(("_to_copy", "copy_", "copy", "_copy_from"))
HARMLESS = frozenset(("detach_", "requires_grad_", "_version"))


class NotReplayableError(Exception):
    """Why a field cannot be replayed."""


@dataclass(frozen=True)
class Observed:
    """A field that can be replayed, as far as its calls show."""

    fingerprint: Fingerprint
    reads: tuple[int, ...]
    """Which of the fingerprint's tensors a call reads."""


Rate = Callable[[Tensor, Tensor], Tensor]


def observe(field: Any, rate: Rate, t: Tensor, z: Tensor, *, graded: bool, inferring: bool = False) -> Observed:
    """Watch the field when this rate calls it, twice; a `NotReplayableError` where it could not be replayed.

    Where a gradient is wanted, one of the calls is on autograd's tape, as within a solve; where the solve is in
    inference mode, one of them is: both must give the same.
    """
    before = fingerprint(field)
    undo = take_snapshot(before.met)
    try:
        read, results = _watched_calls(field, before, rate, t.clone(), as_laid(z, z), (graded, inferring))
    except BaseException:
        undo()
        raise
    _check_same(*results)
    return Observed(before, _places(before.tensors, read))


def _watched_calls(
    field: Any, before: Fingerprint, rate: Rate, t: Tensor, z: Tensor, modes: tuple[bool, bool]
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that were read, and the rates."""
    watch, results = _watch((t, z)), []
    graded, inferring = modes
    for taped, mode in ((graded, False), (False, inferring)):
        z.requires_grad_(taped)
        state = z.view_as(z) if taped else z  # as a solve has it, no leaf
        with watch.questions, watch, torch.inference_mode(mode), torch.set_grad_enabled(taped):
            k = rate(t, state)
        if watch.refused:  # a field may catch it, as it does other exceptions
            raise NotReplayableError(watch.refused)
        results.append(k.detach())
        if fingerprint(field).key != before.key:
            raise NotReplayableError("a call changes the field itself (such as a counter of evaluations)")
    return watch.external, results


def check_alone(rate: Rate, t: Tensor, z: Tensor, reads: Sequence[Tensor], *, graded: bool) -> set[int]:
    """Watch a rate, and its gradient where one is wanted: it may depend on these tensors, and no other. Returns the
    places of those that get a gradient."""
    t, z = t.clone(), z.detach().clone().requires_grad_(graded)
    watch = _watch((t, z))
    wanted = [k for k, x in enumerate(reads) if x.requires_grad]
    found: Sequence[Tensor | None] = [None] * (1 + len(wanted))
    with watch, torch.set_grad_enabled(graded):
        rates = rate(t, z)
        if rates.requires_grad:
            leaves = [z, *(reads[k] for k in wanted)]
            check_nothing_is_hidden(rates, leaves)
            found = pulled_back([rates], leaves, [torch.ones_like(rates)])
    known = {_memory(x) for x in reads}
    if any(_memory(x) not in known for x in watch.external):
        raise NotReplayableError("it hands a tensor of its own to a function that PyTorch does not show")
    return {k for k, given in zip(wanted, found[1:], strict=True) if given is not None}


def _check_same(first: Tensor, second: Tensor) -> None:
    """Up to rounding: sums on a GPU may be taken in any order."""
    unit = 1000 * torch.finfo(first.dtype).eps
    if not torch.allclose(first, second, rtol=unit, atol=unit * float(first.abs().max()), equal_nan=True):
        raise NotReplayableError("two calls of it, or calls with and without a gradient, do not give the same")


def _places(tensors: Sequence[Tensor], read: Sequence[Tensor]) -> tuple[int, ...]:
    """Which of the tensors were read: these very ones, or others in their memory."""
    by_identity = {id(x): k for k, x in enumerate(tensors)}
    found: set[int] = set()
    for x in read:
        own = [by_identity[id(x)]] if id(x) in by_identity else []
        own = own or [k for k, other in enumerate(tensors) if _memory(other) == _memory(x)]
        if not own:
            raise NotReplayableError("it reads a tensor that is no attribute of it")
        found.update(own)
    return tuple(sorted(found))


def _watch(given: Sequence[Tensor]) -> Any:
    if DispatchMode is None:
        raise NotReplayableError("this PyTorch does not show what a field does")

    class Watch(DispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.external: list[Tensor] = []
            self.alive = list(given)
            """Whatever was met, so that no other tensor takes its identity or its memory."""
            self.own = {_memory(x) for x in given}
            """Where tensors lie that were made on the way, or given."""
            self.kept = set(self.own)
            """Where tensors lie that are there after the call, too."""
            self.device = given[0].device
            self.refused = ""
            """Why, where something was refused."""
            self.questions = Questions(lambda x: _memory(x) in self.own, self.refuse)

        def refuse(self, reason: str) -> NoReturn:
            self.refused = reason
            raise NotReplayableError(reason)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            name, _ = name_of(func)
            if (reason := _why_not(func, name, args, named)) is not None:
                self.refuse(reason)
            inputs = list(tensors_in((args, named)))
            self._meet(inputs)
            if name not in HARMLESS and any(_memory(x) in self.kept for x in _written(func, args, named)):
                self.refuse(f"it changes a tensor in place ({name})")
            result = func(*args, **named)
            outputs = list(tensors_in(result))
            self.alive += outputs
            self.own.update(_memory(x) for x in outputs if _memory(x) not in self.kept)
            self._check_devices(name, inputs, outputs)
            return result

        def _meet(self, inputs: Sequence[Tensor]) -> None:
            for x in inputs:
                if _memory(x) in self.own or not x.numel():
                    continue
                if x.device != self.device:
                    self.refuse(f"it reads a tensor on {x.device}, not on {self.device}")
                self.external.append(x)
                self.alive.append(x)
                self.kept.add(_memory(x))

        def _check_devices(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
            """Numbers of the host may be used as single ones, which are part of what is replayed."""
            if all(x.device != self.device for x in outputs):
                if outputs and any(x.device == self.device for x in inputs):
                    self.refuse("it brings numbers to the host")
            elif any(x.device != self.device and (x.ndim or name in COPYING) for x in inputs):
                self.refuse("it brings numbers from the host")

    return Watch()


def _why_not(func: Any, name: str, args: Sequence[Any], named: dict[str, Any]) -> str | None:
    """Why an operation cannot be replayed."""
    if torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args, named):
        return f"it draws random numbers ({name})"
    if name in READING or torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        return f"the host reads numbers ({name})"
    return None


def _draws(func: Any, args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether an operation that might draw random numbers does: attention without dropout does not."""
    return bool(argument_of(func, "dropout_p", args, named) != 0.0)


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _written(func: Any, args: Sequence[Any], named: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes to."""
    for place, name in written_by(func):
        yield from tensors_in(args[place] if place < len(args) else named.get(name))
