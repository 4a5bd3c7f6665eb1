"""One Chromium for all tests of this folder: to start one takes as long as three of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.report.opened import FOUND


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=FOUND, args=["--no-sandbox"])
        yield found
        found.close()
