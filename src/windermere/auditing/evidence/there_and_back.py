"""There and back again: a flow that is run backwards from its end returns to where it began.

Likelihoods, and samplers that are run backwards to encode, rely on that. Shapes: P points.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from windermere.auditing.evidence.paths import OwnPaths
from windermere.errors import SolverError
from windermere.report.numbers import two_digits
from windermere.solvers import Adaptive, OnGrid, Solver, solve

POINTS = 16


@dataclass(frozen=True, kw_only=True)
class Return:
    """How far from their starts the points end up, relative to the spread of the starts."""

    median: float
    largest: float
    points: int
    lost: str | None
    """Why the way back could not be solved, None where it could."""
    proves: ClassVar[str] = (
        "The flow returns exactly: what is missed is the error of the solver, there and back. A density or a code that "
        "is found by solving backwards is off by about as much."
    )
    limits: ClassVar[str] = (
        "Where the field contracts, the way back magnifies every error, also that of a good solver; and errors there "
        "and back may cancel."
    )

    @property
    def finding(self) -> str:
        """In words."""
        if self.lost is not None:
            return f"the way back from the end cannot be solved with its own solver: {self.lost}"
        return (
            f"back from the end with its own solver, points miss their starts by {two_digits(self.median)} "
            f"times the starts' spread in the median, and by up to {two_digits(self.largest)} times"
        )


def there_and_back(paths: OwnPaths) -> Return:
    """Solve backwards from where the training solver ended, over the same nodes."""
    start, end = paths.states[0, :POINTS], paths.states[-1, :POINTS]
    try:
        back = solve(paths.insight.field, end, _backwards(paths), (paths.times[-1], paths.times[0])).final
    except SolverError as error:
        return Return(median=torch.inf, largest=torch.inf, points=len(start), lost=str(error))
    missed = (back - start).reshape(len(start), -1).norm(dim=1) / _spread(paths.states[0])
    return Return(median=float(missed.median()), largest=float(missed.max()), points=len(start), lost=None)


def _backwards(paths: OwnPaths) -> Solver:
    return paths.solver if isinstance(paths.solver, Adaptive) else OnGrid(paths.solver.method, paths.times[::-1])


def _spread(starts: Tensor) -> float:
    """The mean distance from the mean; where there is none, the mean size."""
    flat = starts.reshape(len(starts), -1)
    spread, size = (float(each.norm(dim=1).mean()) for each in (flat - flat.mean(dim=0), flat))
    return spread or size or 1.0
