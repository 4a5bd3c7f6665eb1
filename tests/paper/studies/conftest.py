"""The small study, run."""

from pathlib import Path

import pytest

from tests.paper.studies.small import ran


@pytest.fixture(autouse=True)
def _coarse(coarse_pictures: None) -> None:
    """Drawing is tested in `paper/figures/`."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs and seeds in one go."""
    out = tmp_path_factory.mktemp("whole")
    ended = ran(out)
    assert (ended.reason, ended.left, ended.diverged) == ("finished", [], {})
    return out
