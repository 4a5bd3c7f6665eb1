"""What an adapted run contributes to its study's tables: what it cost, its way, and whether it ended as a flow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from windermere.paper.studies.audits import AUDITS, audit_rows
from windermere.paper.studies.measuring import Trial, scores, steps_at, steps_of, tested, tolerance_of
from windermere.paper.studies.rows import MAIN, RunRow, Table, Tables, five_digits_or_none
from windermere.paper.studies.study import Finished
from windermere.paper.training import RunConfig
from windermere.records import read_metrics, sparse
from windermere.solvers import Adaptive, FixedStep, Solver

REVIEWS = 200
"""The table of what happened on the way has at most so many reviews of each seed."""


@dataclass(frozen=True, kw_only=True)
class AdaptedRow(RunRow):
    """One model that was trained with an adapted precision, under one solver."""

    data: str
    algorithm: str
    """`paper` or `steady`."""
    method: str
    check: str | None
    threshold: float | None = None
    target: float | None = None
    lr: float
    iterations: int
    cost: float | None = None
    """The paper's: forward evaluations and all of the checks', per iteration."""
    checks_share: float | None = None
    """Evaluations of the checks by forward ones."""
    final_steps: int | None = None
    final_tolerance: float | None = None
    test_method: str | None = None
    test_steps: int | None = None
    test_tolerance: float | None = None
    factor: float | None = None
    """The test's step or tolerance divided by the final one."""
    own: bool
    accuracy: float | None
    evaluations: int | None = None
    diverged_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class CurveRow(RunRow):
    """One iteration with a review or a test. Numbers of steps are whole, others have five digits."""

    iteration: int
    test_accuracy: float | None = None
    steps: int | None = sparse()
    steps_after: int | None = sparse()
    tolerance: float | None = sparse()
    tolerance_after: float | None = sparse()
    trained: float | None = None
    """The training solver's score."""
    checked: float | None = None
    signal: float | None = None
    evaluations_forward: int | None = None
    """Since the start."""
    evaluations_checks: int | None = None

    @property
    def precision(self) -> float:
        """Steps or tolerance of training."""
        return self.steps or self.tolerance or 0.0

    @property
    def precision_after(self) -> float | None:
        """What the review chose; None where there was none."""
        return self.steps_after or self.tolerance_after

    @property
    def before_and_after(self) -> tuple[float | None, float | None]:
        """The same two as a solver's precision: the sizes of steps, or tolerances."""
        if self.steps is None:
            return self.tolerance, self.tolerance_after
        return 1 / self.steps, None if self.steps_after is None else 1 / self.steps_after


ADAPTED, CURVES = Table(MAIN, AdaptedRow), Table("curves", CurveRow)


@dataclass(frozen=True)
class TestSolver:
    """Relative to what each seed was trained with in the end."""

    __test__ = False  # not one of pytest's

    method: str
    factor: float
    """Its step or tolerance over the training one."""

    def of(self, own: Solver) -> Solver:
        precision = self.factor * own.precision
        if isinstance(own, Adaptive):
            return Adaptive(self.method, tolerance=precision)
        return FixedStep(self.method, step=precision)


def measure(run: Finished) -> Tables:
    config, metrics = run.trained.config, _metrics(run)
    on_the_way = [row for own in metrics.values() for row in curves(run.name, config.precision_name, own)]
    return Tables({ADAPTED: final_rows(run), CURVES: on_the_way})


def measure_and_audit(run: Finished) -> Tables:
    return Tables({**measure(run), AUDITS: audit_rows(run)})


def _metrics(run: Finished) -> dict[int, list[dict[str, Any]]]:
    """By seed."""
    rows = read_metrics(run.folder)
    return {seed: [row for row in rows if row["seed"] == seed] for seed in run.trained.config.seeds}


# ---------------------------------------------------------------------------------------------------------
# At the end of training


