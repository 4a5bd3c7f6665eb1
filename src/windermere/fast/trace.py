"""What a field computes: all operations of one call are watched, and made into a row program (program.py).

The watcher sees operations below autograd, so that a field which takes derivatives itself (exact traces, Hamiltonians)
is a program like any other. A call that is not row-wise, reads numbers, draws some or changes tensors has no program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from windermere._torch_private import DispatchMode, name_of
from windermere.fast import aten, cells
from windermere.fast.cells import UnknownRowError
from windermere.fast.cuts import Cuts, read_by
from windermere.fast.known_cells import CONSTANT, KnownCells
from windermere.fast.program import CONSTANTS, STATE, TIME, Columns, Op, Program
from windermere.fast.recipe import Placeholder, Recipe, mapped, tensors_in

Rate: TypeAlias = Callable[[Tensor, Tensor], Tensor]
MOST_OPERATIONS = 2000
HERE = torch.device("cpu")
"""Where cells are, whatever the default device."""


class DeclinedError(Exception):
    """Why a field has no program."""


@dataclass(frozen=True)
class Trace:
    """A program, the tensors that the field refers to, and how the program's external ones are made of these."""

    program: Program
    roots: tuple[Tensor, ...]
    recipe: Recipe


def trace(rate: Rate, t: Tensor, z: Tensor) -> Trace:
    """The program of a rate, watched at this time and state [samples, points]."""
    if DispatchMode is None:
        raise DeclinedError("this PyTorch shows no operations")
    with HERE:
        recorder = _Recorder(t, z)
    with recorder.cuts, _watching(recorder):
        k = rate(t, z)
    with HERE:
        return recorder.finished(k)


