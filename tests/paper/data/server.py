"""A web server on the loopback that can misbehave in the ways that servers do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any


class FileServer(HTTPServer):
    """Serves `files` by path, and remembers which ranges it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.knows_ranges = True
        self.chunked = False
        self.cut_after: int | None = None
        """So many bytes a connection, then it breaks."""
        self.garbage = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name, wanted = self.path.lstrip("/"), self.headers.get("Range")
        self.server.asked.append((name, wanted))
        if self.server.garbage:
            self.wfile.write(b"this is not HTTP\r\n\r\n")
        elif name not in self.server.files:
            self.send_error(404)
        else:
            self._send(self.server.files[name], wanted)

    def _send(self, body: bytes, wanted: str | None) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", wanted or "") if self.server.knows_ranges else None
        start = int(found[1]) if found else 0
        if start >= len(body):
            self.send_error(416)
            return
        if self.server.chunked:
            self.protocol_version = "HTTP/1.1"  # chunks do not exist in HTTP/1.0
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) - start))
        self.send_header("Connection", "close")
        self.end_headers()
        self._send_body(body[start:])

    def _send_body(self, body: bytes) -> None:
        """What comes before the cut; chunks announce all of it, so that the client misses the rest."""
        if self.server.chunked:
            self.wfile.write(f"{len(body):x}\r\n".encode())
        self.wfile.write(body[: self.server.cut_after])
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its failures."""


@contextmanager
def serving() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
