"""The grids' runs are the paper's, and every seed has its rows whatever happens to others."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from tests.paper.training.small import a_config, some_spheres
from tests.paper.training.small import trained as train_some
from windermere.paper.arithmetic import IMAGES
from windermere.paper.studies.grids import GRIDS, adaptive_runs, fixed_runs
from windermere.paper.studies.measuring import (
    MemberScore,
    measure,
    part_to_test,
    scores,
    steps_of,
    trials,
)
from windermere.paper.studies.registry import STUDIES, find_study
from windermere.paper.studies.rows import GRID, GridRow
from windermere.paper.studies.study import SEEDS, Finished, Study
from windermere.paper.training import RunConfig, Trained, make_ensemble, trained_ensemble
from windermere.solvers import Adaptive, FixedStep, Solver

COLUMNS = (
    "run", "seed", "data", "method", "steps", "tolerance", "gradient", "lr", "iterations", "cost", "test_method",
    "test_steps", "test_tolerance", "factor", "own", "accuracy", "evaluations", "float64", "diverged_at",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------
# Runs


@pytest.mark.parametrize("study", GRIDS, ids=lambda study: study.name)
@pytest.mark.parametrize("quick", [False, True])
def test_every_run_has_a_name_of_its_own_and_all_seeds_but_quick_ones_on_images_one(study: Study, quick: bool) -> None:
    runs = study.runs(quick)
    assert len({str(config) for config in runs.values()}) == len(runs)
    for config in runs.values():
        assert len(config.seeds) == 1 if quick and config.data in IMAGES else config.seeds == SEEDS
    assert find_study(study.name) is study


def test_studies_have_names_of_their_own() -> None:
    assert {study.name for study in GRIDS} <= STUDIES.keys()
    assert len({study.name for study in GRIDS}) == len(GRIDS) == 10


def _settings(config: RunConfig) -> tuple[int, int, str, float]:
    return config.iterations, config.batch_size, config.optimizer, config.lr


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("sphere2-fixed", {(10_000, 128, "adam", 1e-4)}),
        ("sphere2-adaptive", {(10_000, 128, "adam", 1e-4)}),
        ("sphere2-adjoint", {(10_000, 128, "adam", 1e-4)}),
        ("mnist-fixed", {(7020, 256, "sgd", 1e-2)}),
        ("mnist-adaptive", {(7020, 256, "adam", 1e-4)}),
        ("cifar10-fixed", {(7800, 256, "adam", 1e-3), (7800, 256, "adam", 1e-4)}),
        ("cifar10-adaptive", {(7800, 256, "adam", 1e-3), (7800, 256, "adam", 1e-4)}),
    ],
)
def test_full_studies_have_the_papers_hyper_parameters(study: str, settings: set[tuple[int, int, str, float]]) -> None:
    assert {_settings(config) for config in find_study(study).runs(False).values()} == settings


def test_full_grids_are_the_papers() -> None:
    euler = [name for name in fixed_runs("sphere2", False) if name.startswith("euler")]
    assert euler == [f"euler-{2**n}" for n in range(9)]
    assert [name for name in fixed_runs("mnist", False) if name.startswith("rk4")] == [f"rk4-{2**n}" for n in range(5)]
    assert {"euler-64-lr1e-3", "euler-64-lr1e-4"} <= fixed_runs("cifar10", False).keys()
    tolerances = [config.solver.precision for config in adaptive_runs("sphere2", "adjoint", False).values()]
    assert tolerances == 2 * [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
    assert all(config.gradient == "adjoint" for config in adaptive_runs("sphere2", "adjoint", False).values())


@pytest.mark.parametrize("study", GRIDS, ids=lambda study: study.name)
def test_quick_grids_are_parts_of_the_full_ones_with_less_to_do(study: Study) -> None:
    full, quick = study.runs(False), study.runs(True)
    assert quick.keys() < full.keys()
    assert all(config.iterations < full[name].iterations for name, config in quick.items())


def test_quick_runs_on_images_are_tested_on_fewer_of_them() -> None:
    quick, whole = (fixed_runs("mnist", is_quick)["euler-1"] for is_quick in (True, False))
    samples = torch.zeros(300, 1), torch.zeros(300, dtype=torch.int64)
    configs = (quick, whole, fixed_runs("sphere2", True)["euler-1"], fixed_runs("sphere900", False)["euler-1"])
    assert [len(part_to_test(config, samples)[1]) for config in configs] == [256, 300, 300, 300]


# ---------------------------------------------------------------------------------------------------------
# Solvers to test with


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (1, {0.5: 2, 0.75: 2, 1.0: 1}),
        (2, {0.5: 4, 0.75: 3, 1.0: 2, 1.5: 2, 2.0: 1}),
        (4, {0.5: 8, 0.75: 6, 1.0: 4, 1.5: 3, 2.0: 2}),
        (64, {0.5: 128, 0.75: 86, 1.0: 64, 1.5: 43, 2.0: 32}),
    ],
)
def test_step_factors_land_on_whole_numbers_of_steps_and_never_exceed_t(steps: int, expected: dict[float, int]) -> None:
    for method, methods in (("euler", {"euler", "midpoint", "rk4"}), ("rk4", {"rk4"})):
        found = [(t.solver.method, t.factor, steps_of(t.solver)) for t in trials(FixedStep.of(method, steps=steps))]
        assert set(found) == {(m, factor, taken) for m in methods for factor, taken in expected.items()}
        assert len(found) == len(set(found))


def test_tolerances_are_tested_a_tenth_and_tenfold() -> None:
    found = [(t.solver.method, t.solver.precision, t.own) for t in trials(Adaptive("fehlberg21", tolerance=1e-5))]
    same, other = ([(method, tolerance) for tolerance in (1e-6, 1e-5, 1e-4)] for method in ("fehlberg21", "dopri54"))
    assert [(method, tolerance) for method, tolerance, _ in found] == same + other
    assert [own for *_, own in found] == [False, True, False, False, False, False]
    assert {t.solver.method for t in trials(Adaptive("dopri54", tolerance=1e-2))} == {"dopri54"}


@pytest.mark.parametrize("solver", [FixedStep.of("euler", steps=8), Adaptive("dopri54", tolerance=1e-3)])
def test_the_training_solver_is_tested_once(solver: Solver) -> None:
    assert [test.solver for test in trials(solver) if test.own] == [solver]


# ---------------------------------------------------------------------------------------------------------
# Measuring


def _untrained(config: RunConfig) -> Trained:
    ensemble = make_ensemble(config)
    return Trained(config, ensemble, (config.solver,) * ensemble.size)


def _measured(trained: Trained, folder: Path) -> list[GridRow]:
    return list(measure(Finished("euler-2", trained, some_spheres()[1], folder))[GRID])


def test_a_row_for_each_seed_and_solver_with_all_columns(tmp_path: Path) -> None:
    rows = _measured(_untrained(a_config(seeds=(0, 3))), tmp_path)
    assert tuple(field.name for field in fields(rows[0])) == COLUMNS
    assert len({(row.seed, row.test_method, row.factor) for row in rows}) == len(rows) == 2 * 3 * 5
    own = [row for row in rows if row.own]
    assert [(row.seed, row.cost, row.evaluations, row.test_steps) for row in own] == [
        (0, 2, 2, 2),
        (3, 2, 2, 2),
    ]
    rk4 = next(row for row in rows if (row.test_method, row.factor) == ("rk4", 0.5))
    assert (rk4.test_steps, rk4.evaluations) == (4, 16)


def test_a_member_that_fails_leaves_the_others_rows_as_they_are(tmp_path: Path) -> None:
    config = a_config(seeds=(0, 1, 2))
    good, bad = _untrained(config), _untrained(config)
    with torch.no_grad():
        for tensor in bad.ensemble.parameters():
            tensor[1] = torch.nan
    before, after = (_measured(trained, tmp_path) for trained in (good, bad))
    assert all(row.accuracy is None and row.evaluations is None for row in after if row.seed == 1)
    assert [row for row in after if row.seed != 1] == [row for row in before if row.seed != 1]


def test_what_float32_cannot_resolve_is_measured_in_float64() -> None:
    ensemble, test_set = _untrained(a_config(seeds=(0, 1))).ensemble, some_spheres()[1]
    fine = scores(ensemble, [Adaptive("dopri54", tolerance=1e-9)] * 2, test_set)
    usual = scores(ensemble, [Adaptive("dopri54", tolerance=1e-4)] * 2, test_set)
    assert [score.float64 for score in fine + usual] == [True, True, False, False]
    assert [score.accuracy for score in fine] == pytest.approx([score.accuracy for score in usual], abs=0.011)
    assert ensemble.dtype == torch.float32


def test_a_step_budget_that_is_spent_in_float64_too_leaves_no_accuracy() -> None:
    solver = Adaptive("dopri54", tolerance=1e-6, max_steps=1)
    found = scores(_untrained(a_config()).ensemble, [solver], some_spheres()[1])
    assert found == [MemberScore(accuracy=None, evaluations=None, float64=True)]


def test_adaptive_costs_are_the_evaluations_that_training_took(tmp_path: Path) -> None:
    config = a_config(solver=Adaptive("dopri54", tolerance=1e-2), seeds=(0, 1))
    train_some(tmp_path / "run", config)
    rows = _measured(trained_ensemble(tmp_path / "run"), tmp_path / "run")
    assert {row.seed for row in rows} == {0, 1}
    assert all(
        row.cost is not None and 7 <= row.cost <= 100 and row.tolerance == 1e-2 and row.steps is None for row in rows
    )
