"""Captured steps on a GPU, where there is one, and always on a CPU, recorded on tapes."""

from collections.abc import Iterator

import pytest
import torch

from tests.fast.captured.tapes import record_on_tape
from windermere.fast.captured import adjoint, back, walks
from windermere.fast.captured.path import CapturedSteps
from windermere.solvers import paths


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return str(request.param)


@pytest.fixture(autouse=True)
def _whole_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's convolutions are TF32 unless told otherwise: a rounding before them may then be 1e-3 behind them."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def path(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CapturedSteps]:
    """The only path that is asked; it captures at once."""
    if device == "cpu":
        monkeypatch.setattr(walks, "record", record_on_tape)
        monkeypatch.setattr(adjoint, "record", record_on_tape)
        monkeypatch.setattr(back, "BACK_AT_ONCE", (3, 2))  # by all ways, in short solves too
    path = CapturedSteps(devices=(device,), after=0)
    monkeypatch.setattr(paths, "_paths", (path,))
    yield path
    path.shelf.clear()
