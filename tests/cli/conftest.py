"""The command line in this process, and models for it to audit."""

import sys
from pathlib import Path

import pytest

from tests.cli.commands import Answer, Command
from tests.cli.rotations import ROTATION
from windermere import cli


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, coarse_pictures: None
) -> Command:
    """Calls `windermere ...` in this process, through its entry point, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("WINDERMERE_DATA", str(tmp_path / "datasets"))

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["windermere", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return Answer(int(left.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def models(tmp_path: Path) -> None:
    (tmp_path / "rotations.py").write_text(ROTATION)
    (tmp_path / "elsewhere" / "taken.png").mkdir(parents=True)
