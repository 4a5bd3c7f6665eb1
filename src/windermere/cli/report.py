"""What `windermere report` does."""

from pathlib import Path
from typing import Any

from windermere.cli.console import stdout
from windermere.cli.places import check_page
from windermere.errors import RunError, StorageError, UsageError, describe_error
from windermere.records import read_json, write_atomically
from windermere.report.page import audit_page
from windermere.report.reading import saved_verdicts


def write_report(verdict: Path, out: Path | None) -> None:
    saved = _read(verdict)
    page = out or verdict.with_suffix(".html")
    check_page(page, "out")
    write_atomically(page, page_of(saved).encode())
    stdout.print(f"page: {page}", soft_wrap=True)


def page_of(value: Any) -> str:
    """The page of what a JSON file holds, which may be damaged in any place."""
    saved = saved_verdicts(value)
    try:
        return audit_page(saved.records, title=saved.title, lead=saved.lead)
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"this saved verdict is damaged ({describe_error(error)}): save it again, or audit again"
        ) from error


def _read(verdict: Path) -> Any:
    """A verdict may lie anywhere: words about folders of runs would mislead."""
    if verdict.is_dir():
        raise UsageError(
            f"{verdict} is a folder: give a .json file that verdict.save(...) has written; for that of a run make a "
            f"page with `windermere audit {verdict} --html audit.html`"
        )
    try:
        return read_json(verdict)
    except StorageError:
        raise
    except RunError as error:
        state = "is no JSON" if verdict.exists() else "does not exist"
        raise UsageError(
            f"{verdict} {state}: give a .json file that verdict.save(...) has written, or an audit's answer as JSON"
        ) from error
