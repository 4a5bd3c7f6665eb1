"""The safe precision for test time: the coarsest one from which on everything finer agrees with the reference flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from windermere.auditing.candidates import Candidate
from windermere.auditing.judge import Judge
from windermere.auditing.scoring import Result
from windermere.solvers import Adaptive, Solver
from windermere.solvers.tableaus import tableau

STEP_LADDER = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TOLERANCE_LADDER = (0.01, 0.1, 1.0, 10.0, 100.0)
SLOPE, FINER = 0.5, 1e-3
"""Beyond the finest rung a line tells a precision only where it rises like the errors of a method that converges, and
no further than to this share of it."""
MANY = 128
"""Evaluations; hardly a sampler is used with more."""


@dataclass(frozen=True, kw_only=True)
class Safe:
    """Which precision of the training method may be used at test time."""

    precision: float | None
    """The coarsest safe one on the ladder; None where not even the finest agrees with the reference."""
    solver: str | None
    ladder: tuple[tuple[float, float], ...]
    """Precision and share of samples that agree with the reference, from fine to coarse."""
    finest: str | None
    """The first solver of the ladder, None where all failed."""


UNKNOWN = Safe(precision=None, solver=None, ladder=(), finest=None)
"""The answer where the flow is not known, so that nothing can be compared with it."""


def ladder(own: Solver) -> list[Candidate]:
    """The training method at several precisions, from fine to coarse."""
    factors = TOLERANCE_LADDER if isinstance(own, Adaptive) else STEP_LADDER
    return [Candidate(own.method, factor) for factor in factors]


def sampler_ladder(own: Solver, evaluations: int) -> list[Candidate]:
    """What may be safe for a sampler, which was trained with no step at all: its method, and midpoint, from as many
    evaluations as any sampler takes to coarse ones. `evaluations` are those of its own solver."""
    if isinstance(own, Adaptive):
        return ladder(own)
    methods = dict.fromkeys([own.method, "midpoint"])
    return [Candidate(name, factor) for name in methods for factor in _down_to_many(own, name, evaluations)]


def _down_to_many(own: Solver, method: str, evaluations: int) -> list[float]:
    factors = list(STEP_LADDER)
    each = evaluations * tableau(method).propagating / own.tableau.propagating
    while evaluations and 2 * each / factors[0] <= MANY:
        factors.insert(0, factors[0] / 2)
    return factors


@dataclass(frozen=True)
class Standard:
    """What is safe: what a judge finds the same as the flow, on a share of the decisions where there are such."""

    judge: Judge
    flow: Result
    share: float

    def holds(self, result: Result) -> bool:
        return self.judge.is_safe(result.kept, self.flow.kept, self.share)

    def agreement(self, result: Result) -> float:
        return self.judge.agreement(result.kept, self.flow.kept)


def safe_precision(rungs: Sequence[Result], standard: Standard | None) -> Safe:
    """The safe precision of the training method, whose rungs go from fine to coarse; unknown where the flow is."""
    if standard is None:
        return UNKNOWN
    safe = _coarsest_safe(rungs, standard)
    shown = tuple((r.precision, standard.agreement(r)) for r in rungs if r.failed is None)
    finest = next((r.solver for r in rungs if r.failed is None), None)
    precision, solver = (None, None) if safe is None else (safe.precision, safe.solver)
    return Safe(precision=precision, solver=solver, ladder=shown, finest=finest)


def safe_elsewhere(results: Sequence[Result], own: Result, standard: Standard | None) -> Result | None:
    """The safe solver with the fewest evaluations, of methods that were tried as finely as the training method or more
    so; None where that is one of the training method, or the flow is not known."""
    if standard is None:
        return None
    tried = sorted(results, key=lambda result: result.precision)
    # Its own first: it stays where costs are equal.
    names = dict.fromkeys([own.method, *(each.method for each in tried)])
    methods = [[result for result in tried if result.method == name] for name in names]
    fine = [rungs for rungs in methods if rungs and rungs[0].precision <= own.precision]
    found = [_coarsest_safe(rungs, standard) for rungs in fine]
    cheapest = min((each for each in found if each is not None), key=lambda each: each.evaluations, default=own)
    return None if cheapest.method == own.method else cheapest


def precision_for(rungs: Sequence[Result], standard: Standard | None) -> float | None:
    """The precision at which the training method would be just as far from the flow as is allowed, on the straight line
    through two rungs in logarithms: those on either side, or the finest two where all are too far. None where all are
    near enough, too few are known, nothing but the flow itself is allowed, or the line leads nowhere."""
    if standard is None:
        return None
    limit, judge = standard.judge.threshold, standard.judge
    sizes = [(r.precision, judge.compare(standard.flow.kept, r.kept).size) for r in rungs if r.failed is None]
    known = [(p, size) for p, size in sizes if size > 0]
    beyond = next((i for i, (_, size) in enumerate(known) if size > limit), None)
    if beyond is None or len(known) < 2 or limit <= 0:
        return None
    (p, low), (q, high) = known[max(0, beyond - 1) : max(0, beyond - 1) + 2]
    slope = (log(high) - log(low)) / (log(q) - log(p))
    if slope <= 0 or (beyond == 0 and slope < SLOPE):
        return None
    found = exp(log(p) + (log(limit) - log(low)) / slope)
    return found if found >= FINER * p else None


def _coarsest_safe(rungs: Sequence[Result], standard: Standard) -> Result | None:
    """Walk from the finest rung to coarser ones until one fails: agreement is not monotone, so later luck is no help.

    Rungs that a solver cannot resolve (tolerances below rounding) are passed over at the fine end only.
    """
    safe: Result | None = None
    for rung in rungs:
        if rung.failed is not None:
            if safe is None:
                continue
            break
        if not standard.holds(rung):
            break
        safe = rung
    return safe
