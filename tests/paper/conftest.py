"""The paper's experiments are tried with newer releases of PyTorch than the library."""

import pytest

from tests.torches import TORCH
from windermere.paper.training.runs import OLDEST_PYTORCH


@pytest.fixture(autouse=True)
def _trains() -> None:
    if TORCH < OLDEST_PYTORCH:
        pytest.skip("training needs a newer PyTorch")
