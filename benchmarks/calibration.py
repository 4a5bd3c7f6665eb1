"""Does the audit get it right? At least 40 Sphere2 models, labelled by the paper's rule brute-forced on a dense ladder.

The label looks at Euler, midpoint and rk4 at 16 step factors and at a float64 reference of 4096 rk4 steps; the audit
may answer UNDECIDED only where the interval of a gap that it looks at straddles the threshold.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np
from torch import nn

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from benchmarks.trained import trained
from windermere.auditing import Outcome
from windermere.auditing.block_model import ModelSubject
from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import end_of
from windermere.auditing.metrics import accuracy
from windermere.auditing.scoring import distance
from windermere.errors import SolverError
from windermere.paper import data
from windermere.paper.training import Labelled as Samples
from windermere.paper.training import RunConfig

GRID = {"euler": (1, 2, 4, 8, 16, 32, 64, 128), "rk4": (1, 2, 4, 8, 16)}
SEEDS = (0, 1, 2, 3)
FACTORS = tuple(np.geomspace(1 / 4, 2, 16).tolist())
THRESHOLD = 0.1


@dataclass(frozen=True)
class Case:
    """One model, its label and the audit's answer."""

    trained_with: str
    seed: int
    label: str
    answer: str
    own: float | None
    flow: float | None
    widest: float
    straddles: bool
    seconds: float
    evaluations: float


class Labelled(Protocol):
    """What was labelled by brute force, and audited."""

    @property
    def label(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def straddles(self) -> bool: ...


def confusion(answers: Sequence[Labelled]) -> dict[str, int]:
    table = Counter((each.label, each.answer) for each in answers)
    return {f"labelled {a}, audited {b}": n for (a, b), n in sorted(table.items())}


def bars(kind: str, answers: Sequence[Labelled], *, least: int) -> list[Bar]:
    """How many there are at least, and that no audit contradicts its label, or is undecided without reason."""
    wrong = [each for each in answers if each.answer not in (each.label, str(Outcome.UNDECIDED))]
    stray = [each for each in answers if each.answer == str(Outcome.UNDECIDED) and not each.straddles]
    return [
        Bar(name=kind, measured=len(answers), limit=least, at_least=True),
        Bar(name=f"{kind}: audits that contradict the label", measured=len(wrong), limit=0, at_least=False),
        Bar(name=f"{kind}: undecided, and no interval straddles", measured=len(stray), limit=0, at_least=False),
    ]


def label(model: nn.Module, test: Samples) -> tuple[str, float]:
    """The rule, brute-forced: the largest gap to any solver at least as accurate, and to the reference."""
    subject, (x, y) = ModelSubject(model), test
    own = subject.forward(x, None)
    reference = subject.forward(x, lambda _: wm.FixedStep.of("rk4", steps=4096), double=True)
    mine = float(accuracy(own.outputs, y).mean())
    error = np.median(distance(end_of, own, reference))
    gaps = [mine - float(accuracy(reference.outputs, y).mean())]
    for candidate in (Candidate(m, f) for m in ("euler", "midpoint", "rk4") for f in FACTORS):
        try:
            other = subject.forward(x, candidate)
        except SolverError:
            continue
        if np.median(distance(end_of, other, reference)) <= error:
            gaps.append(mine - float(accuracy(other.outputs, y).mean()))
    outcome = "TIED" if max(gaps) > THRESHOLD else "COARSE" if min(gaps) < -THRESHOLD else "FLOW"
    return outcome, max(map(abs, gaps))


def examine(model: nn.Module, seed: int, test: Samples) -> Case:
    truth, widest = label(model, test)
    begun = time.perf_counter()
    verdict = wm.audit(model, test, threshold=THRESHOLD)
    seconds = time.perf_counter() - begun
    looked_at = [verdict.gap, *(line.gap for line in verdict.table if line.counts)]
    return Case(
        trained_with=verdict.own.solver,
        seed=seed,
        label=truth,
        answer=str(verdict.outcome),
        own=verdict.own.metric,
        flow=verdict.reference.metric,
        widest=widest,
        straddles=any(gap is not None and gap.exceeds(THRESHOLD) is None for gap in looked_at),
        seconds=seconds,
        evaluations=verdict.evaluations,
    )


def run() -> list[Bar]:
    test_set = data.load("sphere2").test
    cases: list[Case] = []
    for method, counts in GRID.items():
        for steps in counts:
            cases.extend(_cases(wm.FixedStep.of(method, steps=steps), test_set))
    at64 = [case for case in cases if case.trained_with == "euler, h = 1/64"]
    rows = confusion(cases)
    show(f"Calibration of the audit on {len(cases)} Sphere2 models", rows)
    keep("calibration", {"cases": [vars(case) for case in cases], "confusion": rows})
    return [
        *bars("models", cases, least=40),
        Bar(name="audit at 64 steps, passes", measured=max(c.evaluations for c in at64), limit=120, at_least=False),
        Bar(name="audit at 64 steps, seconds", measured=median(c.seconds for c in at64), limit=15, at_least=False),
    ]


def _cases(solver: wm.FixedStep, test_set: Samples) -> list[Case]:
    """Quickly trained: a tenfold learning rate and fewer iterations give flows, tied models and some in between."""
    config = RunConfig(
        data="sphere2", solver=solver, seeds=SEEDS, iterations=1500, batch_size=128, optimizer="adam", lr=1e-3
    )
    ensemble = trained(config)
    return [examine(ensemble.member(i), seed, test_set) for i, seed in enumerate(SEEDS)]
