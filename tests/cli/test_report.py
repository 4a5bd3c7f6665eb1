"""`windermere report`, and pages of audits."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Command, assert_one_sentence
from tests.report.records import a_record

pytestmark = pytest.mark.usefixtures("models")


def test_an_audit_writes_a_page_and_its_answer_makes_one_too(run: Command, tmp_path: Path) -> None:
    answer = run("audit", "rotations:fine", "--html", "audit.html")
    assert answer.code == 0
    assert answer.out.endswith("page: audit.html\n")
    page = (tmp_path / "audit.html").read_text()
    assert "rotations:fine" in page
    assert '"scene":{' in page


def test_an_answer_in_json_stays_json_beside_a_page(run: Command, tmp_path: Path) -> None:
    answer = run("audit", "rotations:fine", "--json", "--html", "audit.html")
    assert "page: audit.html" in answer.err
    (tmp_path / "answer.json").write_text(answer.out)
    assert run("report", "answer.json").out == "page: answer.html\n"
    assert "rotations:fine" in (tmp_path / "answer.html").read_text()


def test_a_saved_verdict_becomes_a_page_where_it_is_asked_for(run: Command, tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(a_record(name="mine")))
    assert run("report", "verdict.json", "-o", "elsewhere/mine.html").code == 0
    assert "mine" in (tmp_path / "elsewhere" / "mine.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("audit", "rotations:raising", "--html", "audit.htm"), r"'audit.htm' is not: call it audit.html"),
        (("audit", "rotations:raising", "--html", "nowhere/a.html"), r"a.html cannot be written, .* with --html"),
        (("report", "missing.json"), r"missing.json does not exist: give a .json file that verdict"),
        (("report", "."), r"\. is a folder: give a .json file .* `windermere audit \. --html audit.html`"),
        (("report", "rotations.py", "-o", "a.html"), r"rotations.py is no JSON: give a .json file"),
        (("report", "empty.json"), r"this is no saved verdict"),
        (("report", "newer.json"), r"written in version 2 of the schema, and version 1 is read here"),
        (("report", "empty.json", "--out", "nowhere/a.html"), r"page nowhere/a.html cannot be written, .* with --out"),
    ],
)  # fmt: skip
def test_what_makes_no_page_is_told_in_one_sentence(
    run: Command, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "newer.json").write_text('{"model": {"version": 2, "outcome": "FLOW", "own": {}}}')
    assert_one_sentence(run(*arguments), sentence)
    assert not list(tmp_path.rglob("*.html"))
