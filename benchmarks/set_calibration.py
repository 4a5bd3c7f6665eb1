"""Are the distances of sets calibrated? Sets of one distribution must seldom count as different, and 95% intervals must
hold the true value about 95 times in 100. Run as `python -m benchmarks.set_calibration`.

The true value is the mean over all repetitions: energy and MMD have no bias, and a sliced Wasserstein or a Frechet
distance estimates that of sets of its size.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from windermere.auditing.sets import SetDistance, set_gap
from windermere.auditing.statistics import Gap

RESULTS = Path(__file__).parent / "results" / "set_calibration.json"
KINDS = ("energy", "sliced-wasserstein", "mmd", "frechet")
SIZES = ((500, 500), (200, 800), (800, 200))
"""Generated and real samples."""
Draw: TypeAlias = Callable[[int, torch.Generator], Tensor]


def normal(n: int, generator: torch.Generator, width: int = 2) -> Tensor:
    return torch.randn(n, width, generator=generator, dtype=torch.float64)


def eight(n: int, generator: torch.Generator) -> Tensor:
    """Eight narrow normal distributions on a circle."""
    angle = torch.randint(8, (n,), generator=generator) * (torch.pi / 4)
    return torch.stack([angle.cos(), angle.sin()], dim=1) * 4 + 0.3 * normal(n, generator)


def heavy(n: int, generator: torch.Generator) -> Tensor:
    """Student's t with four degrees of freedom."""
    return normal(n, generator) / normal(n, generator, 4).square().mean(dim=1, keepdim=True).sqrt()


DRAWS: Mapping[str, Draw] = {
    "normal, 2-D": normal,
    "normal, 32-D": lambda n, generator: normal(n, generator, 32),
    "8 Gaussians": eight,
    "Student's t": heavy,
}
CHANGES: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "both real": (lambda x: x, lambda x: -x),
    "one shifted": (lambda x: x, lambda x: x + 0.3),
    "both off": (lambda x: 1.3 * x, lambda x: 1.2 * x + 0.1),
    "hardly different": (lambda x: 1.2 * x, lambda x: 1.2 * x + 0.02 * (3 * x).sin()),
}
"""What two solvers make of the same real samples."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How often something happened that should be rare."""

    question: str
    kind: str
    samples: str
    generated: int
    real: int
    share: float
    repetitions: int


def called_different(kind: str, draw: Draw, sizes: tuple[int, int], repetitions: int) -> float:
    """The share of independent sets of one distribution whose distance exceeds the noise."""
    generator = torch.Generator().manual_seed(0)
    m, n = sizes
    alarms = 0
    for _ in range(repetitions):
        target = SetDistance(kind).against(draw(n, generator))
        alarms += target.measure(draw(m, generator)).value > target.noise(m)
    return alarms / repetitions


def missed(kind: str, draw: Draw, change: str, sizes: tuple[int, int], repetitions: int) -> float:
    """The share of 95% intervals of a paired gap that do not hold the true one."""
    generator = torch.Generator().manual_seed(1)
    gaps: list[Gap] = []
    for _ in range(repetitions):
        target, drawn = SetDistance(kind).against(draw(sizes[1], generator)), draw(sizes[0], generator)
        own, other = (target.measure(each(drawn)) for each in CHANGES[change])
        gaps.append(set_gap(own, other))
    truth = sum(gap.value for gap in gaps) / repetitions
    return sum(not gap.low <= truth <= gap.high for gap in gaps) / repetitions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=400)
    repetitions = parser.parse_args().repetitions
    rows: list[Rate] = []
    for kind in KINDS:
        for name, draw in DRAWS.items():
            for sizes in SIZES:
                rates = {"real against real is called different": called_different(kind, draw, sizes, repetitions)}
                if sizes == SIZES[0]:
                    rates |= {f"gap missed: {c}": missed(kind, draw, c, sizes, repetitions) for c in CHANGES}
                for question, share in rates.items():
                    row = Rate(
                        question=question, kind=kind, samples=name, generated=sizes[0], real=sizes[1], share=share,
                        repetitions=repetitions,
                    )  # fmt: skip
                    print(f"{kind:20}{name:14}{sizes!s:12}{question:42}{share:.3f}", flush=True)
                    rows.append(row)
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
