"""Tidy tables: rows of one dataclass, an observation each, as CSV that any tool reads, written whole or not at all.

A column is a field: text, a whole number, a number, or true or false. A missing value is an empty cell, true and false
are words, and numbers come back as they went: floats are written with all their digits.
"""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from windermere.records.atomic import damaged, read_bytes, write_atomically

R = TypeVar("R")
WORDS = {True: "true", False: "false"}
KINDS = {str: "a word", int: "a whole number", float: "a number", bool: "true or false"}


def sparse() -> Any:
    """A field whose column is left out of a table where no row has a value for it."""
    return field(default=None, metadata={"sparse": True})


def write_rows(path: Path, kind: type[R], rows: Iterable[R]) -> None:
    """Columns are the fields of `kind`, in their order."""
    RowFile(path, kind).write(rows)


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """What `write_rows` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    try:
        header, *lines = list(csv.reader(io.StringIO(read_bytes(path).decode()), strict=True)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, str(error)) from error
    columns = _columns_of(path, kind, header)
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise damaged(path, f"line {number} has {len(line)} cells, and the first one {len(header)}")
    return [_row(path, number, kind, columns, line) for number, line in enumerate(lines, start=2)]


class RowFile(Generic[R]):
    """A table's file that one process adds to again and again: rows that it has read or written are not read again
    while the file is as it was, and what they are as text is not made again."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self.path, self.kind = path, kind
        self._stamp: tuple[int, ...] | None = None
        self._rows: Sequence[R] = ()
        self._columns: Sequence[_Column] = ()
        self._lines: dict[int, str] = {}
        """By the identity of the rows above, which live as long."""

    def read(self) -> Sequence[R]:
        """The same object as the last time, if nothing has changed."""
        stamp = _stamp(self.path.stat()) if self.path.exists() else None
        if stamp is None or stamp != self._stamp:
            self._rows, self._lines, self._stamp = read_rows(self.path, self.kind), {}, stamp
        return self._rows

    def write(self, rows: Iterable[R]) -> None:
        rows = list(rows)
        columns = [
            column
            for column in _columns(self.kind)
            if not column.sparse or any(getattr(row, column.field) is not None for row in rows)
        ]
        known = self._lines if self._columns == columns else {}
        lines = {id(row): known.get(id(row)) or _line(columns, row) for row in rows}
        header = _CSV.writerow([column.name for column in columns])
        written = write_atomically(self.path, "".join([header, *(lines[id(row)] for row in rows)]).encode())
        self._rows, self._columns, self._lines, self._stamp = rows, columns, lines, _stamp(written)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    """What changes with a file that is replaced whole."""
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass(frozen=True)
class _Column:
    field: str
    kind: type
    optional: bool
    sparse: bool

    @property
    def name(self) -> str:
        """The field's name; `class_` stands for `class`, which no field may be called."""
        return self.field.removesuffix("_")

    def write(self, value: Any) -> str:
        if value is None:
            return ""
        return repr(float(value)) if self.kind is float else WORDS[value] if self.kind is bool else str(value)

    def read(self, cell: str) -> Any:
        if cell == "" and self.optional:
            return None
        if cell == "" or (self.kind is bool and cell not in WORDS.values()):
            raise ValueError(cell)
        return cell == WORDS[True] if self.kind is bool else self.kind(cell)


class _Text:
    """A file for `csv` that gives back what is written."""

    def write(self, text: str) -> str:
        return text


_CSV: Any = csv.writer(_Text(), lineterminator="\n")


def _line(columns: Sequence[_Column], row: object) -> str:
    return str(_CSV.writerow([column.write(getattr(row, column.field)) for column in columns]))


def _columns(kind: type) -> list[_Column]:
    found, hints = [], get_type_hints(kind)
    for one in fields(kind):
        kinds = set(get_args(hints[one.name]) or (hints[one.name],))
        (of,) = kinds - {NoneType}
        found.append(_Column(one.name, of, NoneType in kinds, "sparse" in one.metadata))
    return found


def _columns_of(path: Path, kind: type, header: Sequence[str]) -> list[_Column]:
    known = {column.name: column for column in _columns(kind)}
    if lacking := [column.name for column in known.values() if column.name not in header and not column.sparse]:
        raise damaged(path, f"the column {lacking[0]} is missing")
    if others := [name for name in header if name not in known]:
        raise damaged(path, f"a column '{others[0]}' does not belong there")
    return [known[name] for name in header]


def _row(path: Path, number: int, kind: type[R], columns: Sequence[_Column], line: Sequence[str]) -> R:
    values = {}
    for column, cell in zip(columns, line, strict=True):
        try:
            values[column.field] = column.read(cell)
        except ValueError as error:
            words = f"line {number} has '{cell}' for {column.name}, which is {KINDS[column.kind]}"
            raise damaged(path, words) from error
    return kind(**values)
