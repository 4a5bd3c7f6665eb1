"""What is measured of a sampler before and after it was tuned: with its own solver, under the flow, and by an audit.

Shapes: n samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windermere.auditing import Metric, Sampler, SetDistance, Verdict, audit
from windermere.auditing.sets.distance import Target
from windermere.auditing.sets.measured import Measured, set_gap
from windermere.auditing.statistics import Gap, paired_gap
from windermere.nn.float64 import double_of
from windermere.paper.studies.study import HERE, Place
from windermere.paper.studies.tied_sampler.models import Data, data_of
from windermere.paper.studies.tied_sampler.rewards import Reward
from windermere.solvers import Adaptive, FixedStep, Solver, final_state

FLOW = Adaptive("dopri54", tolerance=1e-8)
"""In float64: the flow itself, as far as any sample can tell."""
IN_FLOAT32 = Adaptive("dopri54", tolerance=1e-4)
"""The flow of images: samples move by some hundredths of a percent, where the noise of so few is percents."""
REWARD = "reward"
"""The loss that is minus a reward; all others are, or are judged by, distances from data."""
TIMES_OWN = 1.5
"""The audit's rule for errors: a shortfall under the flow that many times the own one is another."""


class Yardstick(Protocol):
    """What judges sets of samples that came from the same noise. Lower values are better."""

    def value(self, samples: Tensor) -> float: ...

    def gap(self, samples: Tensor, others: Tensor) -> Gap:
        """How much worse the samples are than others, with a 95% interval."""
        ...

    def excess(self, flow: Tensor, own: Tensor) -> Gap:
        """How much worse the flow's samples are than is allowed beside the own ones: surely so if it is above 0."""
        ...


@dataclass(frozen=True, eq=False)
class ByDistance:
    """The energy distance from real samples; the noise of as many real samples is allowed."""

    target: Target

    def value(self, samples: Tensor) -> float:
        return self._measured(samples).value

    def gap(self, samples: Tensor, others: Tensor) -> Gap:
        return set_gap(self._measured(samples), self._measured(others))

    def excess(self, flow: Tensor, own: Tensor) -> Gap:
        return beyond(self.gap(flow, own), self.target.noise(len(own)))

    def _measured(self, samples: Tensor) -> Measured:
        return measured(self.target, samples)


@lru_cache(maxsize=8)
def measured(target: Target, samples: Tensor) -> Measured:
    """A tensor's hash is its identity, and the cache holds it: each set is measured once."""
    return target.measure(samples)


@dataclass(frozen=True, eq=False)
class ByReward:
    """Minus the mean reward; half as much again is allowed, as the own samples lack or real ones, whichever is more."""

    reward: Reward

    def value(self, samples: Tensor) -> float:
        return float(self._each(samples).mean())

    def gap(self, samples: Tensor, others: Tensor) -> Gap:
        return paired_gap(self._each(samples), self._each(others))

    def excess(self, flow: Tensor, own: Tensor) -> Gap:
        if self.value(own) < self.reward.real:
            return beyond(self.gap(flow, own), (TIMES_OWN - 1) * self.reward.real)
        return paired_gap(self._each(flow), TIMES_OWN * self._each(own))

    def _each(self, samples: Tensor) -> NDArray[np.float64]:
        return np.asarray(self.reward.shortfall(samples).double().cpu())


def beyond(gap: Gap, allowed: float) -> Gap:
    """What a gap is above what is allowed."""
    return replace(gap, value=gap.value - allowed, low=gap.low - allowed, high=gap.high - allowed)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Noise and real samples of one seed, which no training has seen."""

    noise: Tensor
    real: Tensor
    data: Data
    target: Target
    others: Mapping[str, Target]
    """Distances from the same real samples, by which a model that was tuned by one is judged besides."""

    def yardstick(self, loss: str) -> Yardstick:
        return ByReward(self.data.reward) if loss == REWARD else ByDistance(self.target)

    def opinions(self, loss: str) -> Mapping[str, Yardstick]:
        """What judges besides, by name."""
        if loss == REWARD:
            return {name: ByReward(reward) for name, reward in self.data.other_rewards.items()}
        return {name: ByDistance(target) for name, target in self.others.items()}

    @property
    def flow(self) -> Adaptive:
        return FLOW if self.noise.dtype == torch.float64 else IN_FLOAT32


@lru_cache(maxsize=2)
def held_out(data: str, seed: int, samples: int, real: int, place: Place = HERE) -> HeldOut:
    generator, of = torch.Generator().manual_seed(3000 + seed), data_of(data, place)
    noise = torch.randn(samples, *of.shape, generator=generator, dtype=of.dtype).to(place.device)
    drawn = of.tests(real, generator).to(noise)
    target, *others = (
        SetDistance("energy", features=rows).against(drawn) for rows in (of.embed, *of.others().values())
    )
    return HeldOut(noise, drawn, of, target, dict(zip(of.others(), others, strict=True)))


@torch.no_grad()
def sampled(field: nn.Module, test: HeldOut, solver: Solver) -> Tensor:
    """Samples [n, ...] in the tests' dtype, as a solver makes them from their noise."""
    samples = final_state(double_of(field) if test.noise.dtype == torch.float64 else field, test.noise, solver)
    assert isinstance(samples, Tensor)  # as the noise is
    return samples


def surely_positive(gap: Gap) -> bool | None:
    """Whether it is above 0; None where the interval does not tell."""
    return True if gap.low > 0 else False if gap.high <= 0 else None


def audited(field: nn.Module, solver: FixedStep, test: HeldOut, loss: str, samples: int, real: int) -> Verdict:
    """The library's own verdict, on fewer samples."""
    sampler = Sampler(field, solver, order="tx", time="scalar")
    distance = SetDistance("energy", features=test.data.embed, name="energy")
    judged: dict[str, Any] = {"metric": distance, "data": test.real[:real]}
    if loss == REWARD:
        judged = {"metric": Metric(lambda out, _: test.data.reward.shortfall(out), better="lower", relative=True)}
    return audit(sampler, test.noise[:samples].float(), samples=None, evidence=False, **judged)
