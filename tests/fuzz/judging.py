"""What a call came to: what it gave, or one sentence of ours."""

import warnings
from collections.abc import Callable
from math import isnan
from typing import Any

import torch
from torch import Tensor

from windermere.errors import WindermereError


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the WindermereError that it raises; any other exception goes on, and fails the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return call()
    except WindermereError as error:
        assert_a_sentence(str(error))
        return error


def assert_a_sentence(said: str) -> None:
    assert said.strip(), "it says nothing"
    assert "\n" not in said, said
    assert "Traceback" not in said, said
    assert len(said) < 1500, said


def parts_of(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def assert_alike(found: Any, wanted: Any, *, rtol: float, atol: float) -> None:
    """Equal in shape and dtype, and near; an `atol` that is no number is that of states which are none."""
    atol = 0.0 if isnan(atol) else atol
    assert len(parts_of(found)) == len(parts_of(wanted))
    for one, other in zip(parts_of(found), parts_of(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)
