"""The studies of adapted precision: the paper's settings, what is measured on real runs, and their curves."""

from dataclasses import fields, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.paper.training.small import adapted_config, some_spheres, trained
from windermere.adaptation import SteadySteps, StepAdaptation, ToleranceAdaptation
from windermere.paper.figures.adaptation_figure import members_of
from windermere.paper.studies import adaptation
from windermere.paper.studies.adaptation_measures import ADAPTED, CURVES, CurveRow, curves, measure
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finished
from windermere.paper.training import Adaptation, RunConfig, paper_settings, trained_ensemble
from windermere.records import read_metrics
from windermere.solvers import Adaptive, FixedStep

DATA = ("sphere2", "mnist", "cifar10")
PNG = b"\x89PNG"


# ---------------------------------------------------------------------------------------------------------
# Runs


def of_the_paper(runs: dict[str, RunConfig]) -> list[RunConfig]:
    return [config for config in runs.values() if config.adapt == "paper"]


@pytest.mark.parametrize("data", DATA)
def test_algorithm_2_runs_as_in_the_paper_for_all_its_pairs(data: str) -> None:
    configs = of_the_paper(dict(find_study(f"step-adaptation-{data}").runs(False)))
    pairs = ("euler", "midpoint"), ("euler", "rk4"), ("midpoint", "rk4")
    assert {c.controller for c in configs} == {
        StepAdaptation(train=train, check=check, every=50, threshold=0.1) for train, check in pairs
    }
    for config in configs:
        assert (config.first_step, config.seeds) == ("initial", (0, 1, 2, 3, 4))
        settings = paper_settings(data, config.solver)
        assert {name: getattr(config, name) for name in settings if name != "lr"} == {
            name: value for name, value in settings.items() if name != "lr"
        }


def test_algorithm_3_starts_at_a_tolerance_of_1e_6_for_both_pairs() -> None:
    configs = of_the_paper(dict(find_study("tolerance-adaptation-sphere2").runs(False)))
    assert [c.controller for c in configs] == [
        ToleranceAdaptation(train=train, check="dopri54", threshold=0.1) for train in ("fehlberg21", "dopri54")
    ]
    for config in configs:
        assert isinstance(config.solver, Adaptive)
        assert (config.solver.precision, config.first_step) == (1e-6, "given")


def test_learning_rates_are_the_papers_and_on_cifar10_the_lower_one_too() -> None:
    rates = {data: {c.lr for c in adaptation.step_runs(data, False).values()} for data in DATA}
    assert rates == {"sphere2": {1e-4}, "mnist": {1e-2}, "cifar10": {1e-3, 1e-4}}
    assert [name for name, c in adaptation.step_runs("cifar10", False).items() if c.lr == 1e-4] == [
        "cifar10-euler-midpoint-paper-0.1-lr1e-4"
    ]


@pytest.mark.parametrize("data", DATA)
def test_every_pair_has_a_steady_run_and_on_images_no_euler_one_at_the_costly_default(data: str) -> None:
    controllers = [config.controller for config in adaptation.step_runs(data, False).values()]
    steady = [controller for controller in controllers if isinstance(controller, SteadySteps)]
    on_sphere = data == "sphere2"
    assert [(c.train, c.check, c.target == 0.01) for c in steady] == [
        *([("euler", "midpoint", True)] if on_sphere else []),
        ("euler", "midpoint", False),
        ("euler", "rk4", on_sphere),
        ("midpoint", "rk4", True),
    ]


@pytest.mark.parametrize("quick", [False, True])
def test_test_accuracies_fall_on_reviews(quick: bool) -> None:
    configs = [c for data in DATA for c in adaptation.step_runs(data, quick).values()]
    for config in [*configs, *adaptation.tolerance_runs(quick).values()]:
        assert config.controller is not None
        assert config.evaluate_every % config.controller.every == 0
        assert config.log_every == config.controller.every


def test_quick_runs_are_short() -> None:
    assert {c.iterations for c in adaptation.step_runs("sphere2", True).values()} == {1500}
    of_images = [c for data in ("mnist", "cifar10") for c in adaptation.step_runs(data, True).values()]
    assert all(c.iterations * c.batch_size <= 6400 and len(c.seeds) == 1 for c in of_images)
    assert all((c.first_step, c.solver.precision) == ("given", 1 / 4) for c in of_images)


