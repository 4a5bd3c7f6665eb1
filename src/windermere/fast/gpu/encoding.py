"""Instructions for rows_program.h, made of those for native_rows.h: where operands lie, and who waits for whom."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windermere.fast.cpu import encoding as cpu
from windermere.fast.cpu.instructions import KINDS, Code

ON_CHIP, ROW, RATE, ON_Z, LAYERS, SHARE = range(6)
A_HAS_ROWS, B_HAS_ROWS, HAS_B, ADDS, IS_SHARED, IS_DERIVED, IS_NOTED = (1 << k for k in range(7))
NO_FUNCTION = len(KINDS)
FIELDS = (
    *("code", "kind", "n", "in", "to", "a", "b", "noted", "by_to", "by_a", "by_b", "matrix"),
    *("split", "line", "flags", "wait"),
)
OP = np.dtype([*((name, "i4") for name in FIELDS), ("x", "f8"), ("y", "f8")])
TAKEN = ("external", "offset", "in", "out", "by_in", "by_out")
BLOCK = np.dtype([(name, "i4") for name in (*TAKEN, "place", "line")])
SPACES = {cpu.NOTES: ON_CHIP, cpu.WORK: ON_CHIP, cpu.CLOCK: ON_CHIP, cpu.ROW: ROW, cpu.RATE: RATE, cpu.ON_Z: ON_Z}
SPACES |= {cpu.LAYERS: LAYERS, cpu.SHARE: SHARE}
PADDING = 16
"""At most so many numbers are left free after each row of a matrix."""


class Machine(NamedTuple):
    """A block of threads: how many there are, how many of them go in step, and how many samples they have."""

    threads: int
    lanes: int
    rows: int


class Operand(NamedTuple):
    """Numbers that an instruction reads or writes."""

    space: int
    start: int
    by: int
    """From column to column; 0 where one column is taken again and again."""
    has_rows: bool
    """Whether each sample has its own."""
    size: int
    """How many numbers there are, from the first to the last."""

    def address(self, bases: Mapping[int, int]) -> int:
        """As rows_program.h reads it: a place on chip, or one in a rate that is told at run time."""
        return self.start * 2 + 1 if self.space == RATE else (bases[self.space] + self.start) * 2

    @property
    def is_clock(self) -> bool:
        return self.space == ROW and not self.has_rows

    def lies_in(self, other: "Operand") -> bool:
        within = other.start <= self.start and self.start + self.size <= other.start + other.size
        return self.space == other.space and within

    def overlaps(self, other: "Operand") -> bool:
        apart = self.start + self.size <= other.start or other.start + other.size <= self.start
        return self.space == other.space and not apart


@dataclass(frozen=True)
class Step:
    """An instruction, with its operands where rows_program.h finds them."""

    code: int
    n: int
    to: Operand
    a: Operand
    b: Operand | None
    noted: Operand | None = None
    kind: int = NO_FUNCTION
    inputs: int = 0
    matrix: int = 0
    adds: bool = False
    derived: bool = False
    """Whether a product goes on to the way back through a function, whose value is b."""
    x: float = 1.0
    y: float = 1.0

    def moved(self, move: Callable[[Operand], Operand]) -> "Step":
        """The same with operands elsewhere."""
        b, noted = self.b and move(self.b), self.noted and move(self.noted)
        return replace(self, to=move(self.to), a=move(self.a), b=b, noted=noted)

    @property
    def written(self) -> list[Operand]:
        return [self.to] if self.noted is None else [self.to, self.noted]

    @property
    def read(self) -> list[Operand]:
        return [p for p in (self.a, self.b) if p is not None] + ([self.to] if self.adds else [])

    @property
    def touched(self) -> list[Operand]:
        return [p for p in (*self.written, self.a, self.b) if p is not None]

    @property
    def is_by_number(self) -> bool:
        """Whether number e of each operand is the business of thread e alone."""
        return self.code not in (cpu.LINEAR, cpu.OUTER) and self.to.space != SHARE and bool(self.to.by)

    def needs(self, before: "Step") -> bool:
        """Whether threads have to wait for each other after an earlier instruction, and before this one."""
        pairs = [(p, q) for p in before.written for q in self.touched] + [
            (p, q) for p in before.touched for q in self.written
        ]
        alone = self.is_by_number and before.is_by_number
        return any(p.overlaps(q) and not (alone and _is_same_place(p, q)) for p, q in pairs)


def _is_same_place(one: Operand, other: Operand) -> bool:
    return one.start == other.start and bool(one.by and other.by) and one.has_rows and other.has_rows


@dataclass(frozen=True)
class Encoding:
    """A program for one kind of block."""

    machine: Machine
    code: Code
    places: Mapping[int, tuple[int, int]]
    """Where a block of the layers lies, and how long the lines of a matrix are, by where the CPU has it."""
    layers: int
    points: int

    @classmethod
    def of(cls, code: Code, machine: Machine, points: int) -> "Encoding":
        places, end = {}, 0
        for block in code.blocks[: code.laid]:
            inputs, outputs = int(block["in"]), int(block["out"])
            line = _line(outputs, split_of(outputs, inputs, machine), machine.lanes) if outputs else 1
            places[int(block["place"])] = end, line
            end += inputs * line
        return cls(machine, code, places, end, points)

    @property
    def values(self) -> int:
        """Columns of notes and of room to work in."""
        return int(self.code.sizes["noted"] + self.code.sizes["working"])

    def operand(self, address: int, step: int, n: int) -> Operand:
        space, offset, rows = address & 7, address >> 3, self.machine.rows
        columns = n if step else 1
        if space == cpu.LAYERS:
            return Operand(LAYERS, self.places[offset][0], step, False, columns)
        if space == cpu.CLOCK:
            return Operand(ROW, self.points * rows, 0, False, 1)
        if space == cpu.SHARE:
            return Operand(SHARE, offset, step, False, columns)
        start = offset + (self.code.sizes["noted"] if space == cpu.WORK else 0)
        return Operand(SPACES[space], int(start) * rows, step * rows, True, columns * rows)

    def step(self, op: Any) -> Step:
        code, n, inputs = int(op["code"]), int(op["n"]), int(op["in"])
        own: dict[str, Any] = {"x": float(op["x"]), "y": float(op["y"]), "inputs": inputs, "adds": bool(op["add"])}
        if code in (cpu.UNARY, cpu.NOTED, cpu.DERIVED):
            own["kind"] = int(op["kind"])
        if code == cpu.NOTED:
            own["noted"] = self.operand(int(op["matrix"]), 1, n)
        if code == cpu.LINEAR:
            own["matrix"] = int(op["matrix"])
        has_b, length = int(op["b"]) >= 0, inputs if code in (cpu.LINEAR, cpu.OUTER) else n
        to = self.operand(int(op["to"]), int(op["to_step"]), n * inputs if code == cpu.OUTER else n)
        a = self.operand(int(op["a"]), int(op["a_step"]), length)
        return Step(code, n, to, a, self.operand(int(op["b"]), int(op["b_step"]), n) if has_b else None, **own)

    def encoded(self, step: Step, wait: bool, bases: Mapping[int, int]) -> tuple[Any, ...]:
        """As rows_program.h reads it."""
        place, line = self.places[step.matrix] if step.code == cpu.LINEAR else (0, 0)
        place += bases[LAYERS]
        b, noted = step.b or step.a, step.noted or step.to
        flags = A_HAS_ROWS * step.a.has_rows | B_HAS_ROWS * b.has_rows | HAS_B * (step.b is not None)
        flags |= ADDS * step.adds | IS_SHARED * (step.to.space == SHARE)
        flags |= IS_DERIVED * step.derived | IS_NOTED * (step.noted is not None)
        split = 0
        if step.code == cpu.LINEAR:
            split = split_of(step.n, step.inputs, self.machine).bit_length() - 1
        elif step.code == cpu.OUTER:
            split = min((step.n - 1).bit_length(), self.machine.threads.bit_length() - 1)
        addresses = [operand.address(bases) for operand in (step.to, step.a, b, noted)]
        strides = (step.to.by, step.a.by, b.by, place)
        return step.code, step.kind, step.n, step.inputs, *addresses, *strides, split, line, flags, wait, step.x, step.y

    def lists(self) -> tuple[list[Step], list[Step]]:
        """The steps there and back, as few as can be."""
        there, back = (
            [self.step(op) for op in ops]
            for ops in (self.code.ops[: self.code.there], self.code.ops[self.code.there :])
        )
        there, back = self.with_time_beside(there, back)
        return _into_rate(_fused(there), self.code.sizes["noted"] * self.machine.rows), _fused(_from_rate(back))

    def with_time_beside(self, there: list[Step], back: list[Step]) -> tuple[list[Step], list[Step]]:
        """Where the state and the time are put one after the other, they are read where they lie, as the time lies
        right after the state."""
        if len(there) < 2 or not all(map(_is_copy, there[:2])):
            return there, back
        one, two = there[:2]
        own = one.to._replace(size=one.to.size + two.to.size)
        follows = two.to.start == one.to.start + one.to.size and two.n == 1 and two.a.is_clock
        later = (*there[2:], *back)
        others = any(p.overlaps(own) for step in later for p in step.written)
        others |= any(p.overlaps(own) and not p.lies_in(own) for step in later for p in step.read)
        if others or one.a.space != ROW or one.a.start or one.n != self.points or not follows:
            return there, back

        def moved(p: Operand) -> Operand:
            return p._replace(space=ROW, start=p.start - own.start) if p.overlaps(own) else p

        return [step.moved(moved) for step in there[2:]], [step.moved(moved) for step in back]

    def program(self, bases: Mapping[int, int]) -> tuple[NDArray[Any], int]:
        """All instructions, and how many of them lead there; spaces on chip begin at these bases."""
        lists = [
            [self.encoded(step, wait, bases) for step, wait in zip(own, waits(own), strict=True)]
            for own in self.lists()
        ]
        return np.array([op for own in lists for op in own], OP), len(lists[0])

    def blocks(self) -> NDArray[Any]:
        """What is laid out on chip, and where."""
        laid = self.code.blocks[: self.code.laid]
        rows = [(*(int(block[name]) for name in TAKEN), *self.places[int(block["place"])]) for block in laid]
        return np.array(rows or [(0,) * 8], BLOCK)


def split_of(outputs: int, inputs: int, machine: Machine) -> int:
    """How many threads share an output of a product: a power of two."""
    most = min(machine.lanes, max(1, machine.threads // outputs), max(1, inputs))
    return 1 << (most.bit_length() - 1)


def _line(outputs: int, split: int, lanes: int) -> int:
    """The length of a matrix's lines for which threads that go in step read from different banks of the memory."""
    width = lanes // split

    def crowd(line: int) -> int:
        banks = [(part * line + unit) % lanes for part in range(split) for unit in range(min(width, outputs))]
        return max(banks.count(bank) for bank in set(banks))

    return min(range(outputs, outputs + PADDING + 1), key=lambda line: (crowd(line), line))


