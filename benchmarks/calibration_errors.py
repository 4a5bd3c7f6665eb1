"""Does the audit get regressions and likelihoods right? 30 and 20, labelled by the rule brute-forced in float64.

The label looks at Euler, midpoint and rk4 at 16 step factors and at a flow of rk4 steps 64 times as fine; the safe step
at factors of 2^(1/2). The audit may answer UNDECIDED only where the interval of a gap that it looks at straddles.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

import windermere as wm
from benchmarks.calibration import FACTORS, bars, confusion
from benchmarks.calibration_models import Case, likelihoods, regressions
from benchmarks.measuring import Bar, keep, show
from windermere.errors import SolverError

RUNGS = tuple(2 ** (k / 2) for k in range(-6, 7))
FINER = 64


@dataclass(frozen=True)
class Answer:
    """One model, its label and the audit's answer."""

    model: str
    label: str
    answer: str
    own: float | None
    flow: float | None
    harm: float
    """How much worse than the own one the worst solver that counts scores, in thresholds."""
    gain: float
    """How much better the best one scores, in thresholds."""
    straddles: bool
    safe: float | None
    safe_by_brute_force: float | None
    seconds: float


class BruteForce:
    """Scores of a case under any solver, and how far from the flow its outputs are."""

    def __init__(self, case: Case) -> None:
        self.case = case
        (block,) = (each for each in case.model.modules() if isinstance(each, wm.ODEBlock))
        self.own = block.solver
        self.longest = min(b - a for a, b in pairwise(block.times))
        """Longer steps land on the next time of the output, and are none."""
        self.flow = self.outputs("rk4", 1 / FINER)

    def outputs(self, method: str, factor: float) -> Tensor:
        solver = wm.FixedStep(method, step=self.own.precision * factor)
        with wm.using(self.case.model, solver), torch.no_grad():
            found: Tensor = self.case.model(self.case.batch[0])
        return found

    def score(self, outputs: Tensor) -> float:
        """The logarithm of the root mean square error, or nats."""
        if self.case.batch[1] is None:
            return -float(outputs.mean())
        return float((outputs - self.case.batch[1]).square().mean().sqrt().log())

    def error(self, outputs: Tensor) -> float:
        return float((outputs - self.flow).reshape(len(outputs), -1).norm(dim=1).median())

    @property
    def threshold(self) -> float:
        return 0.05 if self.case.batch[1] is None else float(np.log(1.5))

    def gaps(self) -> list[float]:
        """How much worse than its own solver the flow scores, and each at least as accurate solver, in thresholds."""
        own = self.outputs(self.own.method, 1.0)
        found = [self.flow]
        for method in ("euler", "midpoint", "rk4"):
            for factor in FACTORS:
                try:
                    other = self.outputs(method, factor)
                except SolverError:
                    continue
                if self.error(other) <= self.error(own):
                    found.append(other)
        return [(self.score(other) - self.score(own)) / self.threshold for other in found]

    def safe(self) -> float | None:
        """The coarsest step from which on all finer ones are within the threshold of the flow."""
        safe = None
        for factor in (each for each in RUNGS if each * self.own.precision <= self.longest * (1 + 1e-9)):
            try:
                off = abs(self.score(self.outputs(self.own.method, factor)) - self.score(self.flow))
            except SolverError:
                break
            if off > self.threshold:
                break
            safe = self.own.precision * factor
        return safe


def examine(case: Case) -> Answer:
    brute = BruteForce(case)
    gaps = brute.gaps()
    label = "TIED" if max(gaps) > 1 else "COARSE" if min(gaps) < -1 else "FLOW"
    begun = time.perf_counter()
    verdict = wm.audit(case.model, case.batch, metric=case.metric, evidence=False)
    seen = [gap for gap in (verdict.gap, *(line.gap for line in verdict.table if line.counts)) if gap is not None]
    answers = [answer for gap in seen for answer in (gap.worse(verdict.threshold), gap.improves(verdict.threshold))]
    return Answer(
        model=case.name,
        label=label,
        answer=str(verdict.outcome),
        own=verdict.own.metric,
        flow=verdict.reference.metric,
        harm=max(gaps),
        gain=-min(gaps),
        straddles=None in answers,
        safe=verdict.safe_step,
        safe_by_brute_force=brute.safe(),
        seconds=time.perf_counter() - begun,
    )


def run() -> list[Bar]:
    found: dict[str, list[Answer]] = {"regressions": [], "likelihoods": []}
    for kind, cases in (("regressions", regressions()), ("likelihoods", likelihoods())):
        for case in cases:
            answer = examine(case)
            found[kind].append(answer)
            print(f"  {answer.model}: {answer.label}, audited {answer.answer}", flush=True)
    tables = {kind: confusion(answers) for kind, answers in found.items()}
    for kind, table in tables.items():
        show(f"Calibration of the audit on {len(found[kind])} {kind}", table)
    keep(
        "calibration_errors",
        {**{kind: [vars(answer) for answer in answers] for kind, answers in found.items()}, "confusion": tables},
    )
    return [bar for kind, answers in found.items() for bar in bars_of(kind, answers)]


def bars_of(kind: str, answers: Sequence[Answer]) -> list[Bar]:
    pairs = [(each.safe, each.safe_by_brute_force) for each in answers]
    return [*bars(kind, answers, least=30 if kind == "regressions" else 20), bar_of_safe_steps(kind, pairs)]


def bar_of_safe_steps(kind: str, pairs: Sequence[tuple[float | None, float | None]]) -> Bar:
    """By what factor the audit's and those by brute force are apart, where there are both."""
    off = [max(a / b, b / a) for a, b in pairs if a and b]
    return Bar(name=f"{kind}: safe steps off by a factor", measured=max(off, default=1.0), limit=2.01, at_least=False)
