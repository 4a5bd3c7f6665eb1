"""What a field computes for one sample, as a list of operations: a *row program*; and PyTorch as its slow interpreter.

A *value* is a row of numbers that belongs to one sample, or is the same for all. Values are numbered: the time, the
state, constants, then *external* tensors (flattened: parameters, buffers, whatever a field refers to), then the result
of each operation in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

TIME, STATE, CONSTANTS, EXTERNALS = range(4)
"""The numbers of the first values."""


class Columns(NamedTuple):
    """Some columns of a value, one after the other, or where `step` is 0 one of them again and again."""

    value: int
    start: int
    width: int
    step: int = 1


class Matrix(NamedTuple):
    """A matrix that lies in an external tensor: entry (i, o), from input i to output o, is at offset + i by_input + o
    by_output."""

    value: int
    offset: int
    inputs: int
    outputs: int
    by_input: int
    by_output: int


@dataclass(frozen=True)
class Op:
    """An operation: its result's `width`, what it takes, and its settings.

    linear: the columns taken times a matrix, plus a second row of columns where there is one (the bias). add: x a +
    y b, with x and y as `numbers`. mul, div. gate: 0 where b <= 0, and else a. above, at_least: 1 where a > b, or where
    a >= b, and else 0, as with what is no number. sum: of all columns. join: columns one after the other. Others are
    functions of each number (UNARY).
    """

    kind: str
    width: int
    takes: tuple[Columns, ...]
    matrix: Matrix | None = None
    numbers: tuple[float, ...] = ()

    def with_values(self, number: Callable[[int], int]) -> "Op":
        """The same with other numbers for its values."""
        takes = tuple(c._replace(value=number(c.value)) for c in self.takes)
        matrix = self.matrix and self.matrix._replace(value=number(self.matrix.value))
        return replace(self, takes=takes, matrix=matrix)


COMPARISONS = ("above", "at_least")
"""Operations that have no derivative."""


@dataclass(frozen=True)
class Program:
    """A field as operations on rows."""

    points: int
    """The width of the state, and of its rate."""
    constants: tuple[float, ...]
    sizes: tuple[int, ...]
    """How many numbers each external tensor has."""
    ops: tuple[Op, ...]
    rate: tuple[Columns, ...]
    """The columns of the result, piece by piece."""

    @cached_property
    def first(self) -> int:
        """The number of the first operation's result."""
        return EXTERNALS + len(self.sizes)

    @cached_property
    def compared(self) -> frozenset[int]:
        """The external tensors, by their order, that are only compared: no derivative leads to them."""
        felt = {piece.value for piece in self.rate}
        for number, op in reversed([*enumerate(self.ops, self.first)]):
            if number in felt and op.kind not in COMPARISONS:
                felt |= {columns.value for columns in op.takes} | ({op.matrix.value} if op.matrix else set())
        return frozenset(n for n in range(len(self.sizes)) if EXTERNALS + n not in felt)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        return 1, self.points, len(self.constants), *self.sizes, *(op.width for op in self.ops)

    @cached_property
    def products(self) -> int:
        """How many products one evaluation takes for one sample."""
        return sum(op.matrix.inputs * op.matrix.outputs if op.matrix else op.width for op in self.ops)

    @cached_property
    def widest(self) -> int:
        return max([self.points, *(op.width for op in self.ops), *(op.takes[0].width for op in self.ops)])

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """With constants as they are written: 0.0 equals -0.0, and a NaN nothing."""
        return self.points, tuple(map(float.hex, self.constants)), self.sizes, self.ops, self.rate

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Program) and self._key == other._key)


def evaluate(program: Program, externals: Sequence[Tensor], t: Tensor, z: Tensor) -> Tensor:
    """The rate of a state [samples, points], by PyTorch's operations: the reference for all other interpreters."""
    values = [t.reshape(-1, 1), z, z.new_tensor(program.constants).unsqueeze(0)]
    values += [x.reshape(1, -1) for x in externals]
    for op in program.ops:
        values.append(_result(op, values))
    pieces = [_taken(values, piece).expand(len(z), piece.width) for piece in program.rate]
    return torch.cat(pieces, dim=1)


def _taken(values: Sequence[Tensor], columns: Columns) -> Tensor:
    value, start, width, step = columns
    found = values[value][:, start : start + (width if step else 1)]
    return found if step else found.expand(len(found), width)


def _result(op: Op, values: Sequence[Tensor]) -> Tensor:
    given = [_taken(values, columns) for columns in op.takes]
    if op.matrix is not None:
        value, offset, inputs, outputs, by_input, by_output = op.matrix
        matrix = values[value][0].as_strided((inputs, outputs), (by_input, by_output), offset)
        product = given[0] @ matrix
        return product + given[1] if len(given) > 1 else product
    if op.kind == "join":
        rows = max(map(len, given))
        return torch.cat([part.expand(rows, -1) for part in given], dim=1)
    return FUNCTIONS[op.kind](*given, *op.numbers)


UNARY: Mapping[str, Callable[..., Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "elu": functional.elu,
    "silu": functional.silu,
    "mish": functional.mish,
    "gelu": functional.gelu,
    "normal_cdf": lambda x: 0.5 * torch.erfc(-x * 0.5**0.5),
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "pow": torch.pow,
    "erf": torch.erf,
    "log1p": torch.log1p,
}
"""Functions of each number on its own, perhaps with a setting."""
FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    **UNARY,
    "add": lambda a, b, x, y: x * a + y * b,
    "mul": torch.mul,
    "div": torch.div,
    "gate": lambda a, b: torch.where(b <= 0, torch.zeros_like(a), a),
    "above": lambda a, b: (a > b).to(a.dtype),
    "at_least": lambda a, b: (a >= b).to(a.dtype),
    "sum": lambda a: a.sum(1, keepdim=True),
}
