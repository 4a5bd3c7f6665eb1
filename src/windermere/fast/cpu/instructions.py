"""A row program as the lists of instructions that native_rows.h follows: there, and back for the gradient.

The way back is the program's derivative, operation by operation from the last to the first. What it reads of the way
there lies in the notes; all else has room to work in, which is used again once a value is done with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windermere.fast.cpu.encoding import (
    ABOVE,
    AT_LEAST,
    BLOCK,
    CLOCK,
    DERIVED,
    GATE,
    INSTRUCTION,
    LAYERS,
    LINEAR,
    NOTED,
    NOTES,
    ON_Z,
    OUTER,
    QUOTIENT,
    RATE,
    ROW,
    SCALED,
    SHARE,
    SUM,
    UNARY,
    WORK,
    Instruction,
    Place,
    Slot,
    in_a_row,
    packed,
)
from windermere.fast.program import COMPARISONS, CONSTANTS, EXTERNALS, STATE, TIME, Columns, Matrix, Op, Program

BY_VALUE = ("relu", "leaky_relu", "tanh", "sigmoid", "softplus", "elu", "exp", "sqrt")
"""Functions whose derivative is found from their value."""
KINDS = (*BY_VALUE, "silu", "mish", "gelu", "normal_cdf", "sin", "cos", "log", "abs", "pow", "erf", "log1p")
"""As native_math.h numbers them."""
PAIRED = {"add": SUM, "mul": SCALED, "div": QUOTIENT, "gate": GATE, "above": ABOVE, "at_least": AT_LEAST}
"""Operations on numbers in the same place of two rows."""


@dataclass(frozen=True, eq=False)
class Code:
    """What native_rows.h is given of a program."""

    ops: NDArray[Any]
    there: int
    blocks: NDArray[Any]
    laid: int
    """How many of these blocks are laid out; the others have gradients."""
    constants: NDArray[np.float64]
    sizes: dict[str, int]
    """The sizes of layers and shares in numbers, those of notes and room to work in in vectors."""


@lru_cache(maxsize=64)
def code_of(program: Program, graded: frozenset[int] | None, lanes: int) -> Code:
    """The instructions of a program: there alone, or where `graded` external tensors are named (there may be none) back
    as well; with vectors of so many numbers."""
    return _Compiler(program, graded, lanes).code()


@dataclass
class _Compiler:
    program: Program
    graded: frozenset[int] | None
    lanes: int
    there: list[Instruction] = field(default_factory=list)
    back: list[Instruction] = field(default_factory=list)
    values: dict[int, Slot] = field(default_factory=dict)
    derivatives: dict[int, Place] = field(default_factory=dict)
    """Derivatives of functions that note them, by the number of their value."""
    cotangents: dict[int, Slot] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    """Values whose cotangent has been begun."""
    layers: dict[Any, Slot] = field(default_factory=dict)
    shares: dict[Any, Slot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        self.values[TIME], self.values[STATE] = Slot(1, CLOCK, 0), Slot(program.points, ROW, 0)
        taken = [c for op in program.ops for c in op.takes] + list(program.rate)
        uses = [c.value for c in taken]
        whole = {c.value for c in taken if c.step and c.width == program.widths[c.value]}
        self.alone = {v for v in whole if uses.count(v) == 1 and v >= program.first}
        """Results that are taken once, and as a whole."""
        self.active = {STATE} | {EXTERNALS + k for k in self.graded or ()}
        for number, op in enumerate(program.ops, program.first):
            given = [c.value for c in op.takes] + ([op.matrix.value] if op.matrix else [])
            if op.kind not in COMPARISONS and any(v in self.active for v in given):
                self.active.add(number)

    # There

    def place(self, columns: Columns) -> Place:
        value, start, _, step = columns
        if value == CONSTANTS or EXTERNALS <= value < self.program.first:
            return Place(self.laid_row(columns), 0, step)
        return Place(self.values[value], start, step)

    def laid_row(self, columns: Columns) -> Slot:
        """A row of numbers, or of an external tensor's, spread over vectors."""
        value, start, width, step = columns
        width = width if step else 1
        key = (value - EXTERNALS if value != CONSTANTS else -1, start, width, 0, 1, 0)
        return self.layers.setdefault(key, Slot(width, LAYERS))

    def laid_matrix(self, matrix: Matrix, *, back: bool) -> Slot:
        value, offset, inputs, outputs, by_input, by_output = matrix
        sides = (outputs, inputs, by_output, by_input) if back else (inputs, outputs, by_input, by_output)
        size = -(-inputs * outputs // self.lanes)
        return self.layers.setdefault((value - EXTERNALS, offset, *sides), Slot(size, LAYERS))

    def joined(self, columns: Columns, into: list[Instruction]) -> Place:
        """Columns that lie one after the other."""
        place = self.place(columns)
        if columns.step or columns.width == 1:
            return replace(place, step=1)
        copy = Place(Slot(columns.width))
        into.append(Instruction(SCALED, columns.width, copy, place))
        return copy

    def evaluate(self, number: int, op: Op) -> None:
        """The instructions of an operation."""
        n, given = op.width, op.takes
        in_place = op.kind in BY_VALUE and self.is_done_with(given[0])
        slot = self.values[number] = self.values[given[0].value] if in_place else Slot(n)
        to, places = Place(slot), [self.place(c) for c in given]
        if op.matrix is not None:
            bias = self.joined(given[1], self.there) if len(given) > 1 else None
            matrix = self.laid_matrix(op.matrix, back=False)
            row = self.joined(given[0], self.there)
            self.there.append(Instruction(LINEAR, n, to, row, bias, inputs=op.matrix.inputs, matrix=matrix))
        elif op.kind == "join":
            for start, piece, place in zip(_starts(given), given, places, strict=True):
                self.there.append(Instruction(SCALED, piece.width, Place(slot, start), place))
        elif op.kind == "sum":
            self.there.append(Instruction(SCALED, given[0].width, Place(slot, 0, 0), places[0]))
        elif op.kind in PAIRED:
            x, y = op.numbers or (1.0, 1.0)
            self.there.append(Instruction(PAIRED[op.kind], n, to, places[0], places[1], x=x, y=y))
        else:
            self.apply(number, op, to, places[0])

    def is_done_with(self, columns: Columns) -> bool:
        """Whether a value that is taken has no other use, on the way back either: something else may take its place."""
        kept = (*KINDS, "div")
        return columns.value in self.alone and self.program.ops[columns.value - self.program.first].kind not in kept

    def apply(self, number: int, op: Op, to: Place, given: Place) -> None:
        """A function of each number, with its derivative noted where the value alone does not tell it."""
        kind, setting = KINDS.index(op.kind), op.numbers[0] if op.numbers else 1.0
        if op.kind in BY_VALUE or self.graded is None or op.takes[0].value not in self.active:
            self.there.append(Instruction(UNARY, op.width, to, given, kind=kind, x=setting))
            return
        source = op.takes[0].value
        mine = Place(self.values[source]) if self.is_done_with(op.takes[0]) else Place(Slot(op.width))
        noted = self.derivatives[number] = mine
        self.there.append(Instruction(NOTED, op.width, to, given, noted=noted, kind=kind, x=setting))

    # And back

    def cotangent(self, value: int) -> Slot:
        if value not in self.cotangents:
            points = self.program.points
            self.cotangents[value] = Slot(points, ON_Z, 0) if value == STATE else Slot(self.program.widths[value])
        return self.cotangents[value]

    def begin(self, value: int, *, whole: bool) -> bool:
        """Whether what comes is to be added to a cotangent; else it is written."""
        if value in self.written:
            return True
        self.written.add(value)
        if not whole:
            slot = self.cotangent(value)
            self.back.append(Instruction(SCALED, slot.width, Place(slot), self.zero(), x=0.0))
        return not whole

    def zero(self) -> Place:
        return Place(self.values[TIME], 0, 0)

    def give(self, columns: Columns, a: Place, b: Place | None = None, x: float = 1.0) -> None:
        """Add x a b to the cotangent of these columns, if anybody asks for it."""
        value, start, width, step = columns
        if value not in self.active:
            return
        if EXTERNALS <= value < self.program.first:
            key = (value - EXTERNALS, start, width if step else 1, 0, 1, 0)
            share = self.shares.setdefault(key, Slot(key[2], SHARE))
            self.back.append(Instruction(SCALED, width, Place(share, 0, step), a, b, add=True, x=x))
            return
        whole = (width if step else 1) == self.program.widths[value]
        add = self.begin(value, whole=whole)
        to = Place(self.cotangent(value), start, step)
        self.back.append(Instruction(SCALED, width, to, a, b, add=add, x=x))

    def pull_back(self, number: int, op: Op) -> None:
        given, on = op.takes, Place(self.cotangents[number])
        if op.matrix is not None:
            self.through_matrix(op, op.matrix, on)
        elif op.kind == "join":
            for start, piece in zip(_starts(given), given, strict=True):
                self.give(piece, Place(on.slot, start))
        elif op.kind == "sum":
            self.give(given[0], replace(on, step=0))
        elif op.kind == "add":
            for columns, x in zip(given, op.numbers, strict=True):
                self.give(columns, on, x=x)
        elif op.kind == "mul":
            for columns, other in zip(given, reversed(given), strict=True):
                self.give(columns, on, self.place(other))
        elif op.kind == "div":
            part = self.temporary(QUOTIENT, op.width, on, self.place(given[1]))
            self.give(given[0], part)
            self.give(given[1], part, Place(self.values[number]), x=-1.0)
        elif op.kind == "gate":
            if given[0].value in self.active:
                self.give(given[0], self.temporary(GATE, op.width, on, self.place(given[1])))
        elif number in self.derivatives:
            self.give(given[0], on, self.derivatives[number])
        else:
            self.through_function(number, op, on)

    def temporary(self, code: int, width: int, a: Place, b: Place, **named: Any) -> Place:
        part = Place(Slot(width))
        self.back.append(Instruction(code, width, part, a, b, **named))
        return part

    def through_function(self, number: int, op: Op, on: Place) -> None:
        """A function whose derivative is found from its value; where what it was given has no other use, in place."""
        source, y = op.takes[0], Place(self.values[number])
        if source.value not in self.active:
            return
        named: Any = {"kind": KINDS.index(op.kind), "x": op.numbers[0] if op.numbers else 1.0}
        if source.value in self.alone:
            self.cotangents[source.value] = on.slot
            self.written.add(source.value)
            self.back.append(Instruction(DERIVED, op.width, on, on, y, **named))
        else:
            self.give(source, self.temporary(DERIVED, op.width, on, y, **named))

    def through_matrix(self, op: Op, matrix: Matrix, on: Place) -> None:
        row, bias = op.takes[0], op.takes[1:]
        for columns in bias:
            self.give(columns, on)
        if matrix.value in self.active:
            key = (matrix.value - EXTERNALS, *matrix[1:])
            shorter, longer = sorted((matrix.inputs, matrix.outputs))
            share = self.shares.setdefault(key, Slot(shorter * -(-longer // self.lanes), SHARE))
            given = self.joined(row, self.back)
            self.back.append(Instruction(OUTER, matrix.outputs, Place(share), given, on, inputs=matrix.inputs))
        if row.value not in self.active:
            return
        named: Any = {"inputs": matrix.outputs, "matrix": self.laid_matrix(matrix, back=True)}
        if row.step == 0 or EXTERNALS <= row.value < self.program.first:
            part = Place(Slot(matrix.inputs))
            self.back.append(Instruction(LINEAR, matrix.inputs, part, on, None, **named))
            self.give(row, part)
            return
        add = self.begin(row.value, whole=row.width == self.program.widths[row.value])
        to = Place(self.cotangent(row.value), row.start)
        self.back.append(Instruction(LINEAR, matrix.inputs, to, on, to if add else None, **named))

    # All together

    def code(self) -> Code:
        program = self.program
        numbered = list(enumerate(program.ops, program.first))
        for number, op in numbered:
            self.evaluate(number, op)
        rate, on_rate = Slot(program.points, RATE, 0), Slot(program.points, RATE, 0)
        for start, piece in zip(_starts(program.rate), program.rate, strict=True):
            self.there.append(Instruction(SCALED, piece.width, Place(rate, start), self.place(piece)))
        if self.graded is not None:
            for start, piece in zip(_starts(program.rate), program.rate, strict=True):
                self.give(piece, Place(on_rate, start))
            for number, op in reversed(numbered):
                if number in self.written:
                    self.pull_back(number, op)
            if STATE not in self.written:
                self.begin(STATE, whole=False)
        return self.laid_out()

    def laid_out(self) -> Code:
        """With a place for everything."""
        read = {id(p.slot) for op in self.back for p in op.places}
        noted: list[Slot] = []
        for op in self.there:
            for slot in (p.slot for p in op.places):
                if slot.space == WORK and id(slot) in read:
                    slot.space = NOTES
                    noted.append(slot)
        notes = in_a_row(noted)
        work = max(packed(self.there), packed(self.back))
        layers, shares = in_a_row(self.layers.values()), in_a_row(self.shares.values())
        blocks = [(*key, slot.offset * self.lanes) for kept in (self.layers, self.shares) for key, slot in kept.items()]
        ops = np.array([op.encoded(self.lanes) for op in (*self.there, *self.back)], INSTRUCTION)
        sizes = {"laid": layers * self.lanes, "shared_out": shares * self.lanes, "noted": notes, "working": work}
        constants = np.array(self.program.constants or (0.0,), np.float64)
        return Code(ops, len(self.there), np.array(blocks, BLOCK), len(self.layers), constants, sizes)


def _starts(pieces: Sequence[Columns]) -> list[int]:
    """Where pieces begin that lie one after the other."""
    return [sum(c.width for c in pieces[:k]) for k in range(len(pieces))]