# ---------------------------------------------------------------------------------------------------------
# Real runs


def finished(path: Path, adapt: Adaptation = "paper", **changes: Any) -> Finished:
    settings: dict[str, Any] = {"solver": FixedStep("euler", step=1.0), "first_step": "initial", "seeds": (0, 1)}
    config = adapted_config(adapt, **{**settings, **changes}, rule={"every": 5})
    trained(path, config)
    return Finished("a-run", trained_ensemble(path), some_spheres()[1], path)


COLUMNS = (
    "run seed data algorithm method check threshold target lr iterations cost checks_share final_steps "
    "final_tolerance test_method test_steps test_tolerance factor own accuracy evaluations diverged_at"
)


def test_a_run_is_tested_with_its_own_solver_and_finer_ones(tmp_path: Path) -> None:
    run = finished(tmp_path)
    rows = measure(run)[ADAPTED]
    assert [field.name for field in fields(rows[0])] == COLUMNS.split()
    assert [(row.test_method, row.factor, row.own) for row in rows if row.seed == 1] == [
        ("euler", 1.0, True),
        ("euler", 0.5, False),
        ("midpoint", 1.0, False),
        ("midpoint", 0.5, False),
        ("rk4", 1.0, False),
        ("rk4", 0.5, False),
    ]
    own = [row for row in rows if row.own]
    last = [row for row in read_metrics(tmp_path) if "test_accuracy" in row][-2:]
    assert [row.accuracy for row in own] == [row["test_accuracy"] for row in last]
    assert [row.final_steps for row in own] == [ceil(1 / solver.precision) for solver in run.trained.solvers]
    assert [row.evaluations for row in own] == [row.final_steps for row in own]


def test_cost_counts_every_forward_evaluation_and_those_of_all_checks(tmp_path: Path) -> None:
    run = finished(tmp_path)
    for own in (row for row in measure(run)[ADAPTED] if row.own):
        reviews = [r for r in read_metrics(tmp_path) if "before" in r and r["seed"] == own.seed]
        assert [r["iteration"] for r in reviews] == [5, 10, 15, 20]
        forward = sum(5 * ceil(1 / r["before"] - 1e-9) for r in reviews)
        checks = sum(2 * ceil(1 / r["check_precision"] - 1e-9) for r in reviews)
        tried = (1.1 * r["before"] for r in reviews if r["raised"] is not None)
        checks += sum(ceil(1 / min(step, 1.0) - 1e-9) for step in tried)
        assert own.cost == (forward + checks) / 20
        assert own.checks_share == checks / forward


def test_tolerances_are_tested_with_finer_ones_in_float64_where_float32_does_not_resolve_them(tmp_path: Path) -> None:
    solver = Adaptive("fehlberg21", tolerance=1e-6)
    changes: dict[str, Any] = {"solver": solver, "first_step": "given", "seeds": (0,)}
    tables = measure(finished(tmp_path, iterations=5, log_every=5, evaluate_every=5, **changes))
    rows = tables[ADAPTED]
    assert [(row.test_method, row.factor) for row in rows] == [
        ("fehlberg21", 1.0),
        ("fehlberg21", 0.1),
        ("dopri54", 1.0),
        ("dopri54", 0.1),
    ]
    assert all(0 < (row.accuracy or 0.0) <= 1 and row.test_steps is None for row in rows)
    assert rows[1].test_tolerance == pytest.approx(1e-7)
    assert (rows[1].evaluations or 0) > (rows[0].evaluations or 0) > 0
    assert tables[CURVES][0].tolerance == 1e-6


def test_figures_are_drawn_from_the_tables_alone_and_are_the_same_every_time(tmp_path: Path) -> None:
    both: tuple[Adaptation, ...] = ("paper", "steady")
    found = [measure(finished(tmp_path / adapt, adapt)) for adapt in both]
    tables = {t: [replace(row, run=str(k)) for k, one in enumerate(found) for row in one[t]] for t in found[0]}
    tables[ADAPTED].append(replace(tables[ADAPTED][0], seed=7, accuracy=None, diverged_at=3))
    drawn = []
    for k in range(2):
        (tmp_path / f"{k}").mkdir()
        for table, rows in tables.items():
            table.write(tmp_path, rows)
        back = Tables({table: table.read(tmp_path) for table in tables})
        drawn.append(adaptation.draw(back, tmp_path / f"{k}"))
    assert [path.name for path in drawn[0]] == ["euler-midpoint.png"]
    assert drawn[0][0].read_bytes().startswith(PNG)
    assert [path.read_bytes() for path in drawn[0]] == [path.read_bytes() for path in drawn[1]]


