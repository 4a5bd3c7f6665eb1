"""An adapted run in numbers: how it swings, where it settles, what it takes, and how far finer solvers are away."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from statistics import fmean, geometric_mean, pstdev

from windermere.paper.studies.adaptation_measures import ADAPTED, CURVES, AdaptedRow, CurveRow
from windermere.paper.studies.audits import AUDITS, AuditRow
from windermere.paper.studies.critical import is_full_length, rate_apart, short_number
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.statistics import slope
from windermere.paper.studies.study import ONE_SEED

FLUCTUATES = log2(1.1)
"""A swing (standard deviation of log2) of one raise of Algorithm 2."""
TURNS = 2
"""Changes of direction: up, down, and up again."""


@dataclass(frozen=True)
class Adapted:
    """One run's rows, of the seeds that trained to the end."""

    rows: Sequence[AdaptedRow]
    curves: Sequence[CurveRow] = ()
    audits: Sequence[AuditRow] = ()
    """Where its seeds were audited."""

    @property
    def first(self) -> AdaptedRow:
        """A row that says what all of them say of the training."""
        return self.rows[0]

    @property
    def is_full_length(self) -> bool:
        return all(is_full_length(row.data, row.iterations) for row in self.rows)

    @property
    def own(self) -> list[AdaptedRow]:
        """For each seed, the row of its own solver."""
        return [row for row in self.rows if row.own]

    @property
    def accuracy(self) -> list[float]:
        """For each seed, as the costs."""
        return [row.accuracy for row in self.own if row.accuracy is not None]

    @property
    def costs(self) -> list[float]:
        return [row.cost for row in self.own if row.cost is not None]

    @property
    def settled(self) -> list[list[float]]:
        """For each seed, its steps or tolerances once settled."""
        return [[row.precision for row in self._settled(curve)] for curve in self.by_seed]

    @property
    def rates(self) -> list[list[float]]:
        """For each seed, evaluations per iteration of training between its reviews, once settled."""
        pairs = [list(pairwise(spent(self._settled(curve)))) for curve in self.by_seed]
        return [[(after - before) / (then - now) for (now, before), (then, after) in own] for own in pairs if own]

    @property
    def by_seed(self) -> list[list[CurveRow]]:
        """The curves of the seeds that have one."""
        curves = ([row for row in self.curves if row.seed == own.seed] for own in self.own)
        return [curve for curve in curves if curve]

    def _settled(self, curve: Sequence[CurveRow]) -> list[CurveRow]:
        """The second half of training. Algorithms 2 and 3, which raise by a tenth at most, follow from where they began
        up to their first correction: they settle after it."""
        half = self.first.iterations // 2
        begin = max(half, _first_correction(curve)) if self.first.algorithm == "paper" else half
        return [row for row in curve if row.iteration > begin] or [curve[-1]]

    @property
    def swings(self) -> list[float]:
        """For each seed, the standard deviation of log2."""
        return [swing(values) for values in self.settled]

    @property
    def fluctuating(self) -> list[bool]:
        """For each seed, whether its steps or tolerances do so to the end."""
        return [fluctuates(values) for values in self.settled]

    @property
    def blocks(self) -> list[tuple[float, float]]:
        """For each seed, the mean of log2 in the first and in the second half of the time since it settled."""
        halves = ((own[: len(own) // 2], own[len(own) // 2 :]) for own in self.settled if len(own) > 1)
        return [(fmean(map(log2, first)), fmean(map(log2, second))) for first, second in halves]

    @property
    def centres(self) -> list[float]:
        return [geometric_mean(values) for values in self.settled]

    @property
    def failed(self) -> list[list[bool]]:
        """For each seed and review, whether the check solver's score was off by more than the threshold."""
        threshold = self.first.threshold or 0.0
        scored = [(row.seed, row.trained, row.checked) for row in self.curves]
        return [
            [abs(a - b) > threshold for seed, a, b in scored if seed == own.seed and a is not None and b is not None]
            for own in self.own
        ]

    @property
    def gaps(self) -> list[float]:
        """For each seed, how far the finer solver that is furthest away is from its own; a solve that fails classifies
        nothing."""
        finer = {own.seed: [row for row in self.rows if row.seed == own.seed and not row.own] for own in self.own}
        return [
            max((abs((own.accuracy or 0.0) - (row.accuracy or 0.0)) for row in finer[own.seed]), default=0.0)
            for own in self.own
        ]

    @property
    def apart(self) -> str:
        """Why what is said of it is counted apart, if it is."""
        return rate_apart(self.first.data, self.first.lr) or (ONE_SEED if len(self.own) == 1 else "")

    @property
    def who(self) -> str:
        first = self.first
        return f"{first.method}/{first.check}, {described(first)}, learning rate {short_number(first.lr)}"


def described(row: AdaptedRow) -> str:
    """The run's rule."""
    if row.algorithm == "steady":
        return f"Steady, target {row.target:g}"
    number = 2 if row.final_tolerance is None else 3
    return f"Algorithm {number}, threshold {row.threshold:g}"


def adapted_runs(tables: Tables) -> list[Adapted]:
    ended = {row.key for row in tables[ADAPTED] if row.own and row.accuracy is not None}
    rows = [row for row in tables[ADAPTED] if row.key in ended]
    return [
        Adapted(
            rows=[row for row in rows if row.run == run],
            curves=[row for row in tables[CURVES] if row.run == run],
            audits=[row for row in tables[AUDITS] if row.run == run],
        )
        for run in dict.fromkeys(row.run for row in rows)
    ]


def runs_by(runs: Sequence[Adapted], algorithm: str, *pair: str) -> list[Adapted]:
    """The runs of an algorithm and, where it is named, of a pair of methods."""
    of = [run for run in runs if run.first.algorithm == algorithm]
    return [run for run in of if not pair or (run.first.method, run.first.check) == pair]


def spent(curve: Sequence[CurveRow]) -> list[tuple[int, int]]:
    """Iterations, and the forward evaluations up to each."""
    return [(r.iteration, r.evaluations_forward) for r in curve if r.evaluations_forward is not None]


def swing(values: Sequence[float]) -> float:
    return pstdev(map(log2, values))


def fluctuates(values: Sequence[float]) -> bool:
    """Whether values swing by more than one raise of Algorithm 2 around the line through them, and still change their
    direction twice in the second half: a drift does not, nor does what has come to rest."""
    logs = [log2(value) for value in values]
    if len(logs) < 3:
        return False
    places = list(map(float, range(len(logs))))
    per_place = slope(places, logs)
    around = [value - per_place * place for place, value in zip(places, logs, strict=True)]
    return pstdev(around) > FLUCTUATES and turns(logs[len(logs) // 2 :]) >= TURNS


def turns(values: Sequence[float]) -> int:
    """How often a sequence changes its direction."""
    ways = [after > before for before, after in pairwise(values) if after != before]
    return sum(one != other for one, other in pairwise(ways))


def _first_correction(curve: Sequence[CurveRow]) -> int:
    """Its iteration; 0 where there is none."""
    sign = -1 if curve[0].steps is None else 1
    decided = ((row, row.precision_after) for row in curve)
    return next((row.iteration for row, after in decided if after and sign * (after - row.precision) > 0), 0)
