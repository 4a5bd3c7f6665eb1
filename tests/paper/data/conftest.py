"""Fixtures of the data tests."""

from collections.abc import Iterator

import pytest

from .server import FileServer, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")  # a proxy would not find our loopback
    with serving() as running:
        yield running
