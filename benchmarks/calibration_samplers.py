"""Does the audit get samplers right? 39 of the plane, labelled by the rule brute-forced in float64.

The label compares the sets of the own solver and of the flow (rk4, 128 steps; 512 change no coordinate by 1e-8) from
10,000 noise samples with 10,000 real ones, the safe step 4000 of each on a ladder of factors of 2^(1/2); the audit has
1000 others of each. What counts as different is the audit's threshold: the noise of 1000 real samples.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log2

import torch
from torch import Tensor

import windermere as wm
from benchmarks.calibration import bars, confusion
from benchmarks.calibration_errors import bar_of_safe_steps
from benchmarks.calibration_sampler_models import Trained, noise, trained
from benchmarks.measuring import Bar, keep, show
from windermere.auditing.sets import Measured, set_gap

MANY, ON_LADDER, AUDITED = 10_000, 4000, 1000
FINEST = 128
"""Evaluations, at least: the finest rung of the ladder."""
FLOW = wm.FixedStep("rk4", step=1 / 128)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One sampler, its label and the audit's answer."""

    model: str
    label: str
    answer: str
    threshold: float
    gap: float
    """How much farther from the data the own solver's set is than the flow's, by brute force, in thresholds."""
    sure_by: float
    """Half its 95% interval, in thresholds."""
    audited: tuple[float, float, float] | None
    """The same by the audit, and its interval; None where the flow was not found."""
    straddles: bool
    safe: float | None
    safe_by_brute_force: float | None
    seconds: float


class BruteForce:
    """Sets of one field under any solver, from one noise and against one set of real samples."""

    def __init__(self, field: Trained) -> None:
        torch.manual_seed(10_000)
        self.field, self.noise, real = field, noise(MANY), field.draw(MANY)
        distance = wm.SetDistance("energy")
        self._target, self._fewer = distance.against(real), distance.against(real[:ON_LADDER])
        flow = self._samples(FLOW, MANY)
        self._flow, self._flow_of_fewer = self._target.measure(flow), self._fewer.measure(flow[:ON_LADDER])

    def _samples(self, solver: wm.FixedStep, count: int) -> Tensor:
        with torch.no_grad():
            found: Tensor = self.field.sampler(solver)(self.noise[:count])
        return found

    def gap(self, own: wm.FixedStep) -> tuple[float, float]:
        """How much farther the own solver's set is than the flow's, and half the 95% interval of that."""
        found = set_gap(self._target.measure(self._samples(own, MANY)), self._flow)
        return found.value, (found.high - found.low) / 2

    def safe(self, own: wm.FixedStep, threshold: float) -> float | None:
        """The coarsest step from which on all finer ones are within the threshold of the flow."""
        safe = None
        for step in rungs(own):
            rung: Measured = self._fewer.measure(self._samples(wm.FixedStep(own.method, step=step), ON_LADDER))
            if abs(rung.value - self._flow_of_fewer.value) > threshold:
                break
            safe = step
        return safe


def rungs(own: wm.FixedStep) -> list[float]:
    """Steps from fine to coarse, each the square root of 2 times the one before."""
    finest = min(1 / 8, own.tableau.propagating / FINEST / own.step)
    steps = [own.step * 2 ** (k / 2) for k in range(round(2 * log2(finest)), 7)]
    return [step for step in steps if step <= 1 + 1e-9]


def examine(field: Trained, brute: BruteForce, own: wm.FixedStep, seed: int) -> Answer:
    torch.manual_seed(20_000 + seed)
    begun = time.perf_counter()
    verdict = wm.audit(field.sampler(own), noise(AUDITED), data=field.draw(AUDITED), evidence=False)
    seconds, threshold, seen = time.perf_counter() - begun, verdict.threshold, verdict.gap
    gap, half = (each / threshold for each in brute.gap(own))
    return Answer(
        model=f"{field.name}, {own}",
        label="COARSE" if gap > 1 else "TIED" if gap < -1 else "FLOW",
        answer=str(verdict.outcome),
        threshold=threshold,
        gap=gap,
        sure_by=half,
        audited=None if seen is None else (seen.value / threshold, seen.low / threshold, seen.high / threshold),
        straddles=seen is not None and None in (seen.worse(threshold), seen.improves(threshold)),
        safe=verdict.safe_step,
        safe_by_brute_force=brute.safe(own, threshold),
        seconds=seconds,
    )


def run() -> list[Bar]:
    found: list[Answer] = []
    for field in trained():
        brute = BruteForce(field)
        for own in field.solvers:
            answer = examine(field, brute, own, seed=len(found))
            found.append(answer)
            told = f"{answer.label} ({answer.gap:.2f}), audited {answer.answer}"
            print(f"  {answer.model}: {told}; safe {answer.safe_by_brute_force}, {answer.safe}", flush=True)
    table = confusion(found)
    show(f"Calibration of the audit on {len(found)} samplers", table)
    keep("calibration_samplers", {"samplers": [asdict(answer) for answer in found], "confusion": table})
    return bars_of(found)


def bars_of(answers: Sequence[Answer]) -> list[Bar]:
    pairs = [(each.safe, each.safe_by_brute_force) for each in answers]
    alone = [1 for a, b in pairs if (a is None) != (b is None)]
    return [
        *bars("samplers", answers, least=30),
        bar_of_safe_steps("samplers", pairs),
        Bar(name="samplers: safe steps that only one of both has", measured=len(alone), limit=0, at_least=False),
    ]
