"""Saved verdicts: which records a JSON file holds, whichever way it was made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windermere.errors import UsageError
from windermere.report.words import Record

VERSION = 1
"""The version of a verdict's schema. It rises where a field changes its meaning or goes; a new field alone does not
raise it."""
NO_VERDICTS = (
    "this is no saved verdict: give a .json file that verdict.save(...) has written, or an audit's answer as JSON"
)


@dataclass(frozen=True)
class Saved:
    """What a page is made from again."""

    records: list[Record]
    title: str | None = None
    lead: str | None = None


def saved_verdicts(value: Any) -> Saved:
    """One verdict, several under `verdicts`, or several by name, as an audit on the command line prints them."""
    if _is_record(value):
        return Saved(_checked([value]))
    if isinstance(value, Mapping) and isinstance(value.get("verdicts"), list):
        title, lead = (None if value.get(name) is None else str(value[name]) for name in ("title", "lead"))
        return Saved(_checked(value["verdicts"]), title, lead)
    if isinstance(value, Mapping):
        return Saved(_checked([{"name": name, **_dict(record)} for name, record in value.items()]))
    return Saved(_checked(value if isinstance(value, list) else []))


def _checked(records: list[Any]) -> list[Record]:
    if not records or not all(_is_record(record) for record in records):
        raise UsageError(NO_VERDICTS)
    for record in records:
        check_version(record.get("version", VERSION))
    return records


def check_version(version: Any) -> None:
    if version != VERSION:
        raise UsageError(
            f"this verdict was written in version {version} of the schema, and version {VERSION} is read here: audit "
            "again, or read it with the windermere that wrote it"
        )


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_record(value: Any) -> bool:
    return isinstance(value, Mapping) and "outcome" in value and isinstance(value.get("own"), Mapping)
