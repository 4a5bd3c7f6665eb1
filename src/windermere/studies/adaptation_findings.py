"""What adapted runs say of the paper's claims."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from statistics import fmean, geometric_mean, pstdev, stdev

from windermere.records import Row
from windermere.studies.adaptation_measures import CURVES
from windermere.studies.critical import THRESHOLD, is_whole
from windermere.studies.study import MAIN, Finding, Tables

NAMES = {"sphere2": "Sphere2", "mnist": "MNIST", "cifar10": "CIFAR-10"}
FLUCTUATES = log2(1.1)
"""A swing (standard deviation of log2) of one raise of Algorithm 2."""


@dataclass(frozen=True)
class Printed:
    """A mean and a standard deviation of accuracy over five seeds, and evaluations per iteration."""

    accuracy: float
    spread: float
    cost: float


PAPER = {"sphere2": Printed(0.989, 0.006, 100.5), "cifar10": Printed(0.550, 0.008, 21.9)}
"""Table 1, of Algorithm 2 with Euler steps checked by midpoint."""


FAR_FEWER = 2
"""A factor between numbers of steps."""
SAME_COST = 0.25
"""Two costs that differ by no more of the paper's are the same: seeds differ by far more."""


def described(row: Row) -> str:
    """The run's rule."""
    if row["algorithm"] == "steady":
        return f"Steady, target {row['target']:g}"
    number = 2 if row["final_tolerance"] is None else 3
    return f"Algorithm {number}, threshold {row['threshold']:g}"


def spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def percent(values: Sequence[float]) -> str:
    """The mean over seeds, and its spread where there are several."""
    around = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{around} %"


def is_same(values: Sequence[float], mean: float, around: float) -> bool:
    """Whether a mean over seeds is as printed: no further away than both spreads together."""
    return abs(fmean(values) - mean) <= around + spread(values)


