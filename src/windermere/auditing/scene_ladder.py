"""The ladder of a scene (scene.py): the solvers that it shows, from coarse to fine."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from windermere.auditing.candidates import Candidate
from windermere.auditing.scene_stage import MANY_ENTRIES
from windermere.auditing.subject import Insight, Pass, Subject
from windermere.solvers import Adaptive, OnGrid, Solver

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
FACTORS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
TOLERANCES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
"""Rungs: numbers of steps, factors of a step where their number is not known, and factors of a tolerance."""
FINEST_ELSEWHERE = 128
"""Steps of the finest rung where another library solves, whose every step costs more."""


@dataclass(frozen=True)
class Rung:
    """One solver of the ladder."""

    candidate: Candidate
    steps: int | None


def ladder(subject: Subject, insight: Insight | None) -> list[Rung]:
    """From coarse to fine. Where states are large, only around the own step: each rung costs a pass."""
    own = subject.solvers[-1]
    if isinstance(own, Adaptive):
        return [Rung(Candidate(own.method, factor), None) for factor in TOLERANCES]
    if insight is None or isinstance(own, OnGrid):
        return [Rung(Candidate(own.method, factor), None) for factor in FACTORS]
    span = abs(insight.times[1] - insight.times[0])
    mine = len(own.nodes(*insight.times)) - 1
    large = insight.start[0].numel() > MANY_ENTRIES
    finest = STEPS[-1] if subject.library == "windermere" else FINEST_ELSEWHERE
    most = 4 * mine if large else max(finest, 4 * mine)
    counts = {n for n in (*STEPS, 2 * mine, 4 * mine) if n <= most and not (large and 8 * n < mine)} - {mine}
    others = {n: Rung(Candidate(own.method, span / n / own.precision), n) for n in counts}
    return [rung for _, rung in sorted({**others, mine: Rung(Candidate(own.method, 1.0), mine)}.items())]


def distinct(passes: dict[Rung, Pass]) -> dict[Rung, Pass]:
    """Without steps that are longer than the whole time: coarser ones than a single step are the same solve again."""
    kept: dict[Rung, Pass] = {}
    for rung, done in passes.items():
        last = next(reversed(kept), None)
        if last is not None and _alike(passes[last], done):
            if last.candidate.factor == 1:
                continue
            del kept[last]
        kept[rung] = done
    return kept


def _alike(one: Pass, other: Pass) -> bool:
    return one.evaluations == other.evaluations and torch.equal(one.outputs, other.outputs)


def flow_of(own: Solver, rungs: Sequence[Rung]) -> Candidate:
    """Good enough for a picture: rk4 with four of the ladder's finest steps in one, or its finest tolerance."""
    finest = min(rung.candidate.factor for rung in rungs)
    return Candidate("dopri54", finest) if isinstance(own, Adaptive) else Candidate("rk4", min(0.5, 4 * finest))
