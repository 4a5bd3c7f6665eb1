"""Tidy tables: rows of one dataclass, an observation each, as CSV that any tool reads, written whole or not at all.

A column is a field: text, a whole number, a number, or true or false. A missing value is an empty cell, true and false
are words, and numbers come back as they went: floats are written with all their digits.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from windermere.records.atomic import damaged, read_bytes, write_atomically

R = TypeVar("R")
WORDS = {True: "true", False: "false"}
KINDS = {str: "a word", int: "a whole number", float: "a number", bool: "true or false"}


def sparse() -> Any:
    """A field whose column is left out of a table where no row has a value for it."""
    return field(default=None, metadata={"sparse": True})


def write_rows(path: Path, kind: type[R], rows: Iterable[R]) -> None:
    """Columns are the fields of `kind`, in their order."""
    rows = list(rows)
    columns = [
        column
        for column in _columns(kind)
        if not column.sparse or any(getattr(row, column.field) is not None for row in rows)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([column.write(getattr(row, column.field)) for column in columns] for row in rows)
    write_atomically(path, text.getvalue().encode())


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


@dataclass(frozen=True)
class _Column:
    field: str
    kind: type
    optional: bool
    sparse: bool

    @property
    def name(self) -> str:
        """That of the field; `class_` stands for `class`, which no field may be called."""
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
