"""What each study costs, as measured: about how long it takes in full and quick, and on what."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Minutes of one study. In full: those in which our results were made, with as many seeds as they have; of Table 1,
    those of the runs that it takes over from other studies."""

    full: float
    on: Literal["CPU", "GPU"]
    """What the full study took so long on: a server's processor, or an H200."""
    quick: float
    """On a CPU: the spheres on one core, images on two."""

    def __str__(self) -> str:
        return f"{_about(self.full)} on a {self.on}; quick, {_about(self.quick)}"


def _about(minutes: float) -> str:
    if minutes < 1:
        return "seconds"
    return f"about {minutes:.0f} min" if minutes < 100 else f"about {minutes / 60:.0f} h"


COSTS: Mapping[str, Cost] = {
    "trajectories": Cost(full=5, on="CPU", quick=0.3),
    "decision-regions": Cost(full=0.2, on="CPU", quick=0.1),
    "fan": Cost(full=0.6, on="CPU", quick=0.1),
    "sphere2-fixed": Cost(full=76, on="CPU", quick=0.4),
    "cifar10-adaptive": Cost(full=177, on="GPU", quick=10),
    "cifar10-fixed": Cost(full=167, on="GPU", quick=10),
    "mnist-fixed": Cost(full=47, on="GPU", quick=10),
    "sphere3-fixed": Cost(full=65, on="CPU", quick=0.6),
    "sphere10-fixed": Cost(full=63, on="CPU", quick=0.8),
    "sphere900-fixed": Cost(full=218, on="CPU", quick=1.4),
    "mnist-adaptive": Cost(full=71, on="GPU", quick=10),
    "sphere2-adaptive": Cost(full=38, on="CPU", quick=0.6),
    "sphere2-adjoint": Cost(full=58, on="CPU", quick=0.8),
    "step-adaptation-sphere2": Cost(full=40, on="CPU", quick=0.4),
    "step-adaptation-mnist": Cost(full=12, on="GPU", quick=10),
    "step-adaptation-cifar10": Cost(full=52, on="GPU", quick=10),
    "smaller-step-sphere2": Cost(full=3, on="CPU", quick=0.2),
    "table1": Cost(full=98, on="GPU", quick=10),
    "critical-steps": Cost(full=5, on="CPU", quick=0.2),
    "crossing-field": Cost(full=0.1, on="CPU", quick=0.1),
    "sphere2-data": Cost(full=0.1, on="CPU", quick=0.1),
    "tolerance-adaptation-sphere2": Cost(full=9, on="CPU", quick=0.5),
    "tied-sampler": Cost(full=15, on="CPU", quick=0.3),
    "tied-sampler-images": Cost(full=60, on="CPU", quick=1),
    "recipes": Cost(full=20, on="CPU", quick=0.4),
    "recipes-mnist": Cost(full=25, on="CPU", quick=0.4),
    "one-law": Cost(full=6, on="CPU", quick=0.3),
    "what-being-tied-costs": Cost(full=3, on="CPU", quick=0.3),
    "what-being-tied-costs-mnist": Cost(full=8, on="CPU", quick=0.2),
}
