"""Which entries are alike, among the cells of a field that is traced."""

import pytest
import torch

from windermere.fast.cells import ALIKE_AT_MOST, UnknownRowError, alike, distinct_columns


@pytest.mark.parametrize("shape", [(1, 7), (2, 100), (5, 60), (3, 1), (2, 0), (0, 4)])
@pytest.mark.parametrize("numbers", [1, 2, 1000])
def test_distinct_columns_are_those_of_pytorch_in_its_order(shape: tuple[int, int], numbers: int) -> None:
    table = torch.randint(numbers, shape, generator=torch.Generator().manual_seed(0)) << 40
    found, which = distinct_columns(table)
    assert torch.equal(found[:, which], table)
    if table.numel():
        assert torch.equal(found, torch.unique(table, dim=1))


def test_rows_that_are_all_different_are_too_many() -> None:
    rows = torch.arange(ALIKE_AT_MOST + 1).unsqueeze(1).expand(-1, 3)
    assert len(alike(rows[1:])[0]) == ALIKE_AT_MOST
    with pytest.raises(UnknownRowError, match="something else for each row"):
        alike(rows)
