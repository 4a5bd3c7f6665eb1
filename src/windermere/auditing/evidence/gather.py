"""Evidence: it explains a verdict and never decides one. Each piece says what it proves and what it does not.

Shapes: P points of the batch, K steps that the training solver takes, n samples of the batch, D entries of a state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windermere.auditing.evidence.crossings import count_crossings
from windermere.auditing.evidence.lipschitz import lipschitz
from windermere.auditing.evidence.margins import margins
from windermere.auditing.evidence.orientation import step_orientation
from windermere.auditing.evidence.stability import stability
from windermere.auditing.labels import as_classes, check_classes
from windermere.auditing.reference import Reference
from windermere.auditing.samples import first
from windermere.auditing.scoring import Numbers, Result, decisions
from windermere.auditing.subject import Insight, Pass, Subject
from windermere.auditing.verdict import Evidence
from windermere.errors import SolverError, UsageError, WindermereError
from windermere.report.audit_data import Plane
from windermere.report.palette import CLASSES
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver, counting, solve

TRAJECTORIES, JACOBIANS, MANY_DIMENSIONS = 300, 20, 256
NODES = 16
"""Steps along a trajectory at which Jacobians are looked at, evenly spread."""
Times: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Drawn:
    """The evidence, its cost in passes of the whole batch with the own solver, and arrays for figures."""

    evidence: tuple[Evidence, ...] = ()
    passes: float = 0.0
    plane: Plane | None = None


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The training solver's way, in float64, for some points of the batch."""

    insight: Insight
    solver: Solver
    states: Tensor
    """[K + 1, P, ...]"""
    times: Times
    classes: NDArray[np.int64] | None
    """[P]; None of a regression, and wherever labels are no classes of the outputs"""

    @property
    def step(self) -> float:
        """The largest, with its sign."""
        steps = np.diff(self.times)
        return float(steps[np.abs(steps).argmax()])

    def some(self, points: int, nodes: Sequence[int]) -> Tensor:
        return self.states[list(nodes), :points]


def gather_evidence(subject: Subject, batch: tuple[Any, Any], done: Pass, own: Result, reference: Reference) -> Drawn:
    """All the evidence that this way in can give; what fails or does not apply is left out or says why. `done` is the
    pass with its own solver."""
    walk = _walk(subject, batch, done)
    if walk is None:
        return Drawn()
    seen = _Seen(walk.insight.field)
    watched = replace(walk, insight=replace(walk.insight, field=seen))
    with counting() as count, torch.no_grad():
        plane = _plane(walk, done.outputs[0].numel())
        pieces: dict[str, Callable[[], Evidence | None]] = {
            "crossings": lambda: _crossings(watched, plane),
            "orientation": lambda: _orientation(watched),
            "h L": lambda: _lipschitz(watched),
            "margins": lambda: _margins(watched, own, reference),
            "stability": lambda: _stability(watched),
        }
        found = [e for name, piece in pieces.items() if (e := _attempted(name, piece)) is not None]
    # Besides the walk itself: the pass that showed the field.
    walked = own.evaluations + int(np.max(count.forward)) + len(walk.times) * walk.solver.tableau.stages
    return Drawn(
        tuple(found),
        (walked * walk.states.shape[1] + seen.samples) / (max(1, own.evaluations) * len(own.scores)),
        plane,
    )


