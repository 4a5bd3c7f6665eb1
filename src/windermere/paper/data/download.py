"""One file over HTTP, with the standard library only: resumed where it stopped, and checked at the end."""

import re
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from windermere.errors import DataError
from windermere.paper.data.catalogue import Remote
from windermere.paper.data.storage import matches
from windermere.records.atomic import open_to_read, storing

CHUNK = 1 << 16
TIMEOUT = 30.0
"""Seconds without a single byte after which a connection counts as broken."""
RANGE_NOT_SATISFIABLE = 416
ELSEWHERE = "fetch the files by other means and give their folder with source=..."
"""The way out where a server does not help."""


def bring(remote: Remote, folder: Path, report: Callable[[int], None]) -> Path:
    """The remote file, whole and checked, under a name that ends in `.partial`.

    What an interrupted download left there is used; `report` hears of the bytes so far.
    """
    partial = folder / f"{remote.name}.partial"
    if length(partial) >= remote.size and not _is_right(partial, remote):
        _remove(partial)
    while (before := length(partial)) < remote.size:
        _go_on(remote, partial, report)
        # A broken connection is taken up again as long as it brings something.
        if length(partial) <= before:
            so_far = f"{length(partial):,} of {remote.size:,} bytes"
            raise DataError(
                f"the connection to {remote.url} broke off after {so_far}: run the same command again, "
                "it goes on from there"
            )
    if not _is_right(partial, remote):
        _remove(partial)
        raise DataError(
            f"what {remote.url} sent is not the published file (its checksum is not {remote.digest}) and was "
            f"deleted: run the same command again, or {ELSEWHERE}"
        )
    return partial


def length(path: Path) -> int:
    with storing(path, "read"):
        return path.stat().st_size if path.exists() else 0


def _is_right(path: Path, remote: Remote) -> bool:
    with storing(path, "read"), open_to_read(path) as handle:
        return matches(handle, remote.digest)


def _remove(path: Path) -> None:
    with storing(path, "deleted"):
        path.unlink(missing_ok=True)


def _go_on(remote: Remote, partial: Path, report: Callable[[int], None]) -> None:
    """One connection's worth of bytes, appended to what is there."""
    start = length(partial)
    with _connect(remote, partial, start) as response:
        _check_size(response, remote)
        # A server that does not know Range answers 200 and sends all of it, so the file starts over.
        resumed = response.status == 206 and _content_range(response)[0] == start
        with storing(partial, "written"), partial.open("ab" if resumed else "wb") as handle:
            _receive(response, handle, remote.size, report)


def _connect(remote: Remote, partial: Path, start: int) -> HTTPResponse:
    headers = {"User-Agent": "windermere"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = urlopen(Request(remote.url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == RANGE_NOT_SATISFIABLE:  # the server's file is shorter than what we have of it
            _remove(partial)
        raise DataError(f"the server answered {error.code} ({error.reason}) for {remote.url}: {ELSEWHERE}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"{remote.url} cannot be reached ({reason}): check the network, or {ELSEWHERE}") from error
    return response


def _content_range(response: HTTPResponse) -> tuple[int, int | None]:
    """Where the part starts and how long the whole is, out of `bytes 5-9/10`."""
    found = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not found:
        return -1, None
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _check_size(response: HTTPResponse, remote: Remote) -> None:
    """Before a byte is stored: a login page or another file under this address has another size."""
    whole = _content_range(response)[1] if response.status == 206 else response.length
    if whole not in (None, remote.size):
        raise DataError(
            f"{remote.url} is a file of {whole:,} bytes, but the published one has {remote.size:,}: {ELSEWHERE}"
        )


def _receive(response: HTTPResponse, handle: IO[bytes], size: int, report: Callable[[int], None]) -> None:
    """All that comes, up to the published size, so that no server can fill the disk."""
    done = handle.tell()
    report(done)
    while done < size and (chunk := _next_chunk(response, min(CHUNK, size - done))):
        handle.write(chunk)
        done += len(chunk)
        report(done)


def _next_chunk(response: HTTPResponse, limit: int) -> bytes:
    """The next bytes; none at the end and when the connection breaks alike, the length tells these apart."""
    try:
        return response.read1(limit)
    except (OSError, HTTPException):
        return b""
