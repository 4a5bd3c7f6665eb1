"""`SetDistance`: how far generated samples are from real ones, in features of one's choice.

The contract, for an audit of samplers:

    target = SetDistance("energy").against(data)    # once: what depends on the real samples alone
    own, flow = target.measure(x), target.measure(y)   # once for each solver; x and y are from the same noise, in order
    gap = set_gap(own, flow)                        # how much farther own is from the data, with a 95% interval
    gap.exceeds(target.noise(len(x)))               # True, False, or None where the interval does not tell

Lower is better. Everything is a pure function of the samples, the kind and the seed.

Shapes: m generated samples, n real ones, d features, B random splits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.sets.frechet import FrechetDistance
from windermere.auditing.sets.measured import Measured, set_gap
from windermere.auditing.sets.pairs import energy, mmd
from windermere.auditing.sets.slices import sliced_wasserstein
from windermere.auditing.statistics import Gap
from windermere.checks import is_whole
from windermere.errors import AuditError, UnknownNameError, UsageError

Features: TypeAlias = Callable[[Tensor], Any]
"""From samples to features [samples, ...]."""
WIDE = 512
"""More features than this are first projected onto so many random directions, the same for all sets."""
AT_ONCE = 256
"""So many samples go through a feature map at a time."""
LEAST = 10
"""Fewer real or generated samples say nothing about a distribution."""
SPLITS, SPLIT_SIZE = 400, 4000
"""How often real samples are split in halves to see their noise, and how many of them at most."""
CERTAINTY = 0.95
"""The share of sets of real samples that are nearer than the noise."""


class Yardstick(Protocol):
    """One kind of distance, against one set of real samples."""

    growth: float
    """The distance between sets of one distribution is proportional to this power of 1/m + 1/n."""

    def measure(self, generated: Tensor) -> Measured: ...
    def splits(self, chosen: Tensor, signs: Tensor) -> Tensor: ...


KINDS: Mapping[str, Callable[[Tensor, torch.Generator], Yardstick]] = {
    "energy": lambda data, generator: energy(data),
    "sliced-wasserstein": sliced_wasserstein,
    "mmd": mmd,
    "frechet": lambda data, generator: FrechetDistance(data),
}


@dataclass(frozen=True)
class SetDistance:
    """A distance between generated and real samples, `kind` of "energy", "sliced-wasserstein", "mmd" or "frechet".

    `features` maps samples to what is compared, such as an Inception network for images; without it samples are
    compared as they are, flattened. It gets samples in the dtype and on the device of the real ones. `seed` decides on
    random directions and splits, `name` is how the distance is called.

    >>> import torch
    >>> import windermere as wm
    >>> _ = torch.manual_seed(0)
    >>> real, shifted = torch.randn(500, 2), torch.randn(500, 2) + 1
    >>> energy = wm.SetDistance("energy")
    >>> energy.distance(shifted, real).low > energy.noise(real, size=500)
    True
    """

    kind: str = "energy"
    features: Features | None = None
    seed: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("distance of sets", str(self.kind), KINDS)
        if self.features is not None and not callable(self.features):
            raise UsageError("features must be a function from samples to features, or a module")
        if not is_whole(self.seed, least=0):
            raise UsageError(f"the seed must be a whole number, at least 0, not {self.seed!r}")
        object.__setattr__(self, "name", self.name or self.kind)

    def against(self, data: Any) -> "Target":
        """The distance from these real samples: what depends on them alone is computed once."""
        return Target(self, data)

    def distance(self, generated: Any, data: Any) -> Gap:
        """The distance with its 95% interval."""
        return self.against(data).measure(generated).interval()

    def noise(self, data: Any, size: int) -> float:
        """What the distance of `size` real samples from these ones stays below in 95 of 100 cases: see `Target`."""
        return self.against(data).noise(size)

    def gap(self, own: Any, other: Any, data: Any) -> Gap:
        """How much farther `own` is from the data than `other`, which was generated from the same noise, sample by
        sample; with its 95% interval."""
        target = self.against(data)
        return set_gap(target.measure(own), target.measure(other))


class Target:
    """Real samples that generated ones are compared with, by one distance."""

    def __init__(self, distance: SetDistance, data: Any) -> None:
        self.distance = distance
        self._like = _as_tensor(data, "the data")
        self._generator = torch.Generator().manual_seed(distance.seed)
        self._directions: Tensor | None = None
        rows = self._rows(self._like, "the data")
        self.size = len(rows)
        self._yardstick = KINDS[distance.kind](rows, self._generator)
        self._splits: Tensor | None = None

    def measure(self, generated: Any) -> Measured:
        """The distance of a generated set, with every sample's influence."""
        samples = _as_tensor(generated, "the generated set")
        if samples.shape[1:] != self._like.shape[1:]:
            raise UsageError(
                f"generated samples are of shape {list(samples.shape[1:])}, but those of the data of shape "
                f"{list(self._like.shape[1:])}: give samples of the same shape"
            )
        return self._yardstick.measure(self._rows(samples, "the generated set"))

    def noise(self, size: int) -> float:
        """What the distance between `size` real samples and the data stays below in 95 of 100 cases.

        There is only one set of real samples. It (or 4000 of it) is split in random halves 400 times; two halves are
        independent sets of one distribution. Their distance's 95% quantile is scaled from the halves' size to that of
        the sets in question: by 1/m + 1/n for energy, MMD and Frechet, and by the square root of that for Wasserstein.
        """
        if not is_whole(size, least=1):
            raise UsageError(f"the size of a set must be a whole number, at least 1, not {size!r}")
        if self._splits is None:
            self._splits = self._split()
        half = min(self.size, SPLIT_SIZE) // 2
        scale = (1 / size + 1 / self.size) / (2 / half)
        seldom = float(torch.quantile(self._splits.double(), CERTAINTY))
        return seldom * float(scale**self._yardstick.growth)

    def _split(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.distance.seed)
        half = min(self.size, SPLIT_SIZE) // 2
        chosen = torch.randperm(self.size, generator=generator)[: 2 * half]
        keys = torch.rand(2 * half, SPLITS, generator=generator)
        signs = torch.where(keys.argsort(dim=0) < half, 1.0, -1.0)
        return self._yardstick.splits(chosen, signs)

    def _rows(self, samples: Tensor, which: str) -> Tensor:
        """[samples, d] in float64 on the CPU: the features that are compared."""
        if len(samples) < LEAST:
            raise UsageError(f"{which} has {len(samples)} samples: distances of sets need at least {LEAST}")
        if samples.numel() == 0:
            raise UsageError(f"samples of {which} have no entries, but shape {list(samples.shape[1:])}")
        mapped = self._mapped(samples.to(self._like.device, self._like.dtype))
        rows = mapped.detach().reshape(len(mapped), -1).cpu().double()
        if not bool(rows.isfinite().all()):
            lost = int((~rows.isfinite().all(dim=1)).sum())
            raise AuditError(f"{lost} of {len(rows)} samples of {which} are not finite, so it has no distance")
        return self._narrowed(rows)

    def _mapped(self, samples: Tensor) -> Tensor:
        features = self.distance.features
        if features is None:
            return samples
        with torch.no_grad():
            parts = [torch.as_tensor(features(part)) for part in torch.split(samples, AT_ONCE)]
        for part, given in zip(parts, torch.split(samples, AT_ONCE), strict=True):
            if part.ndim == 0 or len(part) != len(given):
                raise UsageError(
                    f"features must give one row for each sample, not {list(part.shape)} for {len(given)} samples"
                )
        return torch.cat(parts)

    def _narrowed(self, rows: Tensor) -> Tensor:
        wide = rows.shape[1]
        if wide <= WIDE or self.distance.kind == "frechet":
            return rows
        if self._directions is None:
            drawn = torch.randn(wide, WIDE, generator=self._generator, dtype=torch.float64)
            self._directions = drawn / WIDE**0.5
        return rows @ self._directions


def _as_tensor(samples: Any, which: str) -> Tensor:
    try:
        found = torch.as_tensor(samples if isinstance(samples, Tensor) else np.asarray(samples))
    except (TypeError, ValueError):
        found = torch.zeros(())
    if found.ndim == 0 or found.is_complex():
        raise UsageError(f"{which} must be an array of samples [samples, ...], not a {type(samples).__name__}")
    return found.detach() if found.dtype.is_floating_point else found.detach().double()
