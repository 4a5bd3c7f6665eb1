"""What all tests share: one torch thread, Ctrl-C, and surroundings that say nothing of a terminal.

Small models gain nothing from a second thread, and lose much side by side. Rich and Typer take some variables, among
them one of GitHub's machines, for a terminal in colours or of a certain width, and some of them when first imported.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.disks import mount

for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "LINES", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, and all it starts, would ignore it


@pytest.fixture(autouse=True)
def _one_thread_is_left() -> Iterator[None]:
    """More would slow down all tests that follow, tenfold where processes fight for two cores."""
    yield
    assert torch.get_num_threads() == 1


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
