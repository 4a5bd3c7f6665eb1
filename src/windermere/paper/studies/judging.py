"""What the tables of a study's folder say of the paper's claims."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windermere.errors import WindermereError
from windermere.paper.studies.folder import from_tables, is_quick, read_tables, refuse_another_study
from windermere.paper.studies.rows import MAIN, Table, Tables
from windermere.paper.studies.study import Finding, Study

WORDS = {True: "agrees", False: "differs", None: "open"}
NOTES = "notes.md"
"""Ours, written by hand: why we think something differs. All other text of a folder comes from its study."""


def word(finding: Finding) -> str:
    """How a finding was judged, with why it is counted apart."""
    if finding.beyond:
        return "ours"
    return f"{WORDS[finding.agrees]} ({finding.apart})" if finding.apart else WORDS[finding.agrees]


def judge(study: Study, folder: Path, others: Mapping[str, Study]) -> list[Finding]:
    """The findings of a study's folder. Some compare it with other studies, which are looked for beside it, in folders
    of their names."""
    tables = read_tables(folder, study)
    with from_tables(folder):
        return study.findings(Tables({**tables, **beside(study, folder, others)}))


def beside(study: Study, folder: Path, others: Mapping[str, Study]) -> dict[Table[Any], list[Any]]:
    """The main tables of the studies that this one is compared with, each as a table of that study's name."""
    near = {name: (folder.parent / name, others[name].main) for name in study.beside if name in others}
    return {
        Table(name, main.rows): main.read(path)
        for name, (path, main) in near.items()
        if _holds(path, others[name], quick=is_quick(folder))
    }


def _holds(path: Path, study: Study, *, quick: bool) -> bool:
    """Whether a folder holds this study, quick or not as asked, and has a table."""
    try:
        refuse_another_study(path, study)
        return (path / f"{MAIN}.csv").exists() and is_quick(path) == quick
    except WindermereError:
        return False
