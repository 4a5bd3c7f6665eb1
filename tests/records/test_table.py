"""Tidy tables come back from their files as they went."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from windermere.errors import RunError
from windermere.records import RowFile, read_rows, sparse, write_rows


@dataclass(frozen=True, kw_only=True)
class SomeRow:
    run: str
    seed: int
    accuracy: float
    own: bool
    tolerance: float | None = None
    class_: int = 3
    diverged_at: int | None = sparse()


ONE = SomeRow(run="euler-1", seed=0, accuracy=0.1 + 0.2, own=True)
HEADER, LINE = "run,seed,accuracy,own,tolerance,class", "euler-1,0,0.30000000000000004,true,,3"


def test_every_kind_of_value_comes_back_as_it_went(tmp_path: Path) -> None:
    name = 'a "quoted", name\nin two lines'
    rows = [ONE, SomeRow(run=name, seed=-7, accuracy=1e-300, own=False, tolerance=1e-06, class_=0, diverged_at=5)]
    write_rows(tmp_path / "table.csv", SomeRow, rows)
    assert read_rows(tmp_path / "table.csv", SomeRow) == rows


def test_a_column_that_may_be_left_out_is_where_it_is_empty(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", SomeRow, [ONE])
    assert (tmp_path / "t.csv").read_text() == f"{HEADER}\n{LINE}\n"
    assert read_rows(tmp_path / "t.csv", SomeRow) == [ONE]
    write_rows(tmp_path / "t.csv", SomeRow, [])
    assert read_rows(tmp_path / "t.csv", SomeRow) == []


def test_a_table_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "t.csv", SomeRow) == []


def test_rows_are_read_again_only_where_another_has_changed_the_file(tmp_path: Path) -> None:
    mine, others = (RowFile(tmp_path / "t.csv", SomeRow) for _ in range(2))
    assert mine.read() == []
    mine.write([ONE])
    assert mine.read() is mine.read()
    assert mine.read()[0] is ONE
    others.write([*others.read(), replace(ONE, seed=1)])
    assert [row.seed for row in mine.read()] == [0, 1]
    (tmp_path / "t.csv").unlink()
    assert mine.read() == []


def test_a_file_that_grows_is_written_as_if_at_once(tmp_path: Path) -> None:
    """Also where a row makes a column appear, or vanish, that the rows before it did without."""
    growing, rows = RowFile(tmp_path / "growing.csv", SomeRow), list[SomeRow]()
    for row in (ONE, replace(ONE, seed=1), replace(ONE, seed=2, diverged_at=7), replace(ONE, run="a, b")):
        rows.insert(0, row)
        growing.write([row, *growing.read()])
        write_rows(tmp_path / "at-once.csv", SomeRow, rows)
        assert (tmp_path / "growing.csv").read_bytes() == (tmp_path / "at-once.csv").read_bytes()
    growing.write(rows[2:])
    assert (tmp_path / "growing.csv").read_text().count("\n") == 3
    assert "diverged_at" not in (tmp_path / "growing.csv").read_text()


@pytest.mark.parametrize("text", ["1", "-1", "true", "1e5"])
def test_words_that_look_like_something_else_stay_words_and_whole_floats_floats(tmp_path: Path, text: str) -> None:
    write_rows(tmp_path / "t.csv", SomeRow, [SomeRow(run=text, seed=1, accuracy=2, own=False)])
    (row,) = read_rows(tmp_path / "t.csv", SomeRow)
    assert (row.run, row.accuracy, type(row.accuracy)) == (text, 2.0, float)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{HEADER}\n{LINE}\neuler-1,1\n", "line 3 has 2 cells, and the first one 6"),
        (f"{HEADER}\neuler-1,zero,0.5,true,,3\n", "line 2 has 'zero' for seed, which is a whole number"),
        (f"{HEADER}\neuler-1,0.5,0.5,true,,3\n", "line 2 has '0.5' for seed, which is a whole number"),
        (f"{HEADER}\neuler-1,0,,true,,3\n", "line 2 has '' for accuracy, which is a number"),
        (f"{HEADER}\neuler-1,0,0.5,yes,,3\n", "line 2 has 'yes' for own, which is true or false"),
        (f"{HEADER}\n,0,0.5,true,,3\n", "line 2 has '' for run, which is a word"),
        ("run,seed,accuracy,own,class\n", "the column tolerance is missing"),
        (f"{HEADER},colour\n", "a column 'colour' does not belong there"),
        ("", "the column run is missing"),
        (f'{HEADER}\n"euler', "unexpected end of data"),
    ],
)
def test_a_damaged_table_is_refused_in_one_sentence_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(RunError) as error:
        read_rows(tmp_path / "t.csv", SomeRow)
    assert str(error.value).startswith(f"{tmp_path / 't.csv'} is damaged ({reason}): restore it, or start")


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match=r"t\.csv is damaged \('utf-8' codec"):
        read_rows(tmp_path / "t.csv", SomeRow)
