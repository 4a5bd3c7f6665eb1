"""What a trace knows of the tensors of a call: their cells (cells.py), and those of each operation's result."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from windermere.fast import aten, cells
from windermere.fast.cells import Builder, UnknownRowError
from windermere.fast.program import CONSTANTS, STATE, TIME, Matrix
from windermere.fast.recipe import mapped, tensors_in

CONSTANT, EXTERNAL, ROW = range(3)
"""What a tensor depends on: numbers alone, tensors that the field refers to, or the time and the state."""


class KnownCells:
    """The cells of all tensors that were seen, from a time and a state on."""

    def __init__(self, t: Tensor, z: Tensor) -> None:
        self.builder, self.dtype, self.shape = Builder(), z.dtype, z.shape
        self.words = aten.vocabulary(aten.Language(self.builder))
        self._cells: dict[int, tuple[Tensor, Tensor]] = {}
        """Tensors, by their identity, and their cells."""
        self.externals: dict[int, Tensor] = {}
        """By value: those that were found, and those made of them."""
        self.remember(t, cells.state_cells(TIME, t.shape) if t.ndim else cells.fresh_cells(TIME, t.shape))
        self.remember(z, cells.state_cells(STATE, z.shape))

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._cells

    def remember(self, tensor: Tensor, its: Tensor) -> None:
        self._cells[id(tensor)] = tensor, its

    def place(self, tensor: Tensor) -> int:
        return self.of(tensor).untyped_storage().data_ptr()

    def of(self, tensor: Tensor) -> Tensor:
        """The cells of a tensor; one not seen before is an external one."""
        if tensor not in self:
            value = self.builder.new_value()
            self.externals[value] = tensor
            try:
                self.remember(tensor, cells.fresh_cells(value, tensor.shape))
            except UnknownRowError:
                self.remember(tensor, torch.full(tensor.shape, cells.cell(cells.LOST)))
        return self._cells[id(tensor)][1]

    def standing(self, tensors: Iterable[Tensor]) -> int:
        """What these tensors depend on."""
        own = [self.of(x) for x in tensors]
        flags = torch.full((self.builder.values,), ROW)
        flags[CONSTANTS] = CONSTANT
        if self.externals:
            flags[list(self.externals)] = EXTERNAL
        return max((int(flags[c >> cells.VALUE].max()) for c in own if c.numel()), default=CONSTANT)

    def of_result(self, func: Any, name: str, writes: bool, args: Any, named: Any, result: Any) -> Any:
        """The cells of an operation's result."""
        builder = self.builder
        if name in aten.EMPTY:
            return torch.full(result.shape, cells.cell(cells.LOST))
        if name == "lift_fresh":  # a constant that was written down
            return builder.folded(result) if args[0] not in self else self.of(args[0])
        if name in ("copy_", "fill_", "zero_"):
            return self._filled(args[1] if len(args) > 1 else 0.0, result)
        given = list(tensors_in(args))
        standing = CONSTANT if name in aten.FILLING else self.standing(given)
        if name in ("select_backward", "slice_backward"):
            zero = builder.constant(0.0)
            return aten.moved_back(name, self.of(args[0]), args[1], args[2:], zero)
        if name in aten.MOVING or (name == "_to_copy" and self._is_kept(args[0], result)):
            return self._moved(func, name, args, named, result)
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
            return self.of(by).expand(tensor.shape)
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

    def _moved(self, func: Any, name: str, args: Any, named: Any, result: Any) -> Any:
        if name == "_to_copy":
            return self.of(args[0]).clone()
        kinds = {x.dtype for x in (*tensors_in(args[0]), *tensors_in(result))}
        if len(kinds) > 1 and self.standing(tensors_in(args[0])) != CONSTANT:
            raise UnknownRowError("numbers that are read as others")
        if name in ("index", "index_select"):
            if self.standing(tensors_in(args[1:])) != CONSTANT:
                raise UnknownRowError("places that depend on numbers")
            return func(self.of(args[0]), *mapped(args[1:], Tensor.cpu), **named)
        return func(*mapped(args, self.of), **named)

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
        settings = {k: mapped(x, self.of) for k, x in named.items()}
        found = self.words[name](*mapped(args, self.of), **settings)
        return found.expand(result.shape).clone()  # what is written to it is not written to what it was made of

    def _product(self, name: str, *args: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
        *bias, left, right = args
        if beta != 1 or alpha != 1:
            raise UnknownRowError("a product that is scaled")
        if self.standing([right]) == ROW:
            if self.standing([left]) == ROW:
                raise UnknownRowError("a product of two states")
            found = self._times(self.of(right).t(), left, transposed=True).t()
        elif bias and self.of(bias[0]).ndim == 1 and self.standing(bias) == EXTERNAL:
            return self._times(self.of(left), right, bias=self.of(bias[0]).expand(right.shape[1]))
        else:
            found = self._times(self.of(left), right)
        return self.words["add"](found, self.of(bias[0])) if bias else found

    def _times(self, rows: Tensor, right: Tensor, transposed: bool = False, bias: Tensor | None = None) -> Tensor:
        own = self.of(right)
        matrix = _matrix(own.t() if transposed else own)
        if matrix is None:  # put together of several, or of numbers
            own = self._derived(right)
            matrix = _matrix(own.t() if transposed else own)
            assert matrix is not None
        return self.builder.multiplied(rows, matrix, own.t() if transposed else own, bias)


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
