"""Arrays as text: what comes back is what went in, to the grid."""

from typing import Any

import numpy as np
import pytest

from windermere.errors import UsageError
from windermere.report.packing import LEVELS, pack, unpack


@pytest.mark.parametrize("shape", [(5,), (1, 2), (25, 40, 2)])
def test_numbers_come_back_to_within_half_a_level(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).uniform(-2, 2, shape)
    again = unpack(pack({"some": [values]}))["some"][0]
    assert again.shape == shape
    assert np.abs(again - values).max() <= 0.5 / LEVELS + 1e-12


def test_the_largest_jumps_come_back_too() -> None:
    values = np.array([-31.9, 31.9, -31.9, 31.9])
    assert np.abs(unpack(pack(values)) - values).max() <= 0.5 / LEVELS + 1e-12


def test_classes_come_back_as_they_were() -> None:
    classes = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert (unpack(pack(classes)) == classes).all()


def test_packing_twice_changes_nothing_more() -> None:
    once = pack({"a": np.linspace(-1, 1, 7), "b": "text", "c": None})
    assert pack(once) == once
    assert pack(unpack(once)) == once


@pytest.mark.parametrize("value", [np.nan, np.inf, 40.0])
def test_what_does_not_fit_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="must be finite and within 32 of zero"):
        pack(np.array([0.0, value]))


@pytest.mark.parametrize("damage", [{"data": "!"}, {"data": "AAAA"}, {"shape": [3]}, {"data": None}])
def test_a_damaged_array_is_told(damage: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"cannot be read .*: save the verdict again"):
        unpack({**pack(np.zeros(5)), **damage})