def test_a_diverged_seed_in_the_middle_of_a_run_leaves_the_others_measured(tmp_path: Path) -> None:
    run = finished(tmp_path)
    alone = replace(run.trained.config, seeds=(1,))
    left = replace(
        run.trained, config=alone, ensemble=run.trained.ensemble.subset([1]), solvers=run.trained.solvers[1:]
    )
    rows = measure(Finished(run.name, left, run.test_set, tmp_path))[ADAPTED]
    assert rows == [row for row in measure(run)[ADAPTED] if row.seed == 1]


# ---------------------------------------------------------------------------------------------------------
# Curves


def some_metrics(seed: int, reviews: int, name: str = "step") -> list[dict[str, Any]]:
    """As a run logs them: reviews every 50 iterations, and a test at every tenth."""
    rows: list[dict[str, Any]] = []
    for k in range(1, reviews + 1):
        before, after = 1 / (64 + k % 64 + 1 / 3), 1 / (64 + (k + 1) % 64 + 1 / 3)
        scores = {"trained": 125 / 128, "checked": 113 / 128, "raised": None, "signal": 0.012345678 + k}
        rows.append({"seed": seed, "iteration": 50 * k, "before": before, "after": after, **scores, "reason": "-"})
        counts = {"evaluations_forward": 3217 * k, "evaluations_checks": 291 * k}
        row = {"iteration": 50 * k, "seed": seed, "loss": 0.1, "accuracy": 125 / 128, **counts, name: before}
        rows.append({**row, "test_accuracy": 0.987} if k % 10 == 0 else row)
    return rows


def test_curves_have_a_row_for_each_review_with_whole_steps_and_five_digits() -> None:
    row = curves("a-run", "step", some_metrics(3, 10))[-1]
    assert row == CurveRow(
        run="a-run",
        seed=3,
        iteration=500,
        test_accuracy=0.987,
        steps=75,
        steps_after=76,
        trained=0.97656,
        checked=0.88281,
        signal=10.012,
        evaluations_forward=32170,
        evaluations_checks=2910,
    )


def test_curves_of_a_whole_study_stay_below_a_megabyte(tmp_path: Path) -> None:
    for study in ("step-adaptation-sphere2", "step-adaptation-cifar10", "tolerance-adaptation-sphere2"):
        rows: list[CurveRow] = []
        for name, config in find_study(study).runs(False).items():
            for seed in config.seeds:
                metrics = some_metrics(seed, config.iterations // 50, config.precision_name)
                rows += curves(name, config.precision_name, metrics)
        CURVES.write(tmp_path, rows)
        assert (tmp_path / "curves.csv").stat().st_size < 1_000_000


def test_longer_runs_are_thinned_and_keep_all_tests() -> None:
    rows = curves("a-run", "step", some_metrics(0, 1000))
    assert sum(row.steps_after is not None for row in rows) == 200
    assert sum(row.test_accuracy is not None for row in rows) == 100


def test_what_is_drawn_of_a_seed_is_what_its_metrics_say() -> None:
    """Up to the digits that curves have, and whole numbers of steps."""
    metrics = some_metrics(2, 20)
    (expected,) = members_of(metrics)
    found = adaptation.member_of(curves("a-run", "step", metrics))
    for name in ("batches", "tests", "evaluations", "signals", "reviews"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0.02, err_msg=name)
    assert (1 / found.reviews[3]).round().tolist() == [66 + k for k in range(20)]
    assert found.tests[0].tolist() == [500, 1000]
    tolerances = adaptation.member_of(curves("a-run", "tolerance", some_metrics(2, 20, "tolerance")))
    np.testing.assert_allclose(tolerances.reviews, expected.reviews, rtol=1e-4)
