"""Why a reference flow did not converge: stiff, chaotic, rounding, or only a small budget."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windermere.auditing.evidence.lipschitz import lipschitz
from windermere.auditing.samples import first
from windermere.auditing.subject import Pass, Subject
from windermere.solvers import Adaptive, Solver

POINTS = 16
NOT_CLOSER = 0.8
"""A ratio of successive differences from which on refining brings nothing: an order of 0.3 where steps are halved."""
EXPECTED = 4.0
"""The order of rk4, which the reference is solved by: what approaches with it does not do so slowly."""
UNRESOLVED = 1.0
"""h L from which on a step is too long for the field's fastest modes; where it is less, rk4 converges unless
neighbouring solutions part from each other."""


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What the last three refinements showed."""

    ratio: float
    """Median of successive differences, the last over the one before; not finite where squares of them overflow."""
    order: float
    """What it says of the order of convergence."""
    rounded: bool
    """Whether the last difference is rounding only."""


def why(
    subject: Subject,
    x: Any,
    solver: Solver,
    done: Pass,
    signs: Signs | None,
    failure: str | None,
    dtype: str | None,
) -> str:
    """In words; `solver` is the finest that was tried, and `dtype` what it computed in."""
    stiff = None if isinstance(solver, Adaptive) else _stiffness(subject, x, solver, done)
    if failure is None and signs is not None and not np.isfinite(signs.ratio):
        failure = f"its solutions are too large to be measured, under {solver}"
    fast = "" if stiff is None else f" (h L is {stiff:.2g} at {solver}, above {UNRESOLVED:g})"
    if failure is not None:
        return f"the field is stiff{fast}, and {failure}" if _exceeds(stiff) else failure
    if signs is None:
        return "its budget did not allow enough refinements to judge them"
    if signs.rounded:
        return "rounding: refinements differ by no more than that, and yet decisions change with it"
    if dtype in ("float16", "bfloat16"):
        return f"rounding to {dtype} changes solutions more than a finer step does: audit the model in float32"
    if not signs.ratio < NOT_CLOSER:
        finer = "tightening the tolerance" if isinstance(solver, Adaptive) else "halving the step"
        return f"{finer} does not bring solutions closer: the field is {_nature(solver, stiff, fast)}"
    if isinstance(solver, Adaptive):
        return f"a tolerance of {solver.precision:.0e} is not fine enough, and the budget is spent"
    slow = f"solutions approach each other only with order {signs.order:.1f}, too slowly for the budget"
    if signs.order >= EXPECTED:
        slow = "solutions approach each other, but are still too far apart when the budget is spent"
    return f"{slow}: the field is stiff{fast}" if _exceeds(stiff) else slow


def _nature(solver: Solver, stiff: float | None, fast: str) -> str:
    if _exceeds(stiff):
        return f"stiff{fast}"
    # Adaptive steps resolve what is stiff; for fixed ones h L tells.
    known = isinstance(solver, Adaptive) or stiff is not None
    return "chaotic: solutions that start close part from each other" if known else "chaotic or stiff"


def _exceeds(stiff: float | None) -> bool:
    return stiff is not None and stiff > UNRESOLVED


def _stiffness(subject: Subject, x: Any, solver: Solver, done: Pass) -> float | None:
    """The largest h L at the first and, where they are finite, last states; None where the field is hidden."""
    few = first(x, POINTS)
    try:
        insight = subject.insight(few)
        if insight is None:
            return None
        states = [(insight.times[0], insight.start), *_ends(insight.start, insight.times[1], done)]
        return solver.precision * max(lipschitz(insight.field, z[None], [t]).largest for t, z in states)
    except Exception:  # whatever the user's code raises  # noqa: BLE001
        return None


def _ends(start: Tensor, t: float, done: Pass) -> list[tuple[float, Tensor]]:
    if done.states is None or done.states[0].numel() != start[0].numel():
        return []
    ends = done.states[: len(start)].reshape(start.shape).to(start)
    return [(t, ends)] if torch.isfinite(ends).all() and ends.abs().max() < 1e6 * (1 + start.abs().max()) else []