class _Seen:
    """A field that counts the samples it is evaluated for."""

    def __init__(self, rate: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.rate, self.samples = rate, 0

    def __call__(self, t: Tensor, z: Tensor) -> Tensor:
        self.samples += len(z)
        return self.rate(t, z)


def _attempted(name: str, piece: Callable[[], Evidence | None]) -> Evidence | None:
    """Evidence that cannot be had says why; the verdict stands without it."""
    try:
        return piece()
    except WindermereError as error:
        return Evidence(name=name, finding=f"not available: {error}", proves="Nothing.", limits="", numbers={})


def _walk(subject: Subject, batch: tuple[Any, Any], done: Pass) -> Walk | None:
    inputs, labels = batch
    try:
        insight = subject.insight(first(inputs, TRAJECTORIES))
        solver = subject.solvers[-1]
        if insight is None:
            return None
        if isinstance(solver, Adaptive):
            solver = replace(solver, tolerance=None, control="batch")
        with torch.no_grad():
            solution = solve(insight.field, insight.start, solver, insight.times, record=True)
    except WindermereError:
        return None
    if solution.trajectory is None or not isinstance(solution.trajectory.states, Tensor):
        return None
    return Walk(
        insight=insight,
        solver=solver,
        states=solution.trajectory.states.detach(),
        times=tuple(solution.trajectory.times.tolist()),
        classes=_classes(done.outputs, labels, len(insight.start)),
    )


def _classes(outputs: Tensor, labels: Any, points: int) -> NDArray[np.int64] | None:
    """Of the first points; None where labels are something else, such as the targets of a regression."""
    try:
        check_classes(outputs, labels)
    except UsageError:
        return None
    return as_classes(labels)[:points].numpy()


def _plane(walk: Walk, outputs: int) -> Plane | None:
    """The same points under the flow, at the same nodes as the training solver's."""
    if walk.states.shape[2:] != (2,):
        return None
    # Adaptive steps may be a millionth of each other: each is halved by itself.
    halves = [FixedStep("rk4", step=min(abs(b - a) / 2, 1 / 64)).nodes(a, b)[1:] for a, b in pairwise(walk.times)]
    finer = OnGrid("rk4", (walk.times[0], *np.concatenate(halves).tolist()))
    try:
        flow = solve(walk.insight.field, walk.insight.start, finer, walk.times).states
    except SolverError:  # where the flow leaves the plane there is nothing to draw or to count
        return None
    own, exact = (torch.as_tensor(states).cpu().double().numpy() for states in (walk.states, flow))
    if not np.isfinite(own).all() or not np.isfinite(exact).all():
        return None
    coloured = walk.classes is not None and outputs <= len(CLASSES)
    return Plane(
        own=own,
        flow=exact,
        labels=walk.classes if coloured else None,
        decide=_decision(walk.insight.head) if coloured else None,
    )


@dataclass(frozen=True)
class _Decision:
    """What the layers after the flow say of points in the plane; a class, so that a verdict can be pickled."""

    head: nn.Module

    @torch.no_grad()
    def __call__(self, points: Numbers) -> Numbers:
        return decisions(self.head(torch.as_tensor(points))).numpy()


def _decision(head: nn.Module | None) -> Callable[[Numbers], Numbers] | None:
    """None where nothing follows the flow."""
    if head is None or not list(head.children()) + list(head.parameters()):
        return None
    return _Decision(head)


def _crossings(walk: Walk, plane: Plane | None) -> Evidence | None:
    """In the plane: what trajectories of different samples cross, beyond what the flow's chords do."""
    if plane is None:
        return None
    if not _autonomous(walk):
        return Evidence(
            name="crossings",
            finding="not counted: the field depends on t, so its trajectories may cross",
            proves="Nothing.",
            limits="Only trajectories of autonomous fields must not cross.",
            numbers={},
        )
    own, flow = (count_crossings(states, walk.classes) for states in (plane.own, plane.flow))
    beyond = max(0, own.between_classes - flow.between_classes)
    known = walk.classes is not None
    between, its = (f", {own.between_classes} between classes", f" and {flow.between_classes}") if known else ("", "")
    return Evidence(
        name="crossings",
        finding=f"{own.total} crossings among {plane.own.shape[1]} trajectories{between} "
        f"(the flow, sampled at the same nodes: {flow.total}{its})",
        proves="Solutions of an autonomous ODE do not cross: crossings beyond the flow's own chords are the solver's.",
        limits="No crossings at this step say nothing of other steps, and a fan of errors can tie a model without any.",
        numbers={"own": vars(own), "flow": vars(flow), "beyond_between_classes": beyond},
    )


def _autonomous(walk: Walk) -> bool:
    field_, z = walk.insight.field, walk.insight.start[:8]
    start, end = walk.times[0], walk.times[-1]
    # Shares of the span at which no usual period repeats.
    rates = [field_(z.new_tensor(start + share * (end - start)), z) for share in (0, 0.2718, 0.618, 1)]
    return all(torch.allclose(rate, rates[0], rtol=1e-10, atol=1e-12) for rate in rates[1:])


def _nodes(walk: Walk, most: int) -> list[int]:
    steps = len(walk.times) - 1
    return sorted({round(i) for i in np.linspace(0, steps - 1, min(most, steps))})


def _orientation(walk: Walk) -> Evidence:
    """The sign of the step map's determinant, on fewer points and steps where dimensions are many."""
    large = walk.states[0, 0].numel() > MANY_DIMENSIONS
    points, nodes = (1, 1) if large else (JACOBIANS, NODES)
    states = walk.states[:, :points]
    result = step_orientation(walk.insight.field, walk.solver.tableau, states, walk.times, steps=_nodes(walk, nodes))
    finding = result.skipped or (
        f"{result.negative} of {result.points} sampled steps in {result.dimension} dimensions turn orientation around"
        + (f" ({result.uncertain} more are too near zero to tell)" if result.uncertain else "")
    )
    return Evidence(
        name="orientation", finding=finding, proves=result.proves, limits=result.limits, numbers=vars(result).copy()
    )


def _lipschitz(walk: Walk) -> Evidence:
    nodes = _nodes(walk, NODES // 2)
    states = walk.some(JACOBIANS if walk.states[0, 0].numel() <= MANY_DIMENSIONS else 4, nodes)
    result = lipschitz(walk.insight.field, states, [walk.times[i] for i in nodes])
    product = abs(walk.step) * result.largest
    return Evidence(
        name="h L",
        finding=f"h L is up to {product:.2g} along trajectories (median {abs(walk.step) * result.median:.2g})",
        proves=result.proves,
        limits=result.limits,
        numbers={**vars(result), "largest_hL": product},
    )


def _margins(walk: Walk, own: Result, reference: Reference) -> Evidence | None:
    """Only where classes are decided, the flow and what follows it are known, and errors are those of its states."""
    head, states = walk.insight.head, None if reference.done is None else reference.done.states
    if walk.classes is None or head is None or _decision(head) is None or states is None or own.error is None:
        return None
    shaped = states.reshape(len(states), *walk.states.shape[2:])
    result = margins(head.cpu(), shaped, torch.as_tensor(own.error), torch.as_tensor(reference.error))
    certain, guessed = "no solver at least as accurate can change", "as a first-order estimate, hardly change"
    return Evidence(
        name="margins",
        finding=f"{result.safe:.1%} of decisions {certain if result.exact else guessed}",
        proves=result.proves,
        limits=result.limits,
        numbers={"safe": result.safe, "exact": result.exact, "median_margin": result.median_margin},
    )


def _stability(walk: Walk) -> Evidence | None:
    nodes = _nodes(walk, NODES // 2)
    times = [walk.times[i] for i in nodes]
    result = stability(walk.insight.field, walk.solver.tableau, walk.some(JACOBIANS, nodes), times, walk.step)
    if result.skipped is not None:
        return None
    return Evidence(
        name="stability",
        finding=f"{result.outside:.1%} of eigenvalues belong to decaying modes that the method makes grow, "
        f"{result.damped:.1%} to growing modes that it damps; |h lambda| is up to {result.fastest:.2g}",
        proves=result.proves,
        limits=result.limits,
        numbers=vars(result).copy(),
    )
