"""What an adapted run contributes to its study's tables: what it cost, its way, and whether it ended as a flow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from windermere.paper.studies.measuring import scores, steps_at, steps_of
from windermere.paper.studies.study import MAIN, Finished, Tables
from windermere.paper.training import RunConfig
from windermere.records import Row, read_metrics
from windermere.solvers import Adaptive, FixedStep, Solver

CURVES = "curves"
"""The table of what happened on the way; it has at most so many reviews of each seed:"""
REVIEWS = 200


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
    return {MAIN: final_rows(run), CURVES: on_the_way}


def _metrics(run: Finished) -> dict[int, list[Row]]:
    """By seed."""
    rows = read_metrics(run.folder)
    return {seed: [row for row in rows if row["seed"] == seed] for seed in run.trained.config.seeds}


# ---------------------------------------------------------------------------------------------------------
# At the end of training


def final_rows(run: Finished, extra: Sequence[TestSolver] = ()) -> list[Row]:
    """A row for each seed and test solver: the training solver, finer ones, and extra ones."""
    trained, config = run.trained, run.trained.config
    metrics, rows = _metrics(run), list[Row]()
    for test in (*_test_solvers(config.solver), *extra):
        solvers = [test.of(own) for own in trained.solvers]
        found = scores(trained.ensemble, solvers, run.test_set)
        for s, seed in enumerate(config.seeds):
            rows.append(
                {
                    "run": run.name,
                    "seed": seed,
                    **rule_of(config),
                    **_on_the_way(config, metrics[seed]),
                    **_precision("final", trained.solvers[s]),
                    "test_method": test.method,
                    **_precision("test", solvers[s]),
                    "factor": test.factor,
                    "own": test.method == config.solver.method and test.factor == 1.0,
                    "accuracy": found[s].accuracy,
                    "evaluations": found[s].evaluations,
                    "diverged_at": None,
                }
            )
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


def rule_of(config: RunConfig) -> Row:
    """What all rows of an adapted run say of its training."""
    rule = {} if config.controller is None else vars(config.controller)
    return {
        "data": config.data,
        "algorithm": config.adapt,
        "method": config.solver.method,
        **{name: rule.get(name) for name in ("check", "threshold", "target")},
        "lr": config.lr,
        "iterations": config.iterations,
    }


def _on_the_way(config: RunConfig, metrics: Sequence[Row]) -> Row:
    """The paper's cost: forward evaluations and all of the checks', per iteration."""
    last = [row for row in metrics if "evaluations_forward" in row][-1]
    forward, checks = last["evaluations_forward"], last["evaluations_checks"]
    return {"cost": (forward + checks) / config.iterations, "checks_share": checks / forward}


def _precision(of: str, solver: Solver) -> Row:
    tolerance = solver.precision if isinstance(solver, Adaptive) else None
    return {f"{of}_steps": steps_of(solver), f"{of}_tolerance": tolerance}


def _steps(step: Any) -> Any:
    return None if step is None else steps_at(step)


# ---------------------------------------------------------------------------------------------------------
# Over training


def curves(name: str, precision: str, metrics: Sequence[Row]) -> list[Row]:
    """One seed's rows of metrics as one row for each iteration with a review or a test, thinned where there are many.

    Numbers of steps are whole, others have five digits; evaluations are those since the start.
    """
    reviews = [row for row in metrics if "before" in row]
    decided = {row["iteration"]: row for row in reviews[:: max(1, ceil(len(reviews) / REVIEWS))]}
    logged = {row["iteration"]: row for row in metrics if "evaluations_forward" in row}
    tested = {iteration for iteration, row in logged.items() if "test_accuracy" in row}
    return [
        {"run": name, **_curve_row(precision, logged.get(iteration, {}), decided.get(iteration, {}))}
        for iteration in sorted(tested | decided.keys())
    ]


def _curve_row(precision: str, logged: Mapping[str, Any], decided: Mapping[str, Any]) -> Row:
    both: Mapping[str, Any] = {**decided, **logged}
    now, after = both.get(precision, both.get("before")), decided.get("after")
    name, written = ("steps", _steps) if precision == "step" else ("tolerance", _rounded)
    return {
        "seed": both["seed"],
        "iteration": both["iteration"],
        "test_accuracy": _rounded(both.get("test_accuracy")),
        name: written(now),
        f"{name}_after": written(after),
        **{key: _rounded(decided.get(key)) for key in ("trained", "checked", "signal")},
        **{key: logged.get(key) for key in ("evaluations_forward", "evaluations_checks")},
    }


def _rounded(value: Any) -> Any:
    return None if value is None else float(f"{value:.5g}")


def metrics_of(rows: Sequence[Row]) -> list[Row]:
    """Rows of the curves as the metrics they came from, for drawing."""
    return [row for curve in rows for row in _metrics_row(curve)]


def _metrics_row(curve: Row) -> list[Row]:
    name = "steps" if curve.get("steps") is not None else "tolerance"
    before, after = (_as_precision(name, curve.get(key)) for key in (name, f"{name}_after"))
    own = {"seed": curve["seed"], "iteration": curve["iteration"]}
    logged = {**own, "step" if name == "steps" else name: before, "accuracy": curve["trained"]}
    logged |= {key: curve[key] for key in ("test_accuracy", "evaluations_forward")}
    scores = {key: curve[key] for key in ("trained", "checked", "signal")}
    reviewed = [] if after is None else [{**own, "before": before, "after": after, **scores}]
    return [*reviewed, {key: value for key, value in logged.items() if value is not None}]


def _as_precision(name: str, value: Any) -> Any:
    return 1 / value if name == "steps" and value is not None else value
