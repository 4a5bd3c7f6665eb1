"""What a field computes: all operations of one call are watched, and made into a row program (program.py).

The watcher sees operations below autograd, so that a field which takes derivatives itself (exact traces, Hamiltonians)
is a program like any other. A call that is not row-wise, reads numbers, draws some or changes tensors has no program.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from windermere._torch_private import DispatchMode, name_of
from windermere.fast import aten, cells
from windermere.fast.cells import Builder, UnknownRowError
from windermere.fast.cuts import Cuts, read_by
from windermere.fast.program import CONSTANTS, STATE, TIME, Columns, Matrix, Op, Program
from windermere.fast.recipe import Placeholder, Recipe, mapped, tensors_in

Rate: TypeAlias = Callable[[Tensor, Tensor], Tensor]
MOST_OPERATIONS = 2000
HERE = torch.device("cpu")
"""Where cells are, whatever the default device."""
CONSTANT, EXTERNAL, ROW = range(3)
"""What a tensor depends on: numbers alone, tensors that the field refers to, or the time and the state."""


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
        self.builder, self.dtype, self.shape = Builder(), z.dtype, z.shape
        self.words = aten.vocabulary(aten.Language(self.builder))
        self.known: dict[int, tuple[Tensor, Tensor]] = {}
        """Tensors, by their identity, and their cells."""
        self.externals: dict[int, Tensor] = {}
        """By value: those that were found, and those made of them."""
        self.made: dict[int, tuple[Any, Any, Any, int | None]] = {}
        """How a tensor without a row in it was made, by its identity."""
        self.reasons: list[str] = []
        self.operations = 0
        self.declined = ""
        """Why, where an operation was refused."""
        self.written: set[int] = set()
        """Places of tensors that were written to."""
        self.cuts = Cuts()
        self.remember(t, cells.fresh_cells(TIME, t.shape))
        self.remember(z, cells.state_cells(STATE, z.shape))
        self.given = {self.place(t), self.place(z)}

    def carry_out(self, func: Any, args: Any, named: Any) -> Any:
        """Watch one operation."""
        name, writes = name_of(func)
        with HERE:
            try:
                self.before(func, name, writes, args, named)
            except DeclinedError as reason:
                self.declined = str(reason)  # a field may catch it, as it does other exceptions
                raise
        result = func(*args, **named)
        with HERE:
            if name not in aten.FILLING:
                self.cuts.look(name, args, result)
            self.after(func, name, writes, args, named, result)
        return result

    def remember(self, tensor: Tensor, its: Tensor) -> None:
        self.known[id(tensor)] = tensor, its

    def place(self, tensor: Tensor) -> int:
        return self.cells_of(tensor).untyped_storage().data_ptr()

    def cells_of(self, tensor: Tensor) -> Tensor:
        """The cells of a tensor; one not seen before is an external one."""
        if id(tensor) not in self.known:
            value = self.builder.new_value()
            self.externals[value] = tensor
            try:
                self.remember(tensor, cells.fresh_cells(value, tensor.shape))
            except UnknownRowError:
                self.remember(tensor, torch.full(tensor.shape, cells.cell(cells.LOST)))
        return self.known[id(tensor)][1]

    def standing(self, tensors: Iterable[Tensor]) -> int:
        """What these tensors depend on."""
        own = [self.cells_of(x) for x in tensors]
        flags = torch.full((self.builder.values,), ROW)
        flags[CONSTANTS] = CONSTANT
        if self.externals:
            flags[list(self.externals)] = EXTERNAL
        return max((int(flags[c >> cells.VALUE].max()) for c in own if c.numel()), default=CONSTANT)

    def before(self, func: Any, name: str, writes: bool, args: Any, named: Any) -> None:
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise DeclinedError("it has too many operations")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise DeclinedError(f"it draws random numbers ({name})")
        if self.standing(read_by(func, name, args)) != CONSTANT:
            raise DeclinedError(f"it reads numbers from tensors ({name})")
        if writes and (not name.endswith("_") or named.get("out") is not None):
            raise DeclinedError(f"it writes to tensors ({name})")
        if writes and name not in ("detach_", "requires_grad_"):
            place = self.place(args[0])
            if place in self.given or any(self.place(x) == place for x in self.externals.values()):
                raise DeclinedError(f"it changes a tensor that it is given, or refers to ({name})")
            self.written.add(place)

    def after(self, func: Any, name: str, writes: bool, args: Any, named: Any, result: Any) -> None:
        if name in ("detach_", "requires_grad_", *aten.READING):
            return
        try:
            found = self._found(func, name, writes, args, named, result)
        except UnknownRowError as error:
            self.reasons.append(f"{name}: {error}")
            found = mapped(result, lambda x: torch.full(x.shape, cells.cell(cells.LOST)))
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            self.reasons.append(f"{name}: {type(error).__name__}")
            found = mapped(result, lambda x: torch.full(x.shape, cells.cell(cells.LOST)))
        if writes:
            self.cells_of(args[0]).copy_(found)
            return
        several = not isinstance(result, Tensor)
        for k, (tensor, its) in enumerate(zip(tensors_in(result), tensors_in(found), strict=True)):
            if id(tensor) not in self.known or name != "lift_fresh":
                self.remember(tensor, its)
            self.made[id(tensor)] = func, args, named, k if several else None

    def _found(self, func: Any, name: str, writes: bool, args: Any, named: Any, result: Any) -> Any:
        """The cells of an operation's result."""
        builder = self.builder
        if name in aten.EMPTY:
            return torch.full(result.shape, cells.cell(cells.LOST))
        if name == "lift_fresh":  # a constant that was written down
            return builder.folded(result) if id(args[0]) not in self.known else self.cells_of(args[0])
        if name in ("copy_", "fill_", "zero_"):
            return self._filled(args[1] if len(args) > 1 else 0.0, result)
        given = list(tensors_in(args))
        standing = CONSTANT if name in aten.FILLING else self.standing(given)
        if name in ("select_backward", "slice_backward"):
            zero = builder.constant(0.0)
            return aten.moved_back(name, self.cells_of(args[0]), args[1], args[2:], zero)
        if name in aten.MOVING or (name == "_to_copy" and self._is_kept(args[0], result)):
            return self._moved(func, name, args, named)
        if standing == CONSTANT and not writes:
            return mapped(result, builder.folded)
        if standing == EXTERNAL and not writes:
            same = self._same_for_all(name, args, named, result)
            return mapped(result, self._derived) if same is None else same
        return self._computed(name, args, named, result)

    def _filled(self, by: Any, tensor: Tensor) -> Tensor:
        """The cells of a tensor that others, or a number, were written to."""
        known = self.dtype if not isinstance(by, Tensor) or self.standing([by]) == CONSTANT else by.dtype
        if tensor.dtype != self.dtype or known not in (self.dtype, torch.bool):
            raise UnknownRowError("numbers of one dtype written to another")
        if isinstance(by, Tensor):
            return self.cells_of(by).expand(tensor.shape)
        return torch.full(tensor.shape, self.builder.constant(float(by)))

    def _same_for_all(self, name: str, args: Any, named: Any, result: Any) -> Tensor | None:
        """The cells of what was made of external tensors for each sample, and is the same for all of them."""
        if not isinstance(result, Tensor) or result.ndim < 2 or len(result) != self.shape[0]:
            return None
        try:
            found = self._computed(name, args, named, result)
        except UnknownRowError:
            return None
        return found if bool((found == found[:1]).all()) else None

    def _is_kept(self, before: Tensor, after: Tensor) -> bool:
        return after.dtype == self.dtype and before.dtype in (self.dtype, torch.bool)

    def _moved(self, func: Any, name: str, args: Any, named: Any) -> Any:
        if name == "_to_copy":
            return self.cells_of(args[0]).clone()
        if name in ("index", "index_select"):
            if self.standing(tensors_in(args[1:])) != CONSTANT:
                raise UnknownRowError("places that depend on numbers")
            return func(self.cells_of(args[0]), *mapped(args[1:], Tensor.cpu), **named)
        return func(*mapped(args, self.cells_of), **named)

    def _derived(self, result: Tensor) -> Tensor:
        value = self.builder.new_value()
        self.externals[value] = result
        return cells.fresh_cells(value, result.shape)

    def _computed(self, name: str, args: Any, named: Any, result: Any) -> Tensor:
        if not isinstance(result, Tensor) or result.dtype not in (self.dtype, torch.bool):
            raise UnknownRowError("a result of another dtype")
        name = name.removesuffix("_")
        if result.dtype is torch.bool and name not in aten.TRUTHS:
            raise UnknownRowError("truth values that are not numbers")
        if name in ("mm", "addmm"):
            return self._product(name, *args, **named)
        if name not in self.words:
            raise UnknownRowError("an operation that is not known")
        settings = {k: mapped(x, self.cells_of) for k, x in named.items()}
        found = self.words[name](*mapped(args, self.cells_of), **settings)
        return found.expand(result.shape).clone()  # what is written to it is not written to what it was made of

    def _product(self, name: str, *args: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
        *bias, left, right = args
        if beta != 1 or alpha != 1:
            raise UnknownRowError("a product that is scaled")
        if self.standing([right]) == ROW:
            if self.standing([left]) == ROW:
                raise UnknownRowError("a product of two states")
            found = self._times(self.cells_of(right).t(), left, transposed=True).t()
        elif bias and self.cells_of(bias[0]).ndim == 1 and self.standing(bias) == EXTERNAL:
            return self._times(self.cells_of(left), right, bias=self.cells_of(bias[0]).expand(right.shape[1]))
        else:
            found = self._times(self.cells_of(left), right)
        return self.words["add"](found, self.cells_of(bias[0])) if bias else found

    def _times(self, rows: Tensor, right: Tensor, transposed: bool = False, bias: Tensor | None = None) -> Tensor:
        own = self.cells_of(right)
        matrix = _matrix(own.t() if transposed else own)
        if matrix is None:  # put together of several, or of numbers
            own = self._derived(right)
            matrix = _matrix(own.t() if transposed else own)
            assert matrix is not None
        return self.builder.multiplied(rows, matrix, own.t() if transposed else own, bias)

    def finished(self, k: Any) -> Trace:
        """The program whose result this is."""
        if self.declined:
            raise DeclinedError(self.declined)
        if not isinstance(k, Tensor) or (k.shape, k.dtype) != (self.shape, self.dtype):
            raise DeclinedError("its result is not of the state's shape")
        for how, tensor in self.cuts.read:
            if self.standing([tensor]) != CONSTANT:
                raise DeclinedError(f"it reads numbers from tensors ({how})")
        if self.cuts.found:
            raise DeclinedError(f"it keeps gradients from what it computes ({self.cuts.found})")
        found = self.cells_of(k)
        samples, own = found & cells.SAMPLE, torch.arange(1, len(found) + 1).unsqueeze(1)
        pattern = found & ~cells.SAMPLE
        if not bool(((samples == 0) | (samples == own)).all()) or not bool((pattern == pattern[:1]).all()):
            raise DeclinedError("its result is not row-wise")
        try:
            rate = tuple(self.builder.pieces(pattern[0]))
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
            if (op := self.builder.ops.get(value)) is not None:
                ahead += [c.value for c in op.takes] + ([op.matrix.value] if op.matrix else [])
        externals = [v for v in self.externals if v in needed]
        ops = [v for v in self.builder.ops if v in needed]
        numbers = {v: k for k, v in enumerate([TIME, STATE, CONSTANTS, *externals, *ops])}
        final = tuple(piece._replace(value=numbers[piece.value]) for piece in rate)
        listed: tuple[Op, ...] = tuple(self.builder.ops[v].with_values(numbers.__getitem__) for v in ops)
        sizes = tuple(self.externals[v].numel() for v in externals)
        program = Program(self.shape[1], tuple(self.builder.constants), sizes, listed, final)
        recipe, roots = self._recipe([self.externals[v] for v in externals], program.compared)
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
            if self.standing([x]) != CONSTANT:
                if self.place(x) in self.written:  # to make it once more would leave that out
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
        if self.standing([x]) == CONSTANT:
            kept = x.detach().clone()
            return (lambda: kept), (), {}, None
        if name_of(func)[0] == "detach":  # as autograd keeps a value; with one of the user's there is no program
            return (lambda x: x), (Placeholder(places[id(args[0])]),), {}, None
        return func, mapped(args, lambda y: Placeholder(places[id(y)])), named, index


def _matrix(own: Tensor) -> Matrix | None:
    """The matrix of these cells [inputs, outputs], if they lie in one value at even distances."""
    inputs, outputs = own.shape
    first = int(own[0, 0]) if own.numel() else 0
    step = 1 << cells.COLUMN
    by_input = (int(own[1, 0]) - first) // step if inputs > 1 else 0
    by_output = (int(own[0, 1]) - first) // step if outputs > 1 else 0
    even = first + (torch.arange(inputs).unsqueeze(1) * by_input + torch.arange(outputs) * by_output) * step
    if not own.numel() or first >> cells.VALUE <= cells.LOST or not bool((own == even).all()):
        return None
    column = (first & ((1 << cells.VALUE) - 1)) >> cells.COLUMN
    return Matrix(first >> cells.VALUE, column, inputs, outputs, by_input, by_output)
