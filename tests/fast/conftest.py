"""Which functions in C were called, fields without a program yet, and processes that solve with their own library."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fast.workshop import COMPILER, Sound, Workshop, libraries
from tests.processes import ROOT, python
from tests.torches import TORCH
from windermere.fast import traced
from windermere.fast.cpu import compiled, native_call


@pytest.fixture(autouse=True)
def _fast_paths() -> None:
    """An older PyTorch does not tell all that they must know, and solves go the plain way."""
    if TORCH < (2, 4):
        pytest.skip("fast paths need PyTorch 2.4 or newer")


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


@pytest.fixture
def fresh_programs() -> None:
    """No field's program is known yet, and there is a compiler for those to come."""
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")
    traced._shelves.clear()
    traced._shared.clear()


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    if compiled.library("float", "sphere") is None:
        pytest.skip("no C compiler here")
    arguments = ("-m", "tests.fast.solving")
    with (
        tempfile.TemporaryDirectory() as folder,
        python(*arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asked,
    ):
        (Path(folder) / "compiler").write_text(COMPILER.format(folder=folder, real=os.environ.get("CC", "cc")))
        (Path(folder) / "calls").touch()
        (Path(folder) / "calls").chmod(0o666)
        Path(folder).chmod(0o755)  # other users compile here, too
        yield Workshop(asked, Path(folder))


@pytest.fixture(scope="session")
def sound(workshop: Workshop) -> Sound:
    cache = workshop.folder / "cache"
    answer = workshop.solve(cache)
    assert (answer.code, answer.in_c, answer.log) == (0, True, ())
    (workshop.folder / "made").chmod(0o644)  # for other users
    (kept,) = libraries(cache).iterdir()
    return Sound(kept.name, kept.read_bytes(), answer.values)
