"""Batches: shuffled epochs, the same for a seed whatever else happens."""

import pytest
import torch

from windermere.errors import UsageError
from windermere.paper.training.batches import Batches


def test_a_batch_depends_on_seed_and_iteration_only() -> None:
    """Not on what was drawn before, on the other members, or on the global generator."""
    together, alone = Batches(100, 30, [5, 7], "cpu"), Batches(100, 30, [7], "cpu")
    in_order = [together.indices(i)[1].clone() for i in range(12)]
    torch.manual_seed(123)
    for iteration in (11, 0, 7, 3, 4):
        assert torch.equal(alone.indices(iteration)[0], in_order[iteration])


def test_drawing_batches_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    Batches(100, 30, [0], "cpu").indices(5)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_epoch_is_a_permutation_with_the_last_incomplete_batch_dropped() -> None:
    batches = Batches(100, 30, [0, 1], "cpu")
    assert batches.per_epoch == 3
    for epoch in range(3):
        drawn = torch.cat([batches.indices(3 * epoch + i) for i in range(3)], dim=1)
        assert drawn.shape == (2, 90)
        for member in drawn:
            assert len(member.unique()) == 90
            assert 0 <= int(member.min()) <= int(member.max()) < 100


def test_a_batch_of_all_samples_holds_each_of_them() -> None:
    batches = Batches(8, 8, [3], "cpu")
    for iteration in range(4):
        assert batches.indices(iteration)[0].sort().values.tolist() == list(range(8))


def test_members_and_epochs_are_shuffled_differently() -> None:
    batches = Batches(100, 100, range(5), "cpu")
    orders = torch.cat([batches.indices(epoch) for epoch in range(5)])
    assert len({tuple(order.tolist()) for order in orders}) == 25


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UsageError, match="a batch of 101 cannot be drawn from 100 training samples"):
        Batches(100, 101, [0], "cpu")
