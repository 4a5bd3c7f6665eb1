"""A scene: one model under a ladder of solvers, from coarse to fine and on to the flow, as plain arrays for a page.

It tells, for each rung, where the points go, what the model decides for them and for every point of the input plane,
how it scores, and how far its outputs lie from the flow's. It is made when a page is saved, not in the audit.
Shapes: n samples, P of them with trajectories, D entries of a state, F frames of time, G x G a grid, C classes.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.judge import Kind
from windermere.auditing.labels import as_classes
from windermere.auditing.metrics import decisions
from windermere.auditing.samples import size
from windermere.auditing.scene_ladder import Rung, distinct, ladder
from windermere.auditing.scene_plane import add_maps, add_paths
from windermere.auditing.scene_samples import add_samples
from windermere.auditing.scene_stage import POINTS, Stage, affordable, insight
from windermere.auditing.subject import Pass, finest
from windermere.auditing.threads import threads_for
from windermere.solvers import Adaptive

CLASSES, LARGEST_CONFUSION = 10, 20
"""Up to so many classes have colours, and a matrix."""
BINS = np.arange(-6.0, 1.01, 0.5)
"""Edges of a histogram: how far an output moves, in powers of ten of the outputs' own spread."""


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
    stage = affordable(stage)
    seen = insight(stage)
    rungs = ladder(stage.subject, seen)
    passes = {rung: done for rung in rungs if (done := _pass(stage, rung)) is not None}
    if not isinstance(stage.subject.solvers[-1], Adaptive):
        passes = distinct(passes)
    own = next((rung for rung in passes if rung.candidate.factor == 1), None)
    if own is None:
        return None
    told = [{**_about(rung, stage), **_scored(done, stage)} for rung, done in passes.items()]
    if stage.flow is not None:
        told.append({"flow": True, "solver": "the flow itself", **_scored(stage.flow, stage)})
    samples = size(stage.inputs)
    scene = {"kind": "outputs", "samples": samples, "points": min(POINTS, samples), "own": list(passes).index(own)}
    scene |= {"rungs": told, "bins": BINS.tolist(), **_labels(stage)}
    add_maps(scene, list(passes), stage)
    if stage.real is not None:
        add_samples(scene, [*passes.values(), *([] if stage.flow is None else [stage.flow])], stage.real)
    elif seen is not None:
        add_paths(scene, list(passes), seen, stage.subject.solvers[-1])
    return scene


def _pass(stage: Stage, rung: Rung) -> Pass | None:
    """None where the solver fails, or the user's code does at states that no audit has seen."""
    change = None if rung.candidate.factor == 1 else rung.candidate
    try:
        return stage.subject.forward(stage.inputs, change)
    except Exception:  # whatever the user's code raises  # noqa: BLE001
        return None


def _about(rung: Rung, stage: Stage) -> dict[str, Any]:
    own = finest(stage.subject.solvers)
    solver, steps = rung.candidate(own), rung.steps if own == stage.subject.solvers[-1] else None
    return {"solver": str(solver), "method": solver.method, "precision": solver.precision, "steps": steps}


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