def _watching(recorder: "_Recorder") -> Any:
    class Watch(DispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return recorder.carry_out(func, args, kwargs or {})

    return Watch()


class _Recorder:
    def __init__(self, t: Tensor, z: Tensor) -> None:
        self.dtype, self.shape = z.dtype, z.shape
        self.known = KnownCells(t, z)
        self.made: dict[int, tuple[Any, Any, Any, int | None]] = {}
        """How a tensor without a row in it was made, by its identity."""
        self.reasons: list[str] = []
        self.operations = 0
        self.declined = ""
        """Why, where an operation was refused."""
        self.written: set[int] = set()
        """Places of tensors that were written to."""
        self.cuts = Cuts(self.is_own, self.refuse)
        self.given = {self.known.place(t), self.known.place(z)}
        self.starts = id(t), id(z)

    def carry_out(self, func: Any, args: Any, named: Any) -> Any:
        """Watch one operation."""
        name, writes = name_of(func)
        with HERE:
            self.before(func, name, writes, args, named)
        result = func(*args, **named)
        with HERE:
            if name not in aten.FILLING:
                self.cuts.look(name, args, result)
            self.after(func, name, writes, args, named, result)
        return result

    def is_own(self, tensor: Tensor) -> bool:
        """Whether the field was given this tensor, or has made it."""
        return id(tensor) in self.made or id(tensor) in self.starts

    def refuse(self, reason: str) -> NoReturn:
        self.declined = reason  # a field may catch it, as it does other exceptions
        raise DeclinedError(reason)

    def before(self, func: Any, name: str, writes: bool, args: Any, named: Any) -> None:
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            self.refuse("it has too many operations")
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.refuse(f"it draws random numbers ({name})")
        if self.known.standing(read_by(func, name, args)) != CONSTANT:
            self.refuse(f"it reads numbers from tensors ({name})")
        if writes and (not name.endswith("_") or named.get("out") is not None):
            self.refuse(f"it writes to tensors ({name})")
        if writes and name not in ("detach_", "requires_grad_"):
            place = self.known.place(args[0])
            if place in self.given or any(self.known.place(x) == place for x in self.known.externals.values()):
                self.refuse(f"it changes a tensor that it is given, or refers to ({name})")
            self.written.add(place)

    def after(self, func: Any, name: str, writes: bool, args: Any, named: Any, result: Any) -> None:
        if name in ("detach_", "requires_grad_", *aten.READING):
            return
        if name == "lift_fresh" and args[0] not in self.known:
            self.cuts.look_at_entries()
        try:
            found = self.known.of_result(func, name, writes, args, named, result)
        except UnknownRowError as error:
            self.reasons.append(f"{name}: {error}")
            found = mapped(result, lambda x: torch.full(x.shape, cells.cell(cells.LOST)))
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            self.reasons.append(f"{name}: {type(error).__name__}")
            found = mapped(result, lambda x: torch.full(x.shape, cells.cell(cells.LOST)))
        if writes:
            self.known.of(args[0]).copy_(found)
            return
        several = not isinstance(result, Tensor)
        for k, (tensor, its) in enumerate(zip(tensors_in(result), tensors_in(found), strict=True)):
            if tensor not in self.known or name != "lift_fresh":
                self.known.remember(tensor, its)
            self.made[id(tensor)] = func, args, named, k if several else None

    def finished(self, k: Any) -> Trace:
        """The program whose result this is."""
        if self.declined:
            raise DeclinedError(self.declined)
        if not isinstance(k, Tensor) or (k.shape, k.dtype) != (self.shape, self.dtype):
            raise DeclinedError("its result is not of the state's shape")
        for how, tensor in self.cuts.read:
            if self.known.standing([tensor]) != CONSTANT:
                raise DeclinedError(f"it reads numbers from tensors ({how})")
        if self.cuts.found:
            raise DeclinedError(f"it keeps gradients from what it computes ({self.cuts.found})")
        found = self.known.of(k)
        samples, own = found & cells.SAMPLE, torch.arange(1, len(found) + 1).unsqueeze(1)
        pattern = found & ~cells.SAMPLE
        if not bool(((samples == 0) | (samples == own)).all()) or not bool((pattern == pattern[:1]).all()):
            raise DeclinedError("its result is not row-wise")
        try:
            rate = tuple(self.known.builder.pieces(pattern[0]))
        except UnknownRowError as error:
            raise DeclinedError("; ".join(self.reasons[:3]) or str(error)) from error
        return self._pruned(rate)

    def _pruned(self, rate: tuple[Columns, ...]) -> Trace:
        """The program of what the result depends on, with its values numbered one after the other."""
        needed: set[int] = set()
        ahead = [piece.value for piece in rate]
        while ahead:
            if (value := ahead.pop()) in needed:
                continue
            needed.add(value)
            if (op := self.known.builder.ops.get(value)) is not None:
                ahead += [c.value for c in op.takes] + ([op.matrix.value] if op.matrix else [])
        externals = [v for v in self.known.externals if v in needed]
        ops = [v for v in self.known.builder.ops if v in needed]
        numbers = {v: k for k, v in enumerate([TIME, STATE, CONSTANTS, *externals, *ops])}
        final = tuple(piece._replace(value=numbers[piece.value]) for piece in rate)
        listed: tuple[Op, ...] = tuple(self.known.builder.ops[v].with_values(numbers.__getitem__) for v in ops)
        sizes = tuple(self.known.externals[v].numel() for v in externals)
        program = Program(self.shape[1], tuple(self.known.builder.constants), sizes, listed, final)
        recipe, roots = self._recipe([self.known.externals[v] for v in externals], program.compared)
        return Trace(program, roots, recipe)

    def _recipe(self, wanted: Sequence[Tensor], compared: frozenset[int]) -> tuple[Recipe, tuple[Tensor, ...]]:
        """How these tensors are made, and what of."""
        if any(x.dtype != self.dtype for x in wanted):
            raise DeclinedError("it refers to tensors of another dtype")
        roots: list[Tensor] = []
        order: list[Tensor] = []

        def visit(x: Tensor) -> None:
            if any(x is y for y in (*roots, *order)):
                return
            if id(x) not in self.made:
                roots.append(x)
                return
            _, args, _, _ = self.made[id(x)]
            if self.known.standing([x]) != CONSTANT:
                if self.known.place(x) in self.written:  # to make it once more would leave that out
                    raise DeclinedError("it writes to a tensor that others are made of")
                for y in tensors_in(args):
                    visit(y)
            order.append(x)

        for x in wanted:
            visit(x)
        places: Mapping[int, int] = {id(x): k for k, x in enumerate((*roots, *order))}
        steps = tuple(self._step(x, places) for x in order)
        return Recipe(len(roots), steps, tuple(places[id(x)] for x in wanted), compared), tuple(roots)

    def _step(self, x: Tensor, places: Mapping[int, int]) -> tuple[Any, Any, Any, int | None]:
        func, args, named, index = self.made[id(x)]
        if self.known.standing([x]) == CONSTANT:
            kept = x.detach().clone()
            return (lambda: kept), (), {}, None
        if name_of(func)[0] == "detach":  # as autograd keeps a value; with one of the user's there is no program
            return (lambda x: x), (Placeholder(places[id(args[0])]),), {}, None
        return func, mapped(args, lambda y: Placeholder(places[id(y)])), named, index
