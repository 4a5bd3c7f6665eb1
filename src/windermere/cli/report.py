"""What `windermere report` does."""

from pathlib import Path

from windermere.cli.console import stdout
from windermere.cli.places import check_page
from windermere.records import read_json, write_atomically
from windermere.report.page import audit_page
from windermere.report.reading import saved_verdicts


def write_report(verdict: Path, out: Path | None) -> None:
    page = out or verdict.with_suffix(".html")
    check_page(page, "out")
    saved = saved_verdicts(read_json(verdict))
    write_atomically(page, audit_page(saved.records, title=saved.title, lead=saved.lead).encode())
    stdout.print(f"page: {page}", soft_wrap=True)
