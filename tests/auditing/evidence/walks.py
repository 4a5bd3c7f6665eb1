"""Walks through fields whose flow is known, as the audit hands them to evidence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from windermere.auditing.evidence.paths import Flow, OwnPaths
from windermere.auditing.subject import Insight
from windermere.solvers import Solver, solve


def walked(
    field: Any,
    start: Tensor,
    solver: Solver,
    times: tuple[float, float] = (0.0, 1.0),
    flow: Callable[[Tensor], Tensor] | None = None,
) -> OwnPaths:
    """`flow` takes the starts to where the exact solution ends."""
    trajectory = solve(field, start, solver, times, record=True).trajectory
    assert trajectory is not None
    assert isinstance(trajectory.states, Tensor)
    return OwnPaths(
        insight=Insight(field=field, start=start, times=times, head=None),
        solver=solver,
        states=trajectory.states,
        times=tuple(trajectory.times.tolist()),
        classes=None,
        flow=None if flow is None else Flow(end=flow(start), share=0.0),
    )


def points(samples: int = 20, entries: int = 2) -> Tensor:
    return torch.randn(samples, entries, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def turn(angle: float) -> Tensor:
    exact: Tensor = torch.linalg.matrix_exp(torch.tensor([[0.0, angle], [-angle, 0.0]], dtype=torch.float64))
    return exact
