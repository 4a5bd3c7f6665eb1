"""Evidence: it explains a verdict and never decides one. Each piece says what it proves and what it does not.

Shapes: P points of the batch, K steps that the training solver takes, n samples of the batch, D entries of a state.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.convergence import Convergence, convergence
from windermere.auditing.evidence.crossings import count_crossings
from windermere.auditing.evidence.energy import EnergyDrift, own_energy_drift
from windermere.auditing.evidence.lipschitz import lipschitz
from windermere.auditing.evidence.margins import margins
from windermere.auditing.evidence.modified_equation import ModifiedEquation, modified_equation
from windermere.auditing.evidence.orientation import step_orientation
from windermere.auditing.evidence.paths import OwnPaths, own_paths
from windermere.auditing.evidence.planes import decision_of, plane_of
from windermere.auditing.evidence.stability import stability
from windermere.auditing.evidence.there_and_back import Return, there_and_back
from windermere.auditing.reference import Reference
from windermere.auditing.scoring import Result
from windermere.auditing.subject import Pass, Subject
from windermere.auditing.verdict import Evidence
from windermere.errors import WindermereError, describe_error
from windermere.report.audit_data import Plane
from windermere.report.numbers import two_digits
from windermere.solvers import counting
from windermere.solvers.paths import fast_paths

JACOBIANS, FEW, MANY_DIMENSIONS = 20, 4, 256
"""Points at which Jacobians are looked at, where dimensions are not many and where they are."""
NODES = 16
"""Steps along a trajectory at which Jacobians are looked at, evenly spread."""


@dataclass(frozen=True)
class Drawn:
    """The evidence, its cost in passes of the whole batch with the own solver, and arrays for figures."""

    evidence: tuple[Evidence, ...] = ()
    passes: float = 0.0
    plane: Plane | None = None


def gather_evidence(subject: Subject, batch: tuple[Any, Any], done: Pass, own: Result, reference: Reference) -> Drawn:
    """All the evidence that this way in can give; what fails or does not apply is left out or says why. `done` is the
    pass with its own solver."""
    paths = own_paths(subject, batch, done, own, reference)
    if paths is None:
        return Drawn()
    seen = _Seen(paths.insight.field)
    watched = replace(paths, insight=replace(paths.insight, field=seen))
    with torch.no_grad():
        with counting() as count:
            plane = plane_of(paths, done.outputs[0].numel())
        pieces: dict[str, Callable[[], Evidence | None]] = {
            "crossings": lambda: _crossings(watched, plane),
            "orientation": lambda: _orientation(watched),
            "h L": lambda: _lipschitz(watched),
            "modified equation": lambda: _told("modified equation", _modified_equation(watched)),
            "convergence": lambda: _told("convergence", convergence(watched)),
            "there and back": lambda: _told("there and back", there_and_back(watched)),
            "energy": lambda: _told("energy", own_energy_drift(paths)),
            "margins": lambda: _margins(watched, own, reference),
            "stability": lambda: _stability(watched),
        }
        with fast_paths(False):  # a field that counts is on none of them, and each solve would try it anew
            found = [e for name, piece in pieces.items() if (e := _attempt(name, piece)) is not None]
    # Besides the paths themselves: the pass that showed the field.
    walked = own.evaluations + int(np.max(count.forward)) + len(paths.times) * paths.solver.tableau.stages
    return Drawn(
        tuple(found),
        (walked * paths.states.shape[1] + seen.samples) / (max(1, own.evaluations) * len(own.scores)),
        plane,
    )


class _Seen:
    """A field that counts the samples it is evaluated for."""

    def __init__(self, rate: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.rate, self.samples = rate, 0

    def __call__(self, t: Tensor, z: Tensor) -> Tensor:
        self.samples += len(z)
        return self.rate(t, z)


def _attempt(name: str, piece: Callable[[], Evidence | None]) -> Evidence | None:
    """Evidence that cannot be had says why; the verdict stands without it."""
    try:
        return piece()
    except Exception as error:  # whatever the user's code raises  # noqa: BLE001
        why = str(error) if isinstance(error, WindermereError) else describe_error(error)
        return Evidence(name=name, finding=f"not available: {why}", proves="Nothing.", limits="", numbers={})


def _told(name: str, found: Convergence | ModifiedEquation | Return | EnergyDrift | None) -> Evidence | None:
    """A finding that says of itself what it proves; None where there is none."""
    if found is None:
        return None
    return Evidence(
        name=name, finding=found.finding, proves=found.proves, limits=found.limits, numbers=vars(found).copy()
    )


def _modified_equation(paths: OwnPaths) -> ModifiedEquation:
    points = JACOBIANS if paths.states[0, 0].numel() <= MANY_DIMENSIONS else FEW
    field, steps = paths.insight.field, paths.nodes(NODES // 2)
    return modified_equation(field, paths.solver.tableau, paths.states[:, :points], paths.times, steps)


def _crossings(paths: OwnPaths, plane: Plane | None) -> Evidence | None:
    """Evidence in the plane: crossings of different samples' trajectories, beyond those of the flow's chords."""
    if plane is None:
        return None
    if not _autonomous(paths):
        return Evidence(
            name="crossings",
            finding="not counted: the field depends on t, so its trajectories may cross",
            proves="Nothing.",
            limits="Only trajectories of autonomous fields must not cross.",
            numbers={},
        )
    own, flow = (count_crossings(states, paths.classes) for states in (plane.own, plane.flow))
    beyond = max(0, own.between_classes - flow.between_classes)
    known = paths.classes is not None
    between, its = (f", {own.between_classes} between classes", f" and {flow.between_classes}") if known else ("", "")
    return Evidence(
        name="crossings",
        finding=f"{own.total} crossings among {_trajectories(plane.own.shape[1])}{between} "
        f"(the flow, sampled at the same nodes: {flow.total}{its})",
        proves="Solutions of an autonomous ODE do not cross: crossings beyond the flow's own chords are the solver's.",
        limits="No crossings at this step say nothing of other steps, and a fan of errors can tie a model without any.",
        numbers={"own": vars(own), "flow": vars(flow), "beyond_between_classes": beyond},
    )


def _trajectories(n: int) -> str:
    return "1 trajectory" if n == 1 else f"{n} trajectories"


def _autonomous(paths: OwnPaths) -> bool:
    field_, z = paths.insight.field, paths.insight.start[:8]
    start, end = paths.times[0], paths.times[-1]
    # Shares of the span at which no usual period repeats.
    rates = [field_(z.new_tensor(start + share * (end - start)), z) for share in (0, 0.2718, 0.618, 1)]
    return all(torch.allclose(rate, rates[0], rtol=1e-10, atol=1e-12) for rate in rates[1:])


def _orientation(paths: OwnPaths) -> Evidence:
    """The sign of the step map's determinant, on fewer points and steps where dimensions are many."""
    large = paths.states[0, 0].numel() > MANY_DIMENSIONS
    points, nodes = (1, 1) if large else (JACOBIANS, NODES)
    states = paths.states[:, :points]
    result = step_orientation(paths.insight.field, paths.solver.tableau, states, paths.times, steps=paths.nodes(nodes))
    finding = result.skipped or (
        f"{result.negative} of {result.points} sampled steps in {result.dimension} dimensions turn orientation around"
        + (f" ({result.uncertain} more are too near zero to tell)" if result.uncertain else "")
    )
    return Evidence(
        name="orientation", finding=finding, proves=result.proves, limits=result.limits, numbers=vars(result).copy()
    )


