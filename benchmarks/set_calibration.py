"""Are the distances of sets calibrated? Sets of one distribution must seldom count as different, and 95% intervals must
hold the true value about 95 times in 100.

The true value is the mean over all repetitions: energy and MMD have no bias, and a sliced Wasserstein or a Frechet
distance estimates that of sets of its size.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import mean
from typing import TypeAlias

import torch
from torch import Tensor

from benchmarks.measuring import Bar, keep, show
from windermere.auditing.sets import SetDistance, set_gap
from windermere.auditing.statistics import Gap

DIFFERENT, MISSED = "real against real is called different", "a gap's interval misses it"
KINDS = ("energy", "sliced-wasserstein", "mmd", "frechet")
DECIDING = ("energy", "mmd")
"""The kinds that are within 0.1 in the worst case too, and that a verdict may rest on."""
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


def rates(kind: str, name: str, repetitions: int) -> Iterator[Rate]:
    """All questions about one kind of distance and one distribution."""
    for sizes in SIZES:
        asked = {DIFFERENT: called_different(kind, DRAWS[name], sizes, repetitions)}
        if sizes == SIZES[0]:
            asked |= {f"{MISSED}: {c}": missed(kind, DRAWS[name], c, sizes, repetitions) for c in CHANGES}
        for question, share in asked.items():
            yield Rate(
                question=question, kind=kind, samples=name, generated=sizes[0], real=sizes[1], share=share,
                repetitions=repetitions,
            )  # fmt: skip


def seconds(kind: str, size: int = 10_000, width: int = 64) -> float:
    """A distance with its interval and its noise, of so many samples."""
    generator = torch.Generator().manual_seed(2)
    real, generated = normal(size, generator, width), normal(size, generator, width)
    begun = time.perf_counter()
    target = SetDistance(kind).against(real)
    target.measure(generated).interval()
    target.noise(size)
    return time.perf_counter() - begun


def run(repetitions: int = 200) -> list[Bar]:
    found = [rate for kind in KINDS for name in DRAWS for rate in rates(kind, name, repetitions)]
    took = {kind: seconds(kind) for kind in KINDS}
    shares = {
        (question, kind): [rate for rate in found if rate.kind == kind and rate.question.startswith(question)]
        for question in (DIFFERENT, MISSED)
        for kind in KINDS
    }
    means = {f"{q}, {kind}": mean(rate.share for rate in rows) for (q, kind), rows in shares.items()}
    worst = {f"{q}, {kind}": asdict(max(rows, key=lambda r: r.share)) for (q, kind), rows in shares.items()}
    show("Calibration of distances of sets: means", means)
    show("Worst cases", worst)
    keep("set_calibration", {"rates": [asdict(r) for r in found], "means": means, "worst": worst, "seconds": took})
    return [
        *(Bar(name=f"mean: {name}", measured=share, limit=0.07, at_least=False) for name, share in means.items()),
        *(
            Bar(name=f"worst: {q}, {kind}", measured=worst[f"{q}, {kind}"]["share"], limit=0.1, at_least=False)
            for q, kind in shares
            if kind in DECIDING
        ),
        Bar(name="10,000 samples, seconds", measured=max(took.values()), limit=5, at_least=False),
    ]
