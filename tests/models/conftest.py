"""These states are tiny: a second thread only waits for the first, and for whatever else runs on the machine."""

from collections.abc import Iterator

import pytest
import torch

from windermere.models import compiled, native


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["compiled", "operations"])
def each_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense walk in C, where there is a compiler, and as PyTorch operations."""
    if request.param == "operations":
        monkeypatch.setattr(native, "can_walk", lambda *_: False)
    elif compiled.library("double") is None:
        pytest.skip("no C compiler here")