def span(values: Sequence[float], form: str = "{:.1f}") -> str:
    """From the lowest to the highest seed."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _with_span(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" (seeds {span(values, '{:.2f}')})" if len(values) > 1 else "")


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
        """For each seed, its steps or tolerances of the second half of training, from the first correction on: up to
        there they follow from where they began."""
        by_seed = {row["seed"]: [r for r in self.curves if r["seed"] == row["seed"]] for row in self.own}
        return [_settled(curve, self.rows[0]["iterations"] // 2) for curve in by_seed.values() if curve]

    @property
    def swings(self) -> list[float]:
        """For each seed, the standard deviation of log2."""
        return [pstdev(map(log2, values)) for values in self.settled]

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
        return f"{first['method']}/{first['check']}, {described(first)}, learning rate {first['lr']:g}"


def adapted_runs(tables: Tables) -> list[Adapted]:
    rows = [row for row in tables[MAIN] if row.get("algorithm") in ("paper", "steady")]
    ended = {(row["run"], row["seed"]) for row in rows if row["own"] and row["accuracy"] is not None}
    rows = [row for row in rows if (row["run"], row["seed"]) in ended]
    curves = tables.get(CURVES, ())
    return [
        Adapted(*(tuple(row for row in of if row["run"] == name) for of in (rows, curves)))
        for name in dict.fromkeys(row["run"] for row in rows)
    ]


def _settled(curve: Sequence[Row], half: int) -> list[float]:
    name, sign = ("steps", 1) if curve[0].get("steps") is not None else ("tolerance", -1)
    decided = [row for row in curve if row[f"{name}_after"] is not None]
    corrected = (row["iteration"] for row in decided if sign * (row[f"{name}_after"] - row[name]) > 0)
    begin = max(half, next(corrected, half))
    return [row[name] for row in curve if row["iteration"] > begin] or [curve[-1][name]]


def step_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    return [
        *_against_table1(runs),
        *_fluctuations(runs, "number of steps"),
        *_corrections(runs),
        *_flows(runs),
        *_orders(runs),
        *_steady(runs),
    ]


def tolerance_findings(tables: Tables) -> list[Finding]:
    runs = adapted_runs(tables)
    return [*_fluctuations(runs, "tolerance"), *_different_ends(runs), *_flows(runs), *_steady(runs)]


def _of(runs: Sequence[Adapted], algorithm: str, *pair: str) -> list[Adapted]:
    firsts = ((run, run.rows[0]) for run in runs)
    return [run for run, r in firsts if r["algorithm"] == algorithm and (not pair or (r["method"], r["check"]) == pair)]


def _told(rows: Sequence[Row], agrees: bool) -> bool | None:
    return agrees if all(is_whole(row["data"], row["iterations"]) for row in rows) else None


def _against_table1(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in _of(runs, "paper", "euler", "midpoint"):
        data, accuracy, cost = run.rows[0]["data"], run.column("accuracy"), run.column("cost")
        if (printed := PAPER.get(data)) is None:
            continue
        where = f"on {NAMES[data]}, Euler steps checked by midpoint"
        yield Finding(
            claim=f"Algorithm 2 {where}, reaches {100 * printed.accuracy:.1f} ± {100 * printed.spread:.1f} %",
            ours=f"{percent(accuracy)} (learning rate {run.rows[0]['lr']:g}, {len(accuracy)} seeds)",
            agrees=_told(run.rows, is_same(accuracy, printed.accuracy, printed.spread)),
        )
        yield Finding(
            claim=f"it takes {printed.cost} evaluations per iteration {where}, all checks included",
            ours=f"{fmean(cost):.1f}, seeds {span(cost)} (learning rate {run.rows[0]['lr']:g})",
            agrees=_told(run.rows, abs(fmean(cost) / printed.cost - 1) <= SAME_COST),
        )


def _fluctuations(runs: Sequence[Adapted], what: str) -> Iterator[Finding]:
    for run in _of(runs, "paper"):
        if swings := run.swings:
            yield Finding(
                claim=f"the {what} fluctuates to the end ({run.who})",
                ours=f"once settled, its log2 has a standard deviation of {fmean(swings):.2f}, seeds "
                f"{span(swings, '{:.2f}')}",
                agrees=_told(run.rows, fmean(swings) > FLUCTUATES),
            )


def _flows(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in _of(runs, "paper"):
        yield Finding(
            claim=f"the model stays a flow, so finer solvers score the same to within {THRESHOLD:g} ({run.who})",
            ours=f"at the end the furthest finer solver is {100 * fmean(run.gaps):.1f} points away, seeds "
            f"{span([100 * gap for gap in run.gaps])}: within in {sum(gap <= THRESHOLD for gap in run.gaps)} of "
            f"{len(run.gaps)} seeds",
            agrees=_told(run.rows, fmean(run.gaps) <= THRESHOLD),
        )


def _corrections(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in _of(runs, "paper"):
        after = [then for failed in run.failed for now, then in pairwise(failed) if now]
        if after:
            yield Finding(
                claim=f"a model that has adapted to its step is corrected by training with a smaller one ({run.who})",
                ours=f"{sum(map(sum, run.failed))} of {sum(map(len, run.failed))} reviews failed; after "
                f"{after.count(False)} of {len(after)} of them, the next one passed",
                agrees=_told(run.rows, after.count(False) > len(after) / 2),
            )


def _orders(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """Of Algorithm 2 with the same check and learning rate. The paper shows it on Sphere2 and CIFAR-10."""
    euler, midpoint = (_of(runs, "paper", method, "rk4") for method in ("euler", "midpoint"))
    if not euler or not midpoint or not (many := euler[0].centres) or not (few := midpoint[0].centres):
        return
    beyond = euler[0].rows[0]["data"] == "mnist"
    fewer = _told([*euler[0].rows, *midpoint[0].rows], fmean(few) < fmean(many) / FAR_FEWER)
    yield Finding(
        claim="with midpoint as the training solver, it fluctuates around far fewer steps than with Euler",
        ours=f"once settled, around {fmean(few):.1f} steps of midpoint (seeds {span(few)}) against "
        f"{fmean(many):.1f} of Euler (seeds {span(many)})",
        agrees=None if beyond else fewer,
        beyond=beyond,
    )


def _different_ends(runs: Sequence[Adapted]) -> Iterator[Finding]:
    for run in _of(runs, "paper"):
        if len(centres := run.centres) > 1:
            apart, swing = stdev(map(log2, centres)), fmean(run.swings)
            yield Finding(
                claim=f"for different seeds, the tolerance fluctuates around different final values ({run.who})",
                ours=f"once settled, around {span(centres, '{:.1e}')}: log2 has a standard deviation of {apart:.2f} "
                f"between seeds, and of {swing:.2f} within one",
                agrees=_told(run.rows, apart > swing),
            )


def _steady(runs: Sequence[Adapted]) -> Iterator[Finding]:
    """The paper's future work: an algorithm without the oscillations."""
    for run in _of(runs, "steady"):
        first = run.rows[0]
        beside = [p for p in _of(runs, "paper", first["method"], first["check"]) if p.rows[0]["lr"] == first["lr"]]
        if not beside or not (ours := run.swings) or not (theirs := beside[0].swings):
            continue
        yield Finding(
            claim=f"left to future work: adaptation that does not oscillate. Ours: {run.who}",
            ours=f"swings {_with_span(ours)} against {_with_span(theirs)}, evaluations per iteration "
            f"{fmean(run.column('cost')):.1f} against {fmean(beside[0].column('cost')):.1f}, accuracy "
            f"{percent(run.column('accuracy'))} against {percent(beside[0].column('accuracy'))}, furthest finer solver "
            f"{100 * fmean(run.gaps):.1f} points away against {100 * fmean(beside[0].gaps):.1f}",
            agrees=None,
            beyond=True,
        )
