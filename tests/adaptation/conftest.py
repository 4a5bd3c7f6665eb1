"""The real Lightning, under each of its names that is installed."""

import sys

import pytest

from tests.adaptation.kit import CALLBACK, INSTALLED, NAMES, Kit


@pytest.fixture(params=INSTALLED)
def kit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kit:
    """As for a user who has imported this name alone."""
    for name in {*NAMES, CALLBACK} - {request.param}:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Kit(request.param)