def _fused(steps: Sequence[Step]) -> list[Step]:
    """Products take the function along that follows right after, and gradients of matrices those of biases."""
    found: list[Step] = []
    for step in steps:
        last = found[-1] if found else None
        joined = None if last is None else _with_bias(last, step) or _joined(last, step)
        if joined is None:
            found.append(step)
        else:
            found[-1] = joined
    return found


def _with_bias(bias: Step, outer: Step) -> Step | None:
    """The gradients of a layer's bias and of its matrix as one instruction."""
    same = outer.code == cpu.OUTER and bias.code == cpu.SCALED and bias.a == outer.b and bias.n == outer.n
    plain = bias.to.space == SHARE and bias.to.by == 1 and bias.b is None and bias.x == 1 and bias.a.has_rows
    return replace(outer, noted=bias.to) if same and plain else None


def _joined(product: Step, step: Step) -> Step | None:
    """A product and what follows it as one instruction, where that can be."""
    own = product.to
    plain = product.kind == NO_FUNCTION and not product.derived
    if product.code != cpu.LINEAR or step.a != own or step.n != product.n:
        return None
    if step.code == cpu.UNARY and step.to == own and plain:
        return replace(product, kind=step.kind, x=step.x)
    if step.code == cpu.NOTED and step.noted == own and plain:
        return replace(product, kind=step.kind, x=step.x, to=step.to, noted=own)
    if step.code == cpu.DERIVED and step.to == own and plain and product.b is None and step.b is not None:
        return replace(product, kind=step.kind, x=step.x, b=step.b, derived=True) if step.b.has_rows else None
    return None


