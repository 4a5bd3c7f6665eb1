"""Training asks for the PyTorch it needs, before anything is written."""

from pathlib import Path

import pytest
import torch

from tests.paper.training.small import a_config
from windermere.errors import UsageError
from windermere.paper.training import open_run


@pytest.mark.parametrize("version", ["2.0.1+cu117", "2.3.1", "1.13.1"])
def test_an_older_pytorch_is_refused_in_a_sentence_and_nothing_is_written(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UsageError, match=r"training needs PyTorch 2.4 or newer, and this is .*: install a newer one"):
        open_run(tmp_path / "run", a_config())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", ["2.4.0", "2.10.0a0+git1", "3.0.0"])
def test_a_newer_one_is_not(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with open_run(tmp_path / "run", a_config()) as run:
        assert run.path.is_dir()
