"""Which numbers a tensor of a traced field holds: each entry is a *cell*, a column of a value that belongs to a sample.

The cells of a tensor lie in a tensor of whole numbers of the same shape. Whatever moves entries about (views, slices,
transposes, concatenations) is done to the cells by the same operation of PyTorch, and whatever computes looks at them:
an operation is row-wise where it brings together cells of one sample only, and does the same for each of them.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from windermere.fast.program import CONSTANTS, Columns, Matrix, Op

COLUMN, VALUE = 20, 40
"""A cell is a sample (0 for what all samples share), a column from this bit on, and a value from that bit on."""
SAMPLE = (1 << COLUMN) - 1
MOST = SAMPLE
"""The most samples and columns."""
LOST = CONSTANTS + 1
"""The value of cells that nobody knows; those of external tensors and operations come after it."""
ALIKE_AT_MOST = 64
"""Rows of one sample on which an operation on rows does different things."""


class UnknownRowError(Exception):
    """Something that is not row-wise, or not known."""


def cell(value: int, column: int = 0) -> int:
    return value << VALUE | column << COLUMN


def fresh_cells(value: int, shape: Sequence[int]) -> Tensor:
    """The cells of a value that all samples share, column by column."""
    count = torch.Size(shape).numel()
    if count > MOST:
        raise UnknownRowError("a tensor is too large")
    return (cell(value) + (torch.arange(count) << COLUMN)).reshape(tuple(shape))


def state_cells(value: int, shape: Sequence[int]) -> Tensor:
    """The cells of a state [samples, columns]."""
    samples, columns = shape
    if max(samples, columns) >= MOST:
        raise UnknownRowError("the state is too large")
    return fresh_cells(value, (columns,)) + torch.arange(1, samples + 1).unsqueeze(1)


def values_in(cells: Tensor) -> set[int]:
    """The numbers of all values among these cells."""
    return set(torch.unique(cells >> VALUE).tolist())


def own_samples(cells: Sequence[Tensor]) -> Tensor:
    """The sample that cells in the same place belong to; two different ones are an error."""
    samples = [c & SAMPLE for c in cells]
    own = samples[0]
    for other in samples[1:]:
        own = torch.maximum(own, other)
    if any(((s != 0) & (s != own)).any() for s in samples):
        raise UnknownRowError("it mixes samples")
    return own


def alike(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ones among rows, [distinct, n], and which of them each row is; too many are an error."""
    distinct, which = distinct_columns(rows.t(), at_most=ALIKE_AT_MOST)
    return distinct.t(), which


def distinct_columns(table: Tensor, at_most: int = MOST) -> tuple[Tensor, Tensor]:
    """The distinct ones among columns, [n, distinct] in order, and which of them each is.

    As `torch.unique` has it with `dim=1`, which takes a hundred times as long: a second for wide networks.
    """
    which = torch.zeros(table.shape[1], dtype=torch.int64)
    for row in table:
        if len(row) and bool((row == row[0]).all()):
            continue
        numbers, own = torch.unique(row, return_inverse=True)
        found, which = torch.unique(which * len(numbers) + own, return_inverse=True)
        if len(found) > at_most:
            raise UnknownRowError("it does something else for each row")
    distinct = table.new_empty(len(table), int(which.max()) + 1 if len(which) else 0)
    distinct[:, which] = table
    return distinct, which


