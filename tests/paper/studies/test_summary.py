"""The page of results, from a made-up folder, word for word."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.disks import KINDS
from tests.paper.studies.small import TABLE, SmallRow
from tests.paper.training.small import a_config
from windermere.errors import RunError, StorageError
from windermere.paper.studies.grid_comparisons import loss_panels
from windermere.paper.studies.measuring import untested_row
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import GRID, MAIN, GridRow, Table, Tables
from windermere.paper.studies.study import Finding, Study
from windermere.paper.studies.summary import write_summary
from windermere.paper.studies.summary_words import INTRO, LEGEND, RULES
from windermere.records import write_json


@dataclass(frozen=True, kw_only=True)
class PlaceRow:
    x: int


CURVES, PLACES = Table("curves", PlaceRow), Table(MAIN, PlaceRow)


def findings(tables: Tables) -> list[Finding]:
    best = max(row.accuracy or 0 for row in tables[TABLE])
    return [
        Finding(claim="it works", ours=f"{best:.1%} | {len(tables[CURVES])} rows", agrees=True),
        Finding(claim="it is cheap", ours="not with us", agrees=False),
        Finding(claim="it is known", ours="by nobody", agrees=None),
        Finding(claim="left to others", ours="we do it", agrees=None, beyond=True),
        Finding(claim="it rests on little", ours="1 seed", agrees=True, apart="one seed"),
    ]


FIRST = Study(
    name="first",
    paper="Figure 4",
    what="what comes first",
    tables=(TABLE, CURVES),
    runs=lambda quick: dict.fromkeys(("one", "two", "three"), a_config()),
    draw=lambda tables, folder: [],
    findings=findings,
    text=lambda tables: "| more | to say |",
)
SECOND = Study(name="second", paper="Figure 5", what="what comes next", tables=(TABLE,), draw=lambda tables, folder: [])
THIRD = Study(name="third", paper="Figure 6", what="what comes last", tables=(PLACES,), draw=lambda tables, folder: [])
STUDIES = (FIRST, SECOND, THIRD)

PAGE = """
LEGEND
| study | paper | runs | agree | differ | open | apart |
|---|---|---|---|---|---|---|
| [first](#first) | Figure 4 | 2 of 3 | 1 | 1 | 1 | 1 |
| [third](#third) | Figure 6 |  | 0 | 0 | 0 | 0 |
| all |  |  | 1 | 1 | 1 | 1 |

Not run yet: second.

RULES

## first

Figure 4: what comes first.

![first: a](../results/first/a.png)

![first: b](../results/first/b.png)

<details>
<summary>Every seed</summary>

![first: a-seeds](../results/first/a-seeds.png)

</details>

| 1 | 2 |

| the paper | ours | |
|---|---|---|
| it works | 99.0% &#124; 2 rows | agrees |
| it is cheap | not with us | differs |
| it is known | by nobody | open |
| left to others | we do it | ours |
| it rests on little | 1 seed | agrees (one seed) |

| more | to say |

Runs: 2. Seeds of each: 1 to 2. Diverged, and left out: seed 1 of one (iteration 37).

Made at 0123456789, fedcba9876 with changes on NVIDIA H200, a CPU, 2025-11-15 to 2025-11-17, 1.9 h of training.

We think that it is *not* cheap.

## third

Figure 6: what comes last.

Made at an unknown commit on cpu, under a second. A quick version, scaled down.
"""


def whole_page() -> str:
    return PAGE.replace("RULES\n", RULES).replace("LEGEND\n", f"{LEGEND}\n").lstrip("\n")


def some_results(results: Path) -> None:
    first, third = results / "first", results / "third"
    for folder in (first, third, results / "second", results / "unknown"):
        folder.mkdir(parents=True)
    rows = [SmallRow(run="one", seed=0, accuracy=0.99), SmallRow(run="two", seed=0, accuracy=0.9)]
    TABLE.write(first, [*rows, SmallRow(run="one", seed=1, diverged_at=37)])
    CURVES.write(first, [PlaceRow(x=1), PlaceRow(x=2)])
    for name in ("b.png", "a-seeds.png", "a.png"):
        (first / name).write_bytes(b"")
    (first / "first.md").write_text("| 1 | 2 |\n")
    (first / "notes.md").write_text("\nWe think that it is *not* cheap.\n\n")
    clean = {"commit": "0123456789abcdef", "dirty": False, "device": "cuda", "device_name": "NVIDIA H200"}
    dirty = {"commit": "fedcba9876543210", "dirty": True, "device": "cpu", "device_name": "a CPU"}
    made = {
        "two_seeds-0": {**dirty, "finished": "2025-11-17T09:00:00+00:00", "seconds": 900.0},
        "one_seeds-0": {**clean, "finished": "2025-11-15T23:00:00+00:00", "seconds": 6000.0},
    }
    write_json(first / "provenance.json", made)
    PLACES.write(third, [PlaceRow(x=3)])
    write_json(third / "provenance.json", {"third": {"commit": None, "device": "cpu", "seconds": 0.2}})
    write_json(third / "study.json", {"study": "third", "quick": True})


def test_the_page_has_every_study_that_was_run_in_the_papers_order(tmp_path: Path) -> None:
    some_results(tmp_path / "results")
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    write_summary(tmp_path / "results", page, STUDIES)
    assert page.read_text() == f"{INTRO}\n{whole_page()}"
    write_summary(tmp_path / "results", page, STUDIES)
    assert page.read_text() == f"{INTRO}\n{whole_page()}"


def test_runs_that_were_borrowed_are_not_made_at_an_unknown_commit(tmp_path: Path) -> None:
    some_results(tmp_path)
    lent, sitting = {"borrowed": "third", "commit": "abc"}, {"commit": "fedcba9876543210", "device": "cuda"}
    own = {"commit": "0123456789abcdef", "device": "cpu", "arithmetic": "bfloat16", "resumed": [sitting]}
    made = {"third/one_seeds-0": lent, "two_seeds-0": own}
    write_json(tmp_path / "first" / "provenance.json", made)
    write_summary(tmp_path, tmp_path / "page.md", STUDIES)
    told = "\nMade at 0123456789, fedcba9876 on cpu in bfloat16, cuda in bfloat16. Taken from third (see there).\n"
    assert told in (tmp_path / "page.md").read_text()
    write_json(tmp_path / "first" / "provenance.json", {"third/one_seeds-0": lent})
    write_summary(tmp_path, tmp_path / "page.md", STUDIES)
    assert "\nTaken from third (see there).\n" in (tmp_path / "page.md").read_text()


def test_findings_get_the_tables_of_studies_beside_where_these_are_there(tmp_path: Path) -> None:
    def told(tables: Tables) -> list[Finding]:
        there = {table.name: len(rows) for table, rows in tables.items()}
        return [Finding(claim="who is there", ours=f"{there}", agrees=None)]

    some_results(tmp_path)
    write_json(tmp_path / "third" / "study.json", {"study": "third", "quick": False})  # as the first is
    third = replace(THIRD, findings=told, beside=("first", "second"))
    write_summary(tmp_path, tmp_path / "page.md", (FIRST, third))
    assert "| who is there | {'table': 1, 'first': 3} | open |" in (tmp_path / "page.md").read_text()


def test_a_folder_of_another_study_is_not_taken_for_this_one(tmp_path: Path) -> None:
    some_results(tmp_path)
    write_json(tmp_path / "first" / "study.json", {"study": "third", "quick": False})
    with pytest.raises(RunError, match="holds the study 'third', not the study 'first'"):
        write_summary(tmp_path, tmp_path / "page.md", STUDIES)
    assert not (tmp_path / "page.md").exists()


def test_a_table_without_its_columns_is_said_to_be_damaged(tmp_path: Path) -> None:
    some_results(tmp_path)
    (tmp_path / "first" / "table.csv").write_text("run,seed,iterations\none,0,60\n")
    with pytest.raises(RunError, match=r"table\.csv is damaged \(the column accuracy is missing\)"):
        write_summary(tmp_path, tmp_path / "page.md", STUDIES)


def test_a_table_without_its_rows_is_said_to_be_damaged(tmp_path: Path) -> None:
    some_results(tmp_path)
    (tmp_path / "first" / "table.csv").write_text("run,seed,iterations,accuracy\n")
    with pytest.raises(RunError, match=r"first is damaged \(a table lacks what belongs there: ValueError"):
        write_summary(tmp_path, tmp_path / "page.md", STUDIES)


def test_without_any_table_nothing_is_written_over_the_page(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("as it was")
    with pytest.raises(RunError, match="results holds no study's table: run a study first"):
        write_summary(tmp_path / "results", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == "as it was"


def test_claims_of_several_cases_stand_first_with_those_that_do_not_agree(tmp_path: Path) -> None:
    def two(tables: Tables) -> list[Finding]:
        half = Finding(claim="it drops", ours="", agrees=True, case="Sphere2")
        ours = replace(half, case="Sphere9", beyond=True)
        alone = replace(half, case="Sphere1", apart="one seed")
        return [
            half,
            replace(half, case="MNIST", agrees=False),
            ours,
            alone,
            Finding(claim="alone", ours="", agrees=True),
        ]

    def one(tables: Tables) -> list[Finding]:
        open_yet = Finding(claim="it drops", ours="", agrees=None, case="CIFAR-10")
        return [open_yet, Finding(claim="it grows", ours="", agrees=False, case="all")]

    some_results(tmp_path)
    write_summary(tmp_path, tmp_path / "page.md", (replace(FIRST, findings=two), replace(THIRD, findings=one)))
    text = (tmp_path / "page.md").read_text()
    table = """\
| the paper | agrees | differs | open | apart |
|---|---|---|---|---|
| It drops | 1 of 3 | [MNIST](#first) | [CIFAR-10](#third) | 1 agrees |
| All: it grows | 0 of 1 | [all](#third) |  |  |

| study |"""
    assert table in text
    assert "| MNIST: it drops |  | differs |" in text
    assert "| Sphere9: it drops |  | ours |" in text


def test_all_grids_are_drawn_together_where_there_are_any(tmp_path: Path) -> None:
    study, rows = find_study("sphere2-fixed"), list[GridRow]()
    for seed, loss in ((0, 0.4), (1, 0.2)):
        row = untested_row("euler-2", study.runs(False)["euler-2"], seed)
        own = replace(row, cost=2.0, test_method="euler", factor=1.0, accuracy=0.95)
        rows += [own, replace(own, own=False, test_method="rk4", factor=0.5, accuracy=0.95 - loss)]
    (tmp_path / study.name).mkdir()
    GRID.write(tmp_path / study.name, rows)
    (panel,) = loss_panels([rows])
    (curve,) = panel.curves
    assert (panel.title, curve.method, list(curve.costs)) == ("Sphere2", "euler", [2.0])
    assert np.allclose(curve.losses, [[0.4, 0.2]])
    write_summary(tmp_path, tmp_path / "page.md", (study,))
    assert "![at-a-glance](at-a-glance.png)\n\nTrained with few" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "at-a-glance.png").stat().st_size > 1000


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files on Windows")
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_the_page_replaces_files_only(tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    some_results(tmp_path / "results")
    make(page := tmp_path / "page.md")
    before = page.lstat()
    with pytest.raises(StorageError, match=rf"page\.md could not be written, because {kind} of that name is in its"):
        write_summary(tmp_path / "results", page, STUDIES)
    assert os.path.samestat(page.lstat(), before)


def test_the_page_opens_with_what_is_written_by_hand(tmp_path: Path) -> None:
    some_results(tmp_path)
    (tmp_path / "opening.md").write_text("\nIn ten lines.\n\n")
    write_summary(tmp_path, tmp_path / "page.md", STUDIES)
    assert (tmp_path / "page.md").read_text().startswith(f"{INTRO}\nIn ten lines.\n\n{LEGEND}\n")


def test_claims_of_which_seeds_were_left_out_are_told_with_these_seeds_too(tmp_path: Path) -> None:
    one = Finding(claim="it drops", ours="by 0.2", agrees=True, case="Sphere2", brief="0.2")
    other = replace(one, ours="by 0.1", agrees=False, brief="0.1")
    untouched = replace(one, case="Sphere3")
    study = replace(
        FIRST,
        findings=lambda tables: [one, untouched],
        otherwise=lambda tables: {"every seed": [other, untouched], "these seeds nowhere": [untouched]},
    )
    some_results(tmp_path)
    write_summary(tmp_path, tmp_path / "page.md", (study,))
    text = (tmp_path / "page.md").read_text()
    assert "\n| Sphere2: it drops | **agrees**: 0.2 | **differs**: 0.1 | no seed is left |\n" in text
    assert "| Sphere3: it drops | **" not in text
