"""What a trained sphere network is like: how steep its field is, how far the classifier lets its outputs move, and how
large the errors are that an adaptive solver estimates.

Shapes: N test points, n steps, K stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from windermere.nn.float64 import double_of
from windermere.paper.architectures import SphereField
from windermere.paper.studies.rows import RunRow, Table, five_digits
from windermere.paper.studies.study import Finished
from windermere.solvers import Adaptive, FixedStep, Solver, solve

FLOW = FixedStep.of("rk4", steps=1024)
FINER = 64
"""A step's true error is found by so many steps of rk4 in its place."""
MOMENTS = 16
"""At so many nodes of a trajectory, at most, slopes are looked at."""


@dataclass(frozen=True, kw_only=True)
class FieldRow(RunRow):
    """One model in float64, on the test set."""

    slope: float
    """The largest norm of the field's Jacobian that its trajectories meet: its Lipschitz constant is no smaller."""
    bound: float
    """The product of its layers' norms: its Lipschitz constant is no larger."""
    margin: float
    """The paper's d: how far an output is from where the classifier decides otherwise; the median over points."""
    moved: float
    """How far an output is from where the flow takes the point; the median over points."""
    beyond: float
    """The share of points that move by more than their own margin."""
    changed: float
    """The share of points that the flow has in another class."""
    changed_within: int
    """How many of these move by less than their margin."""


@dataclass(frozen=True, kw_only=True)
class EstimateRow(RunRow):
    """One model's adaptive solve of the test set: true local errors over those that its solver estimates."""

    steps: int
    underestimated: float
    """Their ratio for a point and a step: the median over all of them."""
    controlled: float
    """The ratio of what the solver controls, root mean squares over points, in the step where it is largest."""


FIELDS, ESTIMATES = Table("fields", FieldRow), Table("estimates", EstimateRow)


def field_rows(run: Finished) -> list[FieldRow]:
    return [_field_row(run, s, seed) for s, seed in enumerate(run.trained.config.seeds)]


def estimate_rows(run: Finished) -> list[EstimateRow]:
    return [_estimate_row(run, s, seed) for s, seed in enumerate(run.trained.config.seeds)]


def _parts(run: Finished, member: int) -> tuple[SphereField, nn.Linear, Solver]:
    model: Any = double_of(run.trained.member(member))
    block, _, head = model
    return block.field, head, block.solver


@torch.no_grad()
def _field_row(run: Finished, member: int, seed: int) -> FieldRow:
    field, head, solver = _parts(run, member)
    inputs = run.test_set[0].double()
    visited = _visited(field, inputs, solver)
    own, flow = visited[-1], solve(field, inputs, FLOW).final
    margin, moved = _margins(head, own), (own - flow).norm(dim=1)
    changed, beyond = head(own).argmax(dim=1) != head(flow).argmax(dim=1), moved > margin
    return FieldRow(
        run=run.name,
        seed=seed,
        slope=five_digits(slope(field, visited)),
        bound=five_digits(layer_bound(field)),
        margin=five_digits(margin.median().item()),
        moved=five_digits(moved.median().item()),
        beyond=beyond.double().mean().item(),
        changed=changed.double().mean().item(),
        changed_within=int((changed & ~beyond).sum()),
    )


def _visited(field: nn.Module, inputs: Tensor, solver: Solver) -> Tensor:
    """[n + 1, N, d]: the states at all nodes of the solver's own steps."""
    trajectory = solve(field, inputs, solver, record=True).trajectory
    assert trajectory is not None
    return trajectory.states


@torch.no_grad()
def slope(field: nn.Module, states: Tensor) -> float:
    """The largest spectral norm of the Jacobian at some of the states [n, N, d]."""
    some = states[:: max(1, len(states) // MOMENTS)].flatten(0, 1)
    time = some.new_zeros(())
    jacobians = vmap(jacrev(lambda z: field(time, z[None])[0]))(some)
    return float(torch.linalg.matrix_norm(jacobians, ord=2).max())


@torch.no_grad()
def layer_bound(field: SphereField) -> float:
    """The product of the norms of the three layers as maps of all points; ReLU adds nothing."""
    weight, points = field.mix.weight, field.points
    width = weight.shape[0]
    units = torch.eye(width * points, dtype=weight.dtype, device=weight.device).reshape(-1, width, points)
    mixed = nn.functional.conv1d(units, weight, padding=1).flatten(1)
    outer = field.lift.weight.norm() * field.lower.weight.norm()
    return float(outer * torch.linalg.matrix_norm(mixed, ord=2))


def _margins(head: nn.Linear, outputs: Tensor) -> Tensor:
    """[N]: distances of outputs [N, d] from the line where the two classes' scores are equal."""
    first, second = head(outputs).unbind(dim=1)
    apart: Tensor = head.weight[0] - head.weight[1]
    distances: Tensor = torch.abs(first - second) / apart.norm()
    return distances


@torch.no_grad()
def _estimate_row(run: Finished, member: int, seed: int) -> EstimateRow:
    field, _, solver = _parts(run, member)
    assert isinstance(solver, Adaptive)
    trajectory = solve(field, run.test_set[0].double(), solver, record=True).trajectory
    assert trajectory is not None
    times = torch.as_tensor(trajectory.times).flatten().tolist()
    states = trajectory.states[:-1]
    found = [_errors(field, z, after - now, solver) for z, (now, after) in zip(states, pairwise(times), strict=True)]
    true, estimated = (torch.stack(errors) for errors in zip(*found, strict=True))
    controlled = (true.square().sum(dim=1) / estimated.square().sum(dim=1)).sqrt()
    return EstimateRow(
        run=run.name,
        seed=seed,
        steps=len(found),
        underestimated=five_digits((true / estimated).median().item()),
        controlled=five_digits(controlled.max().item()),
    )


def _errors(field: nn.Module, z: Tensor, h: float, solver: Adaptive) -> tuple[Tensor, Tensor]:
    """The errors [N] of one step of size h from states z [N, d]: as they are, and as they are estimated."""
    tableau, rates = solver.tableau, list[Tensor]()
    time = z.new_zeros(())
    for row in tableau.a:
        rates.append(field(time, z + h * _weighted(row, rates, z)))
    stepped, estimate = z + h * _weighted(tableau.b, rates, z), h * _weighted(tableau.error_weights, rates, z)
    true = stepped - solve(field, z, FixedStep("rk4", step=h / FINER), times=(0.0, h)).final
    return true.norm(dim=1), estimate.norm(dim=1)


def _weighted(weights: Sequence[float], rates: Sequence[Tensor], z: Tensor) -> Tensor:
    terms = (w * k for w, k in zip(weights, rates, strict=True))
    return sum(terms, torch.zeros_like(z))
