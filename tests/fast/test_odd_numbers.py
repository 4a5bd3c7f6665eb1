"""What is no number, or infinite, goes through every operation in C as through PyTorch's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.fast.odd_numbers import OF_ONE, OF_TWO, met
from windermere.fast.cpu import compiled
from windermere.solvers import integrate

pytestmark = pytest.mark.usefixtures("fresh_programs")


@pytest.fixture(autouse=True)
def _nobody_looks_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled.library("double", "rows") is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(integrate, "is_finite", lambda x: True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("function", "of"), [*((f, 1) for f in OF_ONE), *((f, 2) for f in OF_TWO)])
def test_odd_numbers_are_taken_as_by_pytorch(
    function: Callable[..., Tensor], of: int, dtype: torch.dtype, taken: list[str]
) -> None:
    found, wanted = met(function, "cpu", dtype, of)
    assert taken == ["there", "there"]
    torch.testing.assert_close(found, wanted, equal_nan=True)
