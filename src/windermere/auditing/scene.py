"""A scene: one model under a ladder of solvers, from coarse to fine and on to the flow, as plain arrays for a page.

It tells, for each rung, where the points go, what the model decides for them and for every point of the input plane,
how it scores, and how far its outputs lie from the flow's. It is made when a page is saved, not in the audit.
Shapes: n samples, P of them with trajectories, D entries of a state, F frames of time, G x G a grid, C classes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import Judge, Kind
from windermere.auditing.labels import as_classes
from windermere.auditing.metrics import decisions
from windermere.auditing.samples import first, size
from windermere.auditing.scene_samples import add_samples
from windermere.auditing.scene_view import Projection, View, resampled
from windermere.auditing.subject import Insight, Pass, Subject
from windermere.auditing.threads import threads_for
from windermere.errors import WindermereError
from windermere.nn.shared import arrays_of
from windermere.solvers import Adaptive, OnGrid, Solver, solve

Array = NDArray[Any]
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
FACTORS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
TOLERANCES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
"""Rungs: numbers of steps, factors of a step where their number is not known, and factors of a tolerance."""
POINTS, FEW_POINTS, FEW_SAMPLES, MANY_ENTRIES = 200, 64, 128, 64
"""Trajectories; how many there are, and how many samples, where an input or a state has more entries than the last."""
GRID, AT_ONCE = 64, 1000
"""Points of a map along each side, and how many are solved together: compiled solves take batches of that size."""
FINEST_ELSEWHERE = 128
"""Steps of the finest rung where another library solves, whose every step costs more."""
CLASSES, LARGEST_CONFUSION = 10, 20
"""Up to so many classes have colours, and a matrix."""
BINS = np.arange(-6.0, 1.01, 0.5)
"""Edges of a histogram: how far an output moves, in powers of ten of the outputs' own spread."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a scene is made from: the audited model, samples, and their outputs under the flow."""

    subject: Subject
    inputs: Any
    targets: Any
    own: Pass
    """The pass of the same samples with the own solver."""
    flow: Pass | None
    """None where the flow is not known."""
    judge: Judge
    real: Any = None
    """Real samples to look at beside a sampler's own."""

    @property
    def classes(self) -> bool:
        """Whether outputs are decisions."""
        return self.judge.kind in (Kind.CLASSES, Kind.DECISIONS)

    def score(self, done: Pass) -> float | None:
        """The number that stands for a pass in tables, None where there is none."""
        if self.judge.flaw(done, self.targets) is not None:
            return None
        kept, own = (self.judge.keep(each, self.targets, self.own, self.flow) for each in (done, self.own))
        score = self.judge.score(kept, own)
        return score if isfinite(score) else None


@dataclass(frozen=True)
class Rung:
    """One solver of the ladder."""

    candidate: Candidate
    steps: int | None


class Scene:
    """A scene that is made when it is first asked for. A copy or a pickle keeps what was made, and not the model."""

    def __init__(self, stage: Stage | None, made: dict[str, Any] | None = None) -> None:
        self._stage, self._made = stage, made

    def __call__(self) -> dict[str, Any] | None:
        """The scene as plain arrays, None where there is none."""
        if self._made is None and self._stage is not None:
            threads = threads_for(self._stage.subject, self._stage.inputs)
            with torch.inference_mode(False), torch.no_grad(), threads:
                self._made = make_scene(self._stage)
            self._stage = None
        return self._made

    def __reduce__(self) -> tuple[type["Scene"], tuple[None, dict[str, Any] | None]]:
        return Scene, (None, self._made)


def make_scene(stage: Stage) -> dict[str, Any] | None:
    """All rungs of the ladder, the own solver's among them, and the flow as the last."""
    stage = _affordable(stage)
    insight = _insight(stage)
    rungs = _ladder(stage.subject, insight)
    passes = {rung: done for rung in rungs if (done := _pass(stage, rung)) is not None}
    if not isinstance(stage.subject.solvers[-1], Adaptive):
        passes = _distinct(passes)
    own = next((rung for rung in passes if rung.candidate.factor == 1), None)
    if own is None:
        return None
    told = [{**_about(rung, stage), **_scored(done, stage)} for rung, done in passes.items()]
    if stage.flow is not None:
        told.append({"flow": True, "solver": "the flow itself", **_scored(stage.flow, stage)})
    samples = size(stage.inputs)
    scene = {"kind": "outputs", "samples": samples, "points": min(POINTS, samples), "own": list(passes).index(own)}
    scene |= {"rungs": told, "bins": BINS.tolist(), **_labels(stage)}
    _add_maps(scene, list(passes), stage)
    if stage.real is not None:
        add_samples(scene, [*passes.values(), *([] if stage.flow is None else [stage.flow])], stage.real)
    elif insight is not None:
        _add_paths(scene, list(passes), insight, stage.subject.solvers[-1])
    return scene


