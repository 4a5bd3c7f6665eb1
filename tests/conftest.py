"""What all tests share: one torch thread, Ctrl-C, and surroundings that say nothing of a terminal.

Small models gain nothing from a second thread, and lose much side by side. Rich and Typer take some variables, among
them one of GitHub's machines, for a terminal in colours or of a certain width, and some of them when first imported.
"""

import gc
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.disks import mount
from tests.processes import ROOT

for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "LINES", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
torch.set_num_threads(1)
gc.disable()  # until all tests are imported
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and all it starts, would ignore it


def pytest_collection_finish() -> None:
    """What was imported is no garbage, and to look for some there again and again takes a tenth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def _one_thread_is_left() -> Iterator[None]:
    """More would slow down all tests that follow, tenfold where processes fight for two cores."""
    yield
    assert torch.get_num_threads() == 1


@pytest.fixture
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures have few pixels and are saved in half the time, where tests do not look at their pixels."""
    monkeypatch.setattr("windermere.report.style.DPI", 40)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs `python examples/NAME OPTIONS` in this process, which has imported PyTorch already; what it prints."""

    def run(name: str, *options: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other libraries, while they are imported
            runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a tmpfs is not permitted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of all processes of this test session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder
