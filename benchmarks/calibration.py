"""Does the audit get it right? At least 40 Sphere2 models, labelled by the paper's rule brute-forced on a dense ladder.

The label looks at Euler, midpoint and rk4 at 16 step factors and at a float64 reference of 4096 rk4 steps; the audit
may answer UNDECIDED only where the interval of a gap that it looks at straddles the threshold.
"""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from windermere.auditing import Outcome
from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import end_of
from windermere.auditing.metrics import accuracy
from windermere.auditing.scoring import distance
from windermere.auditing.subject import ModelSubject
from windermere.cli.terminal import training_progress
from windermere.errors import SolverError
from windermere.paper import data
from windermere.paper.training import Labelled, RunConfig, open_run, train, trained_ensemble

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


def label(model: nn.Module, test: Labelled) -> tuple[str, float]:
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


def examine(model: nn.Module, seed: int, test: Labelled) -> Case:
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
    loaded = data.load("sphere2")
    training_set, test_set = loaded.train, loaded.test
    cases: list[Case] = []
    for method, counts in GRID.items():
        for steps in counts:
            cases.extend(_cases(wm.FixedStep.of(method, steps=steps), training_set, test_set))
    table = Counter((case.label, case.answer) for case in cases)
    wrong = [case for case in cases if case.answer not in (case.label, str(Outcome.UNDECIDED))]
    stray = [case for case in cases if case.answer == str(Outcome.UNDECIDED) and not case.straddles]
    at64 = [case for case in cases if case.trained_with == "euler, h = 1/64"]
    rows = {f"labelled {a}, audited {b}": n for (a, b), n in sorted(table.items())}
    show(f"Calibration of the audit on {len(cases)} Sphere2 models", rows)
    keep("calibration", {"cases": [vars(case) for case in cases], "confusion": rows})
    return [
        Bar(name="models", measured=len(cases), limit=40, at_least=True),
        Bar(name="audits that contradict the label", measured=len(wrong), limit=0, at_least=False),
        Bar(name="undecided, and no interval straddles the threshold", measured=len(stray), limit=0, at_least=False),
        Bar(name="audit at 64 steps, passes", measured=max(c.evaluations for c in at64), limit=120, at_least=False),
        Bar(name="audit at 64 steps, seconds", measured=median(c.seconds for c in at64), limit=15, at_least=False),
    ]


def _cases(solver: wm.FixedStep, training_set: Labelled, test_set: Labelled) -> list[Case]:
    """Quickly trained: a tenfold learning rate and fewer iterations give flows, tied models and some in between."""
    config = RunConfig(
        data="sphere2", solver=solver, seeds=SEEDS, iterations=1500, batch_size=128, optimizer="adam", lr=1e-3
    )
    with TemporaryDirectory() as folder:
        with (
            open_run(Path(folder) / "run", config) as run_folder,
            training_progress(str(solver), config.iterations, "step") as report,
        ):
            train(config, training_set, test_set, run_folder, report=report)
        ensemble = trained_ensemble(Path(folder) / "run").ensemble
    return [examine(ensemble.member(i), seed, test_set) for i, seed in enumerate(SEEDS)]
