"""What is measured of a sampler before and after it was tuned: with its own solver, under the flow, and by an audit.

Shapes: n samples.
"""

from dataclasses import dataclass
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
from windermere.paper.studies.tied_sampler.models import POINTS, Points
from windermere.solvers import Adaptive, FixedStep, Solver, final_state

FLOW = Adaptive("dopri54", tolerance=1e-8)
"""In float64: the flow itself, as far as any sample can tell."""
TIMES_OWN = 1.5
"""The audit's rule for errors: a shortfall under the flow that many times the own one is another."""
AUDITED_SAMPLES, AUDITED_REAL = 1000, 3000


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
        gap, noise = self.gap(flow, own), self.target.noise(len(own))
        return Gap(value=gap.value - noise, low=gap.low - noise, high=gap.high - noise, samples=gap.samples)

    def _measured(self, samples: Tensor) -> Measured:
        return measured(self.target, samples)


@lru_cache(maxsize=8)
def measured(target: Target, samples: Tensor) -> Measured:
    """A tensor's hash is its identity, and the cache holds it: each set is measured once."""
    return target.measure(samples)


@dataclass(frozen=True, eq=False)
class ByReward:
    """The mean distance from the nearest aim; half as much again as the own one is allowed."""

    points: Points

    def value(self, samples: Tensor) -> float:
        return float(self._each(samples).mean())

    def gap(self, samples: Tensor, others: Tensor) -> Gap:
        return paired_gap(self._each(samples), self._each(others))

    def excess(self, flow: Tensor, own: Tensor) -> Gap:
        return paired_gap(self._each(flow), TIMES_OWN * self._each(own))

    def _each(self, samples: Tensor) -> NDArray[np.float64]:
        return np.asarray(self.points.shortfall(samples))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Noise and real samples of one seed, which no training has seen."""

    noise: Tensor
    real: Tensor
    points: Points
    target: Target

    def yardstick(self, loss: str) -> Yardstick:
        return ByDistance(self.target) if loss == "energy" else ByReward(self.points)


@lru_cache(maxsize=2)
def held_out(data: str, seed: int, samples: int, real: int) -> HeldOut:
    generator = torch.Generator().manual_seed(3000 + seed)
    noise = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    drawn = POINTS[data].draw(real, generator).double()
    return HeldOut(noise, drawn, POINTS[data], SetDistance("energy").against(drawn))


@torch.no_grad()
def sampled(field: nn.Module, test: HeldOut, solver: Solver) -> Tensor:
    """Samples [n, 2] in float64, as a solver makes them from the test's noise."""
    samples = final_state(double_of(field), test.noise, solver)
    assert isinstance(samples, Tensor)  # as the noise is
    return samples


def surely_positive(gap: Gap) -> bool | None:
    """Whether it is above 0; None where the interval does not tell."""
    return True if gap.low > 0 else False if gap.high <= 0 else None


def audited(field: nn.Module, solver: FixedStep, test: HeldOut, loss: str) -> Verdict:
    """The library's own verdict, on fewer samples."""
    sampler = Sampler(field, solver, order="tx", time="scalar")
    noise = test.noise[:AUDITED_SAMPLES].float()
    judged: dict[str, Any] = {"data": test.real[:AUDITED_REAL]}
    if loss == "reward":
        judged = {"metric": Metric(lambda out, _: test.points.shortfall(out), better="lower", relative=True)}
    return audit(sampler, noise, samples=None, evidence=False, **judged)