def _affordable(stage: Stage) -> Stage:
    """Fewer samples where each is large: a scene takes a pass of all of them on every rung."""
    entries = sum(prod(leaf.shape[1:]) for leaf in arrays_of(stage.inputs))
    if entries <= MANY_ENTRIES:
        return stage
    return replace(
        stage,
        inputs=first(stage.inputs, FEW_SAMPLES),
        targets=None if stage.targets is None else first(stage.targets, FEW_SAMPLES),
        own=_first_of(stage.own),
        flow=None if stage.flow is None else _first_of(stage.flow),
    )


def _first_of(done: Pass) -> Pass:
    states, ends = (None if each is None else each[:FEW_SAMPLES] for each in (done.states, done.ends))
    return replace(done, outputs=done.outputs[:FEW_SAMPLES], states=states, ends=ends)


def _insight(stage: Stage) -> Insight | None:
    """The field, where the model solves once: of several solves the last one's start would be another on each rung."""
    if len(stage.subject.solvers) > 1:
        return None
    try:
        found = stage.subject.insight(first(stage.inputs, POINTS))
    except WindermereError:
        return None
    many = found is not None and found.start[0].numel() > MANY_ENTRIES
    return replace(found, start=found.start[:FEW_POINTS]) if found is not None and many else found


def _ladder(subject: Subject, insight: Insight | None) -> list[Rung]:
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


def _pass(stage: Stage, rung: Rung) -> Pass | None:
    """None where the solver fails, or the user's code does at states that no audit has seen."""
    change = None if rung.candidate.factor == 1 else rung.candidate
    try:
        return stage.subject.forward(stage.inputs, change)
    except Exception:  # whatever the user's code raises  # noqa: BLE001
        return None


def _distinct(passes: dict[Rung, Pass]) -> dict[Rung, Pass]:
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


def _about(rung: Rung, stage: Stage) -> dict[str, Any]:
    solver = rung.candidate(stage.subject.solvers[-1])
    return {"solver": str(solver), "method": solver.method, "precision": solver.precision, "steps": rung.steps}


def _scored(done: Pass, stage: Stage) -> dict[str, Any]:
    """The mean score, and how the outputs compare with the flow's; None and nothing where they are not finite."""
    told: dict[str, Any] = {"score": stage.score(done), "evaluations": done.evaluations}
    if stage.classes:
        told["decided"] = decisions(done.outputs)[:POINTS].numpy().astype(np.uint8)
    if stage.flow is not None:
        told |= _moved(done.outputs, stage.flow.outputs, classes=stage.classes)
    return told


def _moved(outputs: Tensor, flow: Tensor, *, classes: bool) -> dict[str, Any]:
    one, other = (each.reshape(len(each), -1).numpy() for each in (outputs, flow))
    spread = max(float(np.sqrt(((other - other.mean(axis=0)) ** 2).sum(axis=1).mean())), 1e-300)
    with np.errstate(all="ignore"):
        distance = np.nan_to_num(np.linalg.norm(one - other, axis=1) / spread, nan=np.inf)
        powers = np.clip(np.log10(np.maximum(distance, 1e-30)), BINS[0], BINS[-1])
    told: dict[str, Any] = {"moved": np.histogram(powers, BINS)[0].tolist()}
    count = max(2, one.shape[1])
    if classes:
        mine, its = decisions(outputs).numpy(), decisions(flow).numpy()
        told["agreement"] = float((mine == its).mean())
        if count <= LARGEST_CONFUSION:
            told["confusion"] = np.bincount(mine * count + its, minlength=count * count).reshape(count, count).tolist()
    return told


def _labels(stage: Stage) -> dict[str, Any]:
    """The samples' classes, where there are few enough to have colours."""
    count = max(2, stage.own.outputs[0].numel())
    if not stage.classes or count > CLASSES:
        return {"labels": None, "classes": 0}
    labelled = stage.judge.kind is Kind.CLASSES
    return {
        "labels": as_classes(stage.targets).numpy()[:POINTS].astype(np.uint8) if labelled else None,
        "classes": count,
    }