def final_rows(run: Finished, extra: Sequence[TestSolver] = ()) -> list[AdaptedRow]:
    """A row for each seed and test solver: the training solver, finer ones, and extra ones."""
    trained, config, rows = run.trained, run.trained.config, list[AdaptedRow]()
    by_seed = [
        _ended_row(run.name, config, seed, metrics, solver)
        for (seed, metrics), solver in zip(_metrics(run).items(), trained.solvers, strict=True)
    ]
    for test in (*_test_solvers(config.solver), *extra):
        solvers = [test.of(own) for own in trained.solvers]
        found = scores(trained.ensemble, solvers, run.test_set)
        own = test.method == config.solver.method and test.factor == 1.0
        trials = (Trial(solver=solver, factor=test.factor, own=own) for solver in solvers)
        rows += map(tested, by_seed, trials, found)
    return rows


def _test_solvers(solver: Solver) -> list[TestSolver]:
    """The training solver first, then those that are finer."""
    own = solver.method
    if isinstance(solver, Adaptive):
        others = [(own, 0.01)] if own == "dopri54" else [("dopri54", 1.0), ("dopri54", 0.1)]
        pairs = [(own, 1.0), (own, 0.1), *others]
    else:
        better = [method for method in ("midpoint", "rk4") if method != own]
        pairs = [(own, 1.0), (own, 0.5), *((method, factor) for method in better for factor in (1.0, 0.5))]
    return [TestSolver(*pair) for pair in pairs]


def _ended_row(
    run: str, config: RunConfig, seed: int, metrics: Sequence[Mapping[str, Any]], solver: Solver
) -> AdaptedRow:
    last = [row for row in metrics if "evaluations_forward" in row][-1]
    forward, checks = last["evaluations_forward"], last["evaluations_checks"]
    return replace(
        untested_row(run, config, seed),
        cost=(forward + checks) / config.iterations,
        checks_share=checks / forward,
        final_steps=steps_of(solver),
        final_tolerance=tolerance_of(solver),
    )


def untested_row(run: str, config: RunConfig, seed: int) -> AdaptedRow:
    """What a row says of its training."""
    rule = {} if config.controller is None else vars(config.controller)
    return AdaptedRow(
        run=run,
        seed=seed,
        data=config.data,
        algorithm=config.adapt,
        method=config.solver.method,
        check=rule.get("check"),
        threshold=rule.get("threshold"),
        target=rule.get("target"),
        lr=config.lr,
        iterations=config.iterations,
        own=True,
        accuracy=None,
    )


# ---------------------------------------------------------------------------------------------------------
# Over training


def curves(run: str, precision: str, metrics: Sequence[Mapping[str, Any]]) -> list[CurveRow]:
    """One seed's metrics as a row for each iteration with a review or a test; reviews are thinned if there are many."""
    reviews = [row for row in metrics if "before" in row]
    decided = {row["iteration"]: row for row in reviews[:: max(1, ceil(len(reviews) / REVIEWS))]}
    logged = {row["iteration"]: row for row in metrics if "evaluations_forward" in row}
    tested = {iteration for iteration, row in logged.items() if "test_accuracy" in row}
    return [
        _curve_row(run, precision, logged.get(iteration, {}), decided.get(iteration, {}))
        for iteration in sorted(tested | decided.keys())
    ]


def _curve_row(run: str, precision: str, logged: Mapping[str, Any], decided: Mapping[str, Any]) -> CurveRow:
    both: Mapping[str, Any] = {**decided, **logged}
    now, after = both.get(precision, both.get("before")), decided.get("after")
    row = CurveRow(
        run=run,
        seed=both["seed"],
        iteration=both["iteration"],
        test_accuracy=five_digits_or_none(both.get("test_accuracy")),
        trained=five_digits_or_none(decided.get("trained")),
        checked=five_digits_or_none(decided.get("checked")),
        signal=five_digits_or_none(decided.get("signal")),
        evaluations_forward=logged.get("evaluations_forward"),
        evaluations_checks=logged.get("evaluations_checks"),
    )
    if precision == "step":
        return replace(row, steps=_steps(now), steps_after=_steps(after))
    return replace(row, tolerance=five_digits_or_none(now), tolerance_after=five_digits_or_none(after))


def _steps(step: float | None) -> int | None:
    return None if step is None else steps_at(step)
