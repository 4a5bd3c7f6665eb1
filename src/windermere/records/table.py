"""Tidy tables: one observation a row, as CSV that any tool reads, written whole or not at all.

A missing value is an empty cell, true and false are words, and numbers come back as they went: floats are written with
all their digits.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from windermere.records.atomic import damaged, read_bytes, write_atomically

Row: TypeAlias = dict[str, Any]
"""A value is None, a bool, an int, a float or a string that reads as none of these."""
WORDS = {"": None, "true": True, "false": False}


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Columns are all names that occur, in the order in which they do."""
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_written(row.get(name)) for name in columns] for row in rows)
    write_atomically(path, text.getvalue().encode())


def read_rows(path: Path) -> list[Row]:
    """What `write_rows` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    try:
        lines = list(csv.reader(io.StringIO(read_bytes(path).decode()), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, str(error)) from error
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(lines[0]):
            raise damaged(path, f"line {number} has {len(line)} cells, and the first one {len(lines[0])}")
    return [dict(zip(lines[0], map(_read, line), strict=True)) for line in lines[1:]]


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return next(word for word, meant in WORDS.items() if meant is value)
    return repr(float(value)) if isinstance(value, float) else str(value)


def _read(cell: str) -> Any:
    if cell in WORDS:
        return WORDS[cell]
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
