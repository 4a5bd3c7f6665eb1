"""What is no number, or infinite, goes through every operation of a kernel as through PyTorch's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.fast.odd_numbers import OF_ONE, OF_TWO, met
from windermere.solvers import integrate


@pytest.mark.parametrize(("function", "of"), [*((f, 1) for f in OF_ONE), *((f, 2) for f in OF_TWO)])
def test_odd_numbers_are_taken_as_by_pytorch(
    function: Callable[..., Tensor], of: int, device: str, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrate, "is_finite", lambda x: True)
    found, wanted = met(function, device, torch.float64, of)
    assert launched == ["there", "there"]
    torch.testing.assert_close(found, wanted, equal_nan=True)
