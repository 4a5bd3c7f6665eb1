"""Instructions for native_rows.h, and where the values lie that they work on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NOTES, WORK, ROW, CLOCK, LAYERS, RATE, ON_Z, SHARE = range(8)
LINEAR, UNARY, NOTED, DERIVED, SCALED, SUM, QUOTIENT, GATE, OUTER, ABOVE, AT_LEAST = range(11)
FIELDS = ("code", "kind", "n", "in", "to", "a", "b", "matrix", "to_step", "a_step", "b_step", "add", "x", "y")
INSTRUCTION = np.dtype([(name, "f8" if name in "xy" else "i8") for name in FIELDS])
BLOCK = np.dtype([(name, "i8") for name in ("external", "offset", "in", "out", "by_in", "by_out", "place")])


@dataclass(eq=False)
class Slot:
    """Where a value lies; how that is laid out is decided at last."""

    width: int
    space: int = WORK
    offset: int = -1


@dataclass(frozen=True)
class Place:
    """Some vectors of a slot."""

    slot: Slot
    start: int = 0
    step: int = 1

    @property
    def address(self) -> int:
        return (self.slot.offset + self.start) * 8 + self.slot.space


@dataclass(frozen=True)
class Instruction:
    code: int
    n: int
    to: Place
    a: Place
    b: Place | None = None
    noted: Place | None = None
    kind: int = 0
    inputs: int = 0
    matrix: Slot | None = None
    add: bool = False
    x: float = 1.0
    y: float = 1.0

    @property
    def places(self) -> list[Place]:
        return [p for p in (self.to, self.a, self.b, self.noted) if p is not None]

    def encoded(self, lanes: int) -> tuple[Any, ...]:
        """As C reads it."""
        matrix = self.noted.address if self.noted else self.matrix.offset * lanes if self.matrix else 0
        b, by_b = (-1, 0) if self.b is None else (self.b.address, self.b.step)
        addresses = (self.to.address, self.a.address, b, matrix)
        steps = (self.to.step, self.a.step, by_b, int(self.add))
        return self.code, self.kind, self.n, self.inputs, *addresses, *steps, self.x, self.y


def in_a_row(slots: Iterable[Slot]) -> int:
    """Places one after the other; how much room they take."""
    end = 0
    for slot in slots:
        slot.offset, end = end, end + slot.width
    return end


def packed(ops: Sequence[Instruction]) -> int:
    """Places for what is needed only for a while, used again and again; how much room they take."""
    first: dict[Slot, int] = {}
    last: dict[Slot, int] = {}
    for k, op in enumerate(ops):
        for slot in (p.slot for p in op.places if p.slot.space == WORK):
            first.setdefault(slot, k)
            last[slot] = k
    placed: list[Slot] = []
    for slot in sorted(first, key=first.__getitem__):
        busy = sorted((s.offset, s.offset + s.width) for s in placed if last[s] >= first[slot])
        slot.offset = next(start for start in _gaps(busy) if _is_free(busy, start, slot.width))
        placed.append(slot)
    return max((s.offset + s.width for s in placed), default=0)


def _gaps(busy: Sequence[tuple[int, int]]) -> Iterator[int]:
    yield 0
    yield from (end for _, end in busy)


def _is_free(busy: Sequence[tuple[int, int]], start: int, width: int) -> bool:
    return all(start + width <= begin or end <= start for begin, end in busy)
