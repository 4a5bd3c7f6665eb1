"""The dense walk, each way that there is."""

import pytest

from windermere.fast.cpu import compiled, native


@pytest.fixture(params=["compiled", "operations"])
def each_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense walk in C, where there is a compiler, and as PyTorch operations."""
    if request.param == "operations":
        monkeypatch.setattr(native, "can_walk", lambda *_: False)
    elif compiled.library("double", "sphere") is None:
        pytest.skip("no C compiler here")
