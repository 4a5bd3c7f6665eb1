"""The dense walk, each way that there is."""

import pytest

from tests.torches import TORCH
from windermere.fast.cpu import compiled, native


@pytest.fixture(autouse=True)
def _fast_paths() -> None:
    """An older PyTorch does not tell all that they must know, and solves go the plain way."""
    if TORCH < (2, 4):
        pytest.skip("fast paths need PyTorch 2.4 or newer")


@pytest.fixture(params=["compiled", "operations"])
def each_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense walk in C, where there is a compiler, and as PyTorch operations."""
    if request.param == "operations":
        monkeypatch.setattr(native, "can_walk", lambda *_: False)
    elif compiled.library("double", "sphere") is None:
        pytest.skip("no C compiler here")
