"""The plane of a model whose states have two entries: own trajectories and the flow's, and how points are decided."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from windermere.auditing.evidence.paths import OwnPaths
from windermere.auditing.metrics import decisions
from windermere.auditing.statistics import Numbers
from windermere.report.audit_data import Plane
from windermere.report.palette import CLASSES
from windermere.solvers import FixedStep, OnGrid, solve


def plane_of(paths: OwnPaths, outputs: int) -> Plane | None:
    """The same points under the flow, at the same nodes as the training solver's."""
    if paths.states.shape[2:] != (2,):
        return None
    # Adaptive steps may be a millionth of each other: each is halved by itself.
    halves = [FixedStep("rk4", step=min(abs(b - a) / 2, 1 / 64)).nodes(a, b)[1:] for a, b in pairwise(paths.times)]
    finer = OnGrid("rk4", (paths.times[0], *np.concatenate(halves).tolist()))
    try:
        flow = solve(paths.insight.field, paths.insight.start, finer, paths.times).states
    except Exception:  # where the flow leaves the plane, or the field refuses it, nothing can be drawn  # noqa: BLE001
        return None
    own, exact = (torch.as_tensor(states).cpu().double().numpy() for states in (paths.states, flow))
    if not np.isfinite(own).all() or not np.isfinite(exact).all():
        return None
    coloured = paths.classes is not None and outputs <= len(CLASSES)
    return Plane(
        own=own,
        flow=exact,
        labels=paths.classes if coloured else None,
        decide=decision_of(paths.insight.head) if coloured else None,
    )


@dataclass(frozen=True)
class _Decision:
    """What the layers after the flow say of points in the plane; a class, so that a verdict can be pickled."""

    head: nn.Module

    @torch.no_grad()
    def __call__(self, points: Numbers) -> Numbers:
        return decisions(self.head(torch.as_tensor(points))).numpy()


def decision_of(head: nn.Module | None) -> Callable[[Numbers], Numbers] | None:
    """How the layers after the flow decide on points in the plane; None where nothing follows the flow."""
    if head is None or not list(head.children()) + list(head.parameters()):
        return None
    return _Decision(head)
