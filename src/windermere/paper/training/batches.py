"""The order of batches: a pure function of seed and iteration, so that resuming needs no state."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from windermere.errors import UsageError


class Batches:
    """Shuffled epochs for every member, the last, incomplete batch of an epoch dropped."""

    def __init__(self, samples: int, batch_size: int, seeds: Sequence[int], device: str) -> None:
        check_batch_size(batch_size, samples)
        self.per_epoch = samples // batch_size
        self.batch_size = batch_size

        @lru_cache(maxsize=1)
        def shuffled(epoch: int) -> Tensor:
            drawn = {seed: _permutation(samples, seed, epoch) for seed in set(seeds)}
            return torch.stack([drawn[seed] for seed in seeds]).to(device)

        self._shuffled = shuffled

    def indices(self, iteration: int) -> Tensor:
        """[S, B]: which samples each member sees in this iteration, counted from 0."""
        epoch, batch = divmod(iteration, self.per_epoch)
        return self._shuffled(epoch).narrow(1, batch * self.batch_size, self.batch_size)

    def several(self, start: int, count: int) -> Tensor:
        """[count, S, B]: those of as many iterations, from `start` on."""
        return torch.stack([self.indices(iteration) for iteration in range(start, start + count)])


def check_batch_size(batch_size: int, samples: int) -> None:
    if batch_size > samples:
        raise UsageError(
            f"a batch of {batch_size} cannot be drawn from {samples} training samples: take at most {samples}"
        )


def _permutation(samples: int, seed: int, epoch: int) -> Tensor:
    # Weights are drawn from `seed` itself; a large odd factor keeps batch streams away from those and each other.
    generator = torch.Generator().manual_seed((seed + 1) * 0x9E3779B97F4A7C15 % 2**63 + epoch)
    return torch.randperm(samples, generator=generator)
