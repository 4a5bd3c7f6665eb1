"""The solvers on their own: step by step, whatever fast paths other rooms have registered."""

import pytest

from windermere.solvers import paths


@pytest.fixture(autouse=True)
def _step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_paths", ())
