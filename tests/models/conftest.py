"""Fixtures of the models' tests."""

import pytest

from windermere.models import compiled, native


@pytest.fixture(params=["compiled", "operations"])
def each_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense walk in C, where there is a compiler, and as PyTorch operations."""
    if request.param == "operations":
        monkeypatch.setattr(native, "can_walk", lambda *_: False)
    elif compiled.library("double") is None:
        pytest.skip("no C compiler here")