class Builder:
    """A program while it grows: operations on cells."""

    def __init__(self) -> None:
        self.ops: dict[int, Op] = {}
        """By the number of their result."""
        self.constants: list[float] = []
        self.columns: dict[float | tuple[float, ...], int] = {}
        self.values = LOST + 1
        self.known: dict[Op, int] = {}

    def new_value(self) -> int:
        self.values += 1
        return self.values - 1

    def emit(self, op: Op) -> int:
        """The number of an operation's result; the same operation is done once."""
        if op.width > 1 << 14:
            raise UnknownRowError("a row is too wide")
        if op not in self.known:
            self.known[op] = number = self.new_value()
            self.ops[number] = op
        return self.known[op]

    def constant(self, number: float) -> int:
        """The cell of a number."""
        key = number if number == number and (number or str(number) == "0.0") else (number, *map(ord, str(number)))
        if key not in self.columns:
            self.columns[key] = len(self.constants)
            self.constants.append(number)
        return cell(CONSTANTS, self.columns[key])

    def number(self, cells: Tensor) -> float | None:
        """The number that all these cells are, if they are one constant."""
        first = int(cells.flatten()[0]) if cells.numel() else 0
        if first >> VALUE != CONSTANTS or not bool((cells == first).all()):
            return None
        return self.constants[(first & ((1 << VALUE) - 1)) >> COLUMN]

    def numbers(self, pattern: Tensor) -> list[float] | None:
        """The numbers of cells that are all constants."""
        if values_in(pattern) != {CONSTANTS}:
            return None
        return [self.constants[c] for c in self._columns_of(pattern)]

    def folded(self, value: Tensor) -> Tensor:
        """The cells of a tensor whose numbers are known."""
        flat = value.detach().reshape(-1).double().cpu()
        distinct, places = torch.unique(flat, return_inverse=True)
        if len(distinct) > 4096:
            raise UnknownRowError("it has too many constants")
        return torch.tensor([self.constant(x) for x in distinct.tolist()])[places].reshape(value.shape)

    def taken(self, pattern: Tensor) -> Columns:
        """Cells one after the other, [n] without their sample, as columns of one value."""
        pieces = list(self.pieces(pattern))
        if len(pieces) == 1:
            return pieces[0]
        numbers = self.numbers(pattern)
        if numbers is not None:
            return self._constant_row(tuple(numbers))
        width = len(pattern)
        return Columns(self.emit(Op("join", width, tuple(pieces))), 0, width)

    def pieces(self, pattern: Tensor) -> Iterator[Columns]:
        """The same as columns of several values."""
        cells = pattern.tolist()
        step, start = 1 << COLUMN, 0
        if any(c >> VALUE == LOST for c in cells):
            raise UnknownRowError("it depends on something that is not row-wise")
        while start < len(cells):
            end = start + 1
            if end < len(cells) and cells[end] in (cells[start], cells[start] + step):
                pace = cells[end] - cells[start]
                while end < len(cells) and cells[end] == cells[start] + (end - start) * pace:
                    end += 1
            else:
                pace = step
            yield Columns(cells[start] >> VALUE, self._column(cells[start]), end - start, int(pace != 0))
            start = end

    def elementwise(self, kind: str, *given: Tensor, numbers: tuple[float, ...] = ()) -> Tensor:
        """The cells of an operation on entries in the same place."""
        cells: list[Tensor] = torch.broadcast_tensors(*given)  # type: ignore[no-untyped-call]
        shape, sample = cells[0].shape, own_samples(cells)
        stacked = torch.stack([c & ~SAMPLE for c in cells])
        if stacked.ndim > 2 and shape[0] > 1 and bool((stacked == stacked[:, :1]).all()):  # the same in each row
            pattern = stacked[:, 0].flatten(1)
            places = torch.arange(pattern.shape[1]).reshape(shape[1:]).expand(shape)
        else:
            pattern, places = distinct_columns(stacked.reshape(len(cells), -1))
            places = places.reshape(shape)
        if pattern.shape[1] > 1 and bool((pattern == pattern[:, :1]).all()):
            pattern, places = pattern[:, :1], torch.zeros_like(places)
        takes = tuple(self.taken(row) for row in pattern)
        value = self.emit(Op(kind, pattern.shape[1], takes, numbers=numbers))
        return cell(value) + (places << COLUMN) + sample

    def summed(self, rows: Tensor) -> Tensor:
        """The cells [rows] of the sums over [rows, n] cells."""
        patterns, which, sample = self._patterns(rows)
        found = torch.stack([self._sum(pattern) for pattern in patterns])
        return found[which] + sample

    def _sum(self, pattern: Tensor) -> Tensor:
        zero = self.constant(0.0)
        rest = pattern[pattern != zero]
        if len(rest) <= 1:
            return rest[0] if len(rest) else torch.tensor(zero)
        return torch.tensor(cell(self.emit(Op("sum", 1, (self.taken(rest),)))))

    def multiplied(self, rows: Tensor, matrix: Matrix, cells: Tensor, bias: Tensor | None) -> Tensor:
        """The cells [rows, outputs] of rows [rows, inputs] times a matrix, whose own are [inputs, outputs]."""
        patterns, which, sample = self._patterns(rows)
        found = torch.stack([self._product(pattern, matrix, cells, bias) for pattern in patterns])
        return found[which] + sample.unsqueeze(1)

    def _product(self, pattern: Tensor, matrix: Matrix, cells: Tensor, bias: Tensor | None) -> Tensor:
        numbers = self.numbers(pattern)
        if numbers is not None and bias is None and sorted(numbers) == [0.0] * (len(numbers) - 1) + [1.0]:
            return cells[numbers.index(1.0)]  # a row of the matrix
        there = (pattern != self.constant(0.0)).nonzero().flatten()
        if 0 < len(there) < len(pattern):  # what is multiplied by zero is left out, where that is at the sides
            first, last = int(there[0]), int(there[-1]) + 1
            pattern = pattern[first:last]
            matrix = matrix._replace(offset=matrix.offset + first * matrix.by_input, inputs=last - first)
        takes = (self.taken(pattern), *(() if bias is None else (self.taken(bias),)))
        return fresh_cells(self.emit(Op("linear", matrix.outputs, takes, matrix)), (matrix.outputs,))

    def _patterns(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The distinct rows without their samples, which of them each is, and the sample that it belongs to."""
        sample = own_samples(rows.unbind(1)) if rows.shape[1] else torch.zeros(len(rows), dtype=torch.int64)
        patterns, which = alike(rows & ~SAMPLE)
        return patterns, which, sample

    def _constant_row(self, numbers: tuple[float, ...]) -> Columns:
        if numbers not in self.columns:
            self.columns[numbers] = len(self.constants)
            self.constants += numbers
        return Columns(CONSTANTS, self.columns[numbers], len(numbers))

    def _column(self, found: int) -> int:
        return (found & ((1 << VALUE) - 1)) >> COLUMN

    def _columns_of(self, pattern: Tensor) -> list[int]:
        return [self._column(c) for c in pattern.tolist()]
