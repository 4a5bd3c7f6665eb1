"""Where commands may write, looked at before the work that takes a while."""

import os
from pathlib import Path

from windermere.errors import UsageError
from windermere.records import in_the_way


def check_page(page: Path, flag: str) -> None:
    """A page has one ending: by another a browser would take it for something else."""
    if page.suffix != ".html":
        raise UsageError(f"a page is saved as .html, and '{page.name}' is not: call it {page.stem}.html")
    check_place(page, "page", flag)


def check_place(place: Path, what: str, flag: str) -> None:
    """Whether a file may be written there."""
    folder = place.absolute().parent
    taken = in_the_way(place)
    why = f"{folder} is not a folder" if not folder.is_dir() else f"it is {taken}" if taken else None
    why = why or (None if os.access(folder, os.W_OK) else f"nothing may be written into {folder}")
    if why is not None:
        raise UsageError(f"the {what} {place} cannot be written, since {why}: choose another place with --{flag}")