def _lipschitz(paths: OwnPaths) -> Evidence:
    nodes = paths.nodes(NODES // 2)
    states = paths.some(JACOBIANS if paths.states[0, 0].numel() <= MANY_DIMENSIONS else FEW, nodes)
    result = lipschitz(paths.insight.field, states, [paths.times[i] for i in nodes])
    product = abs(paths.step) * result.largest
    largest, median = two_digits(product), two_digits(abs(paths.step) * result.median)
    return Evidence(
        name="h L",
        finding=f"h L is up to {largest} along trajectories (median {median})",
        proves=result.proves,
        limits=result.limits,
        numbers={**vars(result), "largest_hL": product},
    )


def _margins(paths: OwnPaths, own: Result, reference: Reference) -> Evidence | None:
    """Only where classes are decided, the flow and what follows it are known, and errors are those of its states."""
    head, states = paths.insight.head, None if reference.done is None else reference.done.states
    if paths.classes is None or head is None or decision_of(head) is None or states is None or own.error is None:
        return None
    shaped = states.reshape(len(states), *paths.states.shape[2:])
    result = margins(head.cpu(), shaped, torch.as_tensor(own.error), torch.as_tensor(reference.error))
    certain, guessed = "no solver at least as accurate can change", "as a first-order estimate, hardly change"
    return Evidence(
        name="margins",
        finding=f"{result.safe:.1%} of decisions {certain if result.exact else guessed}",
        proves=result.proves,
        limits=result.limits,
        numbers={"safe": result.safe, "exact": result.exact, "median_margin": result.median_margin},
    )


def _stability(paths: OwnPaths) -> Evidence | None:
    nodes = paths.nodes(NODES // 2)
    times = [paths.times[i] for i in nodes]
    result = stability(paths.insight.field, paths.solver.tableau, paths.some(JACOBIANS, nodes), times, paths.step)
    if result.skipped is not None:
        return None
    return Evidence(
        name="stability",
        finding=f"{result.outside:.1%} of eigenvalues belong to decaying modes that the method makes grow, "
        f"{result.damped:.1%} to growing modes that it damps; |h lambda| is up to {two_digits(result.fastest)}",
        proves=result.proves,
        limits=result.limits,
        numbers=vars(result).copy(),
    )
