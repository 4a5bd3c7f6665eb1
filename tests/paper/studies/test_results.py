"""The committed tables: each is read into its rows, and written again as it was."""

from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from windermere.paper.studies.registry import ALL
from windermere.paper.studies.rows import Table
from windermere.paper.studies.study import Study
from windermere.paper.studies.table1 import LINES, TABLE1

TABLES = [(study, table) for study in ALL for table in study.tables]


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="a source distribution has no results")
@pytest.mark.parametrize(
    ("study", "table"), [*TABLES, (TABLE1, LINES)], ids=[f"{s.name}/{t.name}" for s, t in [*TABLES, (TABLE1, LINES)]]
)
def test_a_committed_table_is_the_same_byte_by_byte_when_it_is_written_again(
    study: Study, table: Table[Any], tmp_path: Path
) -> None:
    rows = table.read(ROOT / "results" / study.name)
    table.write(tmp_path, rows)
    name = f"{table.name}.csv"
    assert rows
    assert (tmp_path / name).read_bytes() == (ROOT / "results" / study.name / name).read_bytes()
