"""Tidy tables come back from their files as they went."""

from pathlib import Path

import pytest

from windermere.errors import RunError
from windermere.records import Row, read_rows, write_rows


def test_every_kind_of_value_comes_back_as_it_went(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"run": "euler-1", "seed": 0, "accuracy": 0.1 + 0.2, "own": True, "tolerance": None},
        {"run": 'a "quoted", name\nin two lines', "seed": -7, "accuracy": 1e-300, "own": False, "tolerance": 1e-06},
    ]
    write_rows(tmp_path / "table.csv", rows)
    assert read_rows(tmp_path / "table.csv") == rows


def test_a_row_without_a_column_of_another_has_none_there(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", [{"a": 1}, {"b": 2.0, "a": 3}])
    assert read_rows(tmp_path / "t.csv") == [{"a": 1, "b": None}, {"a": 3, "b": 2.0}]


def test_a_table_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "t.csv") == []


def test_a_cut_table_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(RunError, match=r"t\.csv.*line 3 has 1 cells, and the first one 2"):
        read_rows(tmp_path / "t.csv")


def test_whole_floats_stay_floats(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", [{"x": 2.0, "n": 2}])
    (row,) = read_rows(tmp_path / "t.csv")
    assert (type(row["x"]), type(row["n"])) == (float, int)