def _is_copy(step: Step) -> bool:
    return step.code == cpu.SCALED and step.b is None and not step.adds and step.x == 1 and bool(step.to.by)


def _into_rate(steps: list[Step], noted: int) -> list[Step]:
    """A product that is only copied to the rate is written there at once, unless it is among the notes, [0, noted)."""
    if len(steps) < 2:
        return steps
    product, copy = steps[-2:]
    copied = _is_copy(copy) and copy.to.space == RATE and copy.a == product.to and copy.n == product.n
    if product.code != cpu.LINEAR or product.noted is not None or not copied or product.to.start < noted:
        return steps
    return [*steps[:-2], replace(product, to=copy.to)]


def _from_rate(steps: list[Step]) -> list[Step]:
    """The cotangent of the rate is read where it lies, unless its copy is changed."""
    if not steps or not _is_copy(steps[0]) or steps[0].a.space != RATE:
        return steps
    own, rate = steps[0].to, steps[0].a
    end = next((k for k, step in enumerate(steps[1:], 1) if any(p.overlaps(own) for p in step.written)), len(steps))
    reads = [p for step in steps[1 : end + 1] for p in step.read if p.overlaps(own)]
    changed = any(p.overlaps(own) for step in steps[end : end + 1] for p in step.read)
    if changed or not all(p.lies_in(own) for p in reads):
        return steps

    def moved(p: Operand) -> Operand:
        return p._replace(space=RATE, start=p.start - own.start + rate.start) if p.overlaps(own) else p

    return [*(step.moved(moved) for step in steps[1:end]), *steps[end:]]


def waits(steps: Sequence[Step]) -> Iterator[bool]:
    """After which instructions threads wait for each other: after the last, and where the next one needs it."""
    since: list[Step] = []
    for step, after in zip_longest(steps, steps[1:]):
        since.append(step)
        wait = after is None or any(after.needs(before) for before in since)
        if wait:
            since = []
        yield wait
