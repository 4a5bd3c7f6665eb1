"""Every fuzzed test runs under the profile that WINDERMERE_FUZZ names."""

from collections.abc import Iterator

import pytest

from tests.fuzz import profiles

profiles.load()


@pytest.fixture(autouse=True, scope="module")
def _coarse_pictures() -> Iterator[None]:
    """No example looks at pixels. A fixture of a function would live longer than an example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windermere.report.style.DPI", 40)
        yield
