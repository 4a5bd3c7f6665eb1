"""The critical step of tables made by hand."""

from dataclasses import replace

import pytest

from tests.paper.studies.grid_tables import a_grid, a_model, a_row
from windermere.paper.studies.critical import PRINTED, Check, Grid, did_train, grids_in
from windermere.paper.studies.grid_findings import within_a_factor_of_two

CHECK = Check(method="rk4", factor=0.5)


@pytest.mark.parametrize(
    ("checked", "bracket"),
    [
        ({1: 0.5, 2: 0.5, 4: 0.95, 8: 1.0}, "2-4"),
        ({8: 1.0, 1: 0.5, 4: 0.95, 2: 0.5}, "2-4"),  # in any order
        ({1: 0.5, 2: 0.9, 4: 0.7, 8: 1.0}, "4-8"),  # two steps pass, but not from there on
        ({1: 0.5, 2: 0.89, 4: 0.9}, "2-4"),  # at the threshold itself it passes
        ({1: 0.95, 2: 1.0}, "1 or coarser"),
        ({1: 1.0, 2: 1.0, 4: 0.5}, "finer than 4"),
        ({1: 0.95}, "1 or coarser"),
    ],
)
def test_the_critical_step_is_where_every_finer_entry_passes(checked: dict[int, float], bracket: str) -> None:
    assert str(Grid(a_grid(checked)).critical()) == bracket


def test_a_check_solver_that_scores_better_does_not_agree_either() -> None:
    rows = a_model(1, own=0.8, checked=0.95) + a_model(2)
    assert str(Grid(rows).critical()) == "1-2"


def test_gaps_are_averaged_over_seeds_without_their_sign() -> None:
    rows = a_model(1, own=0.85, checked=0.7) + a_model(1, own=0.85, checked=1.0, seed=1) + a_model(2)
    entry = Grid(rows).entries(CHECK)[0]
    assert entry.gap == pytest.approx(0.15)
    assert not entry.passes


def test_seeds_that_did_not_train_are_not_averaged() -> None:
    rows = a_grid({1: 0.5, 2: 1.0, 4: 1.0})
    rows += a_model(2, own=0.79, checked=0.2, seed=1)  # below the least accuracy
    rows += a_model(4, own=None, seed=1, diverged_at=300)[:1]
    assert str(Grid(rows).critical()) == "1-2"


def test_an_entry_that_no_seed_trained_is_left_out() -> None:
    rows = a_grid({1: 0.5, 4: 1.0}) + a_model(2, own=0.5, checked=0.5)
    assert str(Grid(rows).critical()) == "1-4"


def test_a_check_that_fails_is_no_agreement() -> None:
    assert str(Grid(a_model(1, checked=None) + a_model(2)).critical()) == "1-2"


def test_a_grid_that_no_seed_trained_has_no_critical_step() -> None:
    assert str(Grid(a_model(1, own=None)[:1]).critical()) == "unknown"


def test_methods_and_on_cifar10_learning_rates_are_grids_of_their_own() -> None:
    rows = a_grid({1: 0.5, 2: 1.0}) + a_grid({1: 1.0}, method="rk4")
    assert {name: str(grid.critical()) for name, grid in grids_in(rows).items()} == {
        "euler": "1-2",
        "rk4": "1 or coarser",
    }
    both = a_grid({1: 1.0}, data="cifar10", lr=1e-3) + a_grid({1: 1.0}, data="cifar10", lr=1e-4)
    assert list(grids_in(both)) == ["euler-lr1e-3", "euler-lr1e-4"]


def test_tolerances_go_from_large_to_small() -> None:
    rows = [
        row
        for tolerance, checked in ((1e-3, 1.0), (1e-1, 0.5), (1e-2, 0.6))
        for row in a_model(None, checked=checked, method="dopri54", tolerance=tolerance)
    ]
    found = Grid([replace(row, run=f"dopri54-{row.tolerance}") for row in rows]).critical()
    assert (found.fails, found.passes, str(found)) == (1e-2, 1e-3, "1e-2 to 1e-3")


def test_the_check_is_the_finest_solver_of_the_highest_order() -> None:
    tests = (("euler", 0.5), ("midpoint", 0.5), ("rk4", 0.75), ("rk4", 0.5), ("rk4", 2.0))
    rows = [a_row(steps=4, own=False, test_method=method, factor=factor) for method, factor in tests]
    assert Grid(rows).check == CHECK
    assert str(CHECK) == "rk4 at 0.5 times the training step"


@pytest.mark.parametrize(
    ("data", "accuracy", "trained"),
    [
        ("sphere2", 0.8, True),
        ("sphere900", 0.799, False),
        ("mnist", 0.8, True),
        ("mnist", 0.79, False),
        ("cifar10", 0.36, True),
        ("cifar10", 0.34, False),
        ("sphere2", None, False),
    ],
)
def test_a_seed_trained_from_its_data_sets_least_accuracy_on(data: str, accuracy: float, trained: bool) -> None:
    assert did_train(a_row(data=data, accuracy=accuracy)) is trained


def test_quick_runs_on_images_need_not_be_as_accurate_to_have_trained() -> None:
    assert did_train(a_row(data="cifar10", accuracy=0.3, iterations=500))
    assert not did_train(a_row(data="cifar10", accuracy=0.2, iterations=500))
    assert not did_train(a_row(data="cifar10", accuracy=0.3, iterations=7800))
    assert did_train(a_row(data="mnist", accuracy=0.65, iterations=300))


@pytest.mark.parametrize(
    ("fails", "passes", "agrees"),
    [
        (64, 128, True),
        (32, 64, True),
        (128, 256, True),
        (16, 32, False),
        (256, 512, False),
        (32, 128, True),
        (8, 32, False),
        (None, 1, False),
        (256, None, False),
        (128, None, None),
        (None, None, None),
    ],
)
def test_brackets_agree_within_a_factor_of_two(fails: int | None, passes: int | None, agrees: bool | None) -> None:
    assert within_a_factor_of_two(fails, passes, PRINTED["sphere2"]) is agrees
