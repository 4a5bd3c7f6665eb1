"""Kernels on a GPU, where there is one, and always on a CPU."""

import warnings
from functools import cache

import pytest
import torch

from tests.fast.gpu.host import Host, is_there
from windermere.fast import traced
from windermere.fast.gpu.driver import Gpu
from windermere.fast.gpu.path import RowsOnGpu
from windermere.solvers import paths


class Watched(Gpu):
    """A GPU, and the kernels that it was given."""

    def __init__(self) -> None:
        super().__init__(waits=True)
        self.launched = list[str]()

    def launch(self, name: str, *given: object, **named: object) -> None:
        self.launched.append(name)
        super().launch(name, *given, **named)  # type: ignore[arg-type]


@cache
def warm_up() -> None:
    """The thread of a GPU's gradients begins with a warning, which would be an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.Linear(2, 2, device="cuda")(torch.ones(2, 2, device="cuda")).sum().backward()


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    if request.param == "cpu" and not is_there():
        pytest.skip("no C++ compiler here")
    if request.param == "cuda":
        warm_up()
    return str(request.param)


@pytest.fixture
def launched(device: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched; no other path is asked."""
    engine = Host() if device == "cpu" else Watched()
    monkeypatch.setattr(paths, "_paths", (RowsOnGpu(devices=(device,), engine=engine),))
    traced._shelves.clear()
    traced._shared.clear()
    return engine.launched
