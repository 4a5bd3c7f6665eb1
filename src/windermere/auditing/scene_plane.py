"""The pictures of a scene (scene.py): what is decided all over a plane, and the paths of states as solvers walk them.

Shapes: P samples with trajectories, D entries of a state, F frames of time, G x G a grid.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.auditing.candidates import Candidate
from windermere.auditing.metrics import decisions
from windermere.auditing.scene_ladder import Rung, flow_of
from windermere.auditing.scene_stage import POINTS, Stage
from windermere.auditing.scene_view import Projection, View, resampled
from windermere.auditing.subject import Insight
from windermere.solvers import Adaptive, Solver, solve

Array = NDArray[Any]
GRID, AT_ONCE = 64, 1000
"""Points of a map along each side, and how many are solved together: compiled solves take batches of that size."""


def add_maps(scene: dict[str, Any], rungs: Sequence[Rung], stage: Stage) -> None:
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
        changes.append(flow_of(stage.subject.solvers[-1], rungs))
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


def add_paths(scene: dict[str, Any], rungs: Sequence[Rung], insight: Insight, own: Solver) -> None:
    """Trajectories of the first samples, as each solver walks them, seen in a square."""
    solvers = [rung.candidate(own) for rung in rungs]
    if scene["rungs"][-1].get("flow"):
        solvers.append(flow_of(own, rungs)(own))
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