def _add_maps(scene: dict[str, Any], rungs: Sequence[Rung], stage: Stage) -> None:
    """What the model decides for every point of the input plane, under each rung and under the flow."""
    x = stage.inputs
    if not scene["classes"] or not isinstance(x, Tensor) or x.shape[1:] != (2,) or not x.is_floating_point():
        return
    low, high = x.min(dim=0).values, x.max(dim=0).values
    centre, half = (low + high) / 2, 0.58 * float((high - low).max()) or 1.0  # all samples may lie in one place
    line = torch.linspace(-half, half, GRID, dtype=x.dtype, device=x.device)
    points = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).reshape(-1, 2) + centre
    changes: list[Candidate | None] = [rung.candidate if rung.candidate.factor != 1 else None for rung in rungs]
    if stage.flow is not None:
        changes.append(_flow_of(stage.subject.solvers[-1], rungs))
    for told, change in zip(scene["rungs"], changes, strict=True):
        with _unless_it_fails():
            outputs = [stage.subject.forward(some, change).outputs for some in torch.split(points, AT_ONCE)]
            done = decisions(torch.cat(outputs))
            told["map"] = done.reshape(GRID, GRID).numpy().astype(np.uint8)
    scene["inputs"] = ((x[:POINTS] - centre) / half).double().cpu().numpy()
    scene["input_frame"] = [*(centre.tolist()), half]


@contextmanager
def _unless_it_fails() -> Iterator[None]:
    """A solver, or the user's code, may fail on points that are no samples: then there is no map of them."""
    with suppress(Exception):
        yield


def _flow_of(own: Solver, rungs: Sequence[Rung]) -> Candidate:
    """Good enough for a picture: rk4 with four of the ladder's finest steps in one, or its finest tolerance."""
    finest = min(rung.candidate.factor for rung in rungs)
    return Candidate("dopri54", finest) if isinstance(own, Adaptive) else Candidate("rk4", min(0.5, 4 * finest))


def _add_paths(scene: dict[str, Any], rungs: Sequence[Rung], insight: Insight, own: Solver) -> None:
    """Trajectories of the first samples, as each solver walks them, seen in a square."""
    solvers = [rung.candidate(own) for rung in rungs]
    if scene["rungs"][-1].get("flow"):
        solvers.append(_flow_of(own, rungs)(own))
    walked = [_walk(insight, solver) for solver in solvers]
    mine = walked[scene["own"]]
    if mine is None:
        return
    known = [each for each in walked if each is not None]
    project = Projection.of(np.concatenate([mine, known[-1]]))
    shown = [None if each is None else project(each) for each in walked]
    view = View.around(project(mine), [each for each in shown if each is not None])
    for told, each in zip(scene["rungs"], shown, strict=True):
        if each is not None:
            told["paths"] = view(each)
            told["outside"] = int((np.abs(told["paths"][-1]) > 1).any(axis=1).sum())
    scene |= {"kind": "plane", "points": len(mine[0]), "dimension": mine.shape[2], "explained": project.explained}
    scene |= {"rings": [{"distance": r, "at": float(view.shown(np.array(r)))} for r in view.rings]}
    scene["logarithmic"] = view.scale is not None
    _add_background(scene, insight, view)


def _walk(insight: Insight, solver: Solver) -> Array | None:
    """[F + 1, P, D], None where the solver fails, or the user's code."""
    if isinstance(solver, Adaptive):
        solver = replace(solver, tolerance=None, control="batch")
    try:
        walk = solve(insight.field, insight.start, solver, insight.times, record=True).trajectory
    except Exception:  # whatever the user's code raises  # noqa: BLE001
        return None
    if walk is None or not isinstance(walk.states, Tensor):
        return None
    states = walk.states.detach().double().cpu().numpy()
    return resampled(states.reshape(*states.shape[:2], -1), np.asarray(walk.times, dtype=np.float64))


def _add_background(scene: dict[str, Any], insight: Insight, view: View) -> None:
    """What the layers after the solve decide for every end point, where the state has two entries."""
    head = insight.head
    if scene["dimension"] != 2 or not scene["classes"] or head is None or not list(head.children()):
        return
    line = np.linspace(-1, 1, GRID)
    points = view.back(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2))
    with _unless_it_fails():
        found = decisions(head(torch.as_tensor(points, dtype=insight.start.dtype, device=insight.start.device)))
        scene["background"] = found.reshape(GRID, GRID).cpu().numpy().astype(np.uint8)
