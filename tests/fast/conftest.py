"""Which functions in C were called."""

from typing import Any

import pytest

from windermere.fast.cpu import native_call


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions of native.c that were called."""
    names: list[str] = []
    run = native_call.Call.run

    def noted(self: Any, name: str, *given: Any) -> None:
        names.append(name)
        run(self, name, *given)

    monkeypatch.setattr(native_call.Call, "run", noted)
    return names
