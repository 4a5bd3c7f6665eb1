"""Verdicts in files: a page to open and to send, JSON to make that page again from, or a figure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windermere.errors import UsageError
from windermere.records import environment, write_atomically, write_json
from windermere.report.packing import pack
from windermere.report.page import audit_page

if TYPE_CHECKING:
    from windermere.auditing.verdict import Verdict

PAGES, FIGURES = (".html", ".json"), (".png", ".svg")


def record_of(
    verdict: "Verdict", *, name: str | None = None, about: Mapping[str, Any] | None = None, date: str | None = None
) -> dict[str, Any]:
    """All that a page needs of a verdict, as plain values for JSON. `about` is what the caller knows of the model, its
    data and its seed; `date` is when the audit took place, today where it is not given."""
    scene = None if verdict.scene is None else verdict.scene()
    return {
        **verdict.to_dict(),
        "name": name or "the model",
        "provenance": {**(about or {}), **provenance(date)},
        "scene": None if scene is None else pack(scene),
    }


def provenance(date: str | None = None) -> dict[str, Any]:
    """When, and with which versions of what."""
    known = environment("cpu")
    changed = {True: " (with changes)"}.get(known["dirty"], "")
    commit = None if known["commit"] is None else f"{known['commit'][:12]}{changed}"
    told = {"date": date or datetime.now(UTC).date().isoformat(), "windermere": known["windermere"]}
    if commit is not None:
        told["commit"] = commit
    return {**told, **{each: known[each] for each in ("python", "torch", "numpy", "platform")}}


def page_path(path: Path | str) -> Path:
    """Where a verdict may be saved."""
    place = Path(path)
    if place.suffix not in (*PAGES, *FIGURES):
        raise UsageError(f"a verdict is saved as .html, .json, .png or .svg, and '{place.name}' ends in none of these")
    return place


def save_records(
    records: Sequence[Mapping[str, Any]], path: Path | str, *, title: str | None = None, lead: str | None = None
) -> None:
    """Saves one verdict or more as a page, or as JSON for the same page."""
    place = Path(path)
    if place.suffix == ".html":
        write_atomically(place, audit_page(records, title=title, lead=lead).encode())
    else:
        alone = len(records) == 1 and title is None and lead is None
        write_json(place, records[0] if alone else {"title": title, "lead": lead, "verdicts": list(records)})
