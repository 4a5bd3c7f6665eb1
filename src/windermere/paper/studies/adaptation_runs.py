"""An adapted run in numbers: how it swings, where it settles, what it takes, and how far finer solvers are away."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from statistics import geometric_mean, pstdev

from windermere.paper.studies.adaptation_measures import CURVES
from windermere.paper.studies.critical import short_number
from windermere.paper.studies.study import MAIN, Tables
from windermere.records import Row

SPENT = "evaluations_forward"
"""A column of the curves: since the start."""


@dataclass(frozen=True)
class Adapted:
    """One run's rows, of the seeds that trained to the end."""

    rows: tuple[Row, ...]
    curves: tuple[Row, ...] = ()

    @property
    def own(self) -> list[Row]:
        return [row for row in self.rows if row["own"]]

    def column(self, name: str) -> list[float]:
        """One number for each seed."""
        return [row[name] for row in self.own if row[name] is not None]

    @property
    def settled(self) -> list[list[float]]:
        """For each seed, its steps or tolerances once settled."""
        return [[row[_precision(curve)] for row in self._settled(curve)] for curve in self.by_seed]

    @property
    def rates(self) -> list[list[float]]:
        """For each seed, evaluations per iteration of training between its reviews, once settled."""
        pairs = [list(pairwise(logged(self._settled(curve)))) for curve in self.by_seed]
        return [[(b[SPENT] - a[SPENT]) / (b["iteration"] - a["iteration"]) for a, b in own] for own in pairs if own]

    @property
    def by_seed(self) -> list[list[Row]]:
        """The curves of the seeds that have one."""
        curves = ([row for row in self.curves if row["seed"] == own["seed"]] for own in self.own)
        return [curve for curve in curves if curve]

    def _settled(self, curve: Sequence[Row]) -> list[Row]:
        """The second half of training. Algorithms 2 and 3, which raise by a tenth at most, follow from where they began
        up to their first correction: they settle after it."""
        half = int(self.rows[0]["iterations"]) // 2
        begin = max(half, _first_correction(curve)) if self.rows[0]["algorithm"] == "paper" else half
        return [row for row in curve if row["iteration"] > begin] or [curve[-1]]

    @property
    def swings(self) -> list[float]:
        """For each seed, the standard deviation of log2."""
        return [swing(values) for values in self.settled]

    @property
    def centres(self) -> list[float]:
        return [geometric_mean(values) for values in self.settled]

    @property
    def failed(self) -> list[list[bool]]:
        """For each seed and review, whether the check solver's score was off by more than the threshold."""
        threshold, seeds = self.rows[0]["threshold"], [row["seed"] for row in self.own]
        reviews = [row for row in self.curves if row["checked"] is not None]
        return [
            [abs(row["trained"] - row["checked"]) > threshold for row in reviews if row["seed"] == seed]
            for seed in seeds
        ]

    @property
    def gaps(self) -> list[float]:
        """For each seed, how far the finer solver that is furthest away is from its own; a solve that fails classifies
        nothing."""
        finer = {row["seed"]: [r for r in self.rows if r["seed"] == row["seed"] and not r["own"]] for row in self.own}
        return [
            max((abs(row["accuracy"] - (r["accuracy"] or 0.0)) for r in finer[row["seed"]]), default=0.0)
            for row in self.own
        ]

    @property
    def who(self) -> str:
        first = self.rows[0]
        return f"{first['method']}/{first['check']}, {described(first)}, learning rate {short_number(first['lr'])}"


def described(row: Row) -> str:
    """The run's rule."""
    if row["algorithm"] == "steady":
        return f"Steady, target {row['target']:g}"
    number = 2 if row["final_tolerance"] is None else 3
    return f"Algorithm {number}, threshold {row['threshold']:g}"


def adapted_runs(tables: Tables) -> list[Adapted]:
    rows = [row for row in tables[MAIN] if row.get("algorithm") in ("paper", "steady")]
    ended = {(row["run"], row["seed"]) for row in rows if row["own"] and row["accuracy"] is not None}
    rows = [row for row in rows if (row["run"], row["seed"]) in ended]
    curves = tables.get(CURVES, ())
    return [
        Adapted(*(tuple(row for row in of if row["run"] == name) for of in (rows, curves)))
        for name in dict.fromkeys(row["run"] for row in rows)
    ]


def runs_by(runs: Sequence[Adapted], algorithm: str, *pair: str) -> list[Adapted]:
    """Those of an algorithm and, where it is named, of a pair of methods."""
    firsts = ((run, run.rows[0]) for run in runs)
    return [run for run, r in firsts if r["algorithm"] == algorithm and (not pair or (r["method"], r["check"]) == pair)]


def logged(curve: Sequence[Row]) -> list[Row]:
    return [row for row in curve if row.get(SPENT) is not None]


def swing(values: Sequence[float]) -> float:
    return pstdev(map(log2, values))


def _precision(curve: Sequence[Row]) -> str:
    return "steps" if curve[0].get("steps") is not None else "tolerance"


def _first_correction(curve: Sequence[Row]) -> int:
    """Its iteration; 0 where there is none."""
    name = _precision(curve)
    sign = 1 if name == "steps" else -1
    decided = [row for row in curve if row[f"{name}_after"] is not None]
    corrected = (row["iteration"] for row in decided if sign * (row[f"{name}_after"] - row[name]) > 0)
    return int(next(corrected, 0))
