"""Fixtures of the training tests."""

from collections.abc import Iterator

import pytest

from .small import one_thread


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
