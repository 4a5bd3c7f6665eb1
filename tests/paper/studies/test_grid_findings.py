"""Figures and findings of the grids come from their tables alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.paper.studies.grid_tables import a_grid, a_model
from windermere.paper.studies.grid_findings import adaptive_findings, fixed_findings
from windermere.paper.studies.measuring import untested_row
from windermere.paper.studies.registry import find_study
from windermere.paper.studies.rows import GRID, GridRow, Table, Tables


def _read_back(folder: Path, rows: list[GridRow]) -> Tables:
    GRID.write(folder, rows)
    return Tables({GRID: GRID.read(folder)})


def _with_a_diverged_seed() -> list[GridRow]:
    bad = a_model(2, own=0.5, checked=0.5, seed=1)
    study = find_study("sphere2-fixed")
    diverged: list[Any] = [study.lost(run, study.runs(False)[run], 2, 9) for run in ("euler-2", "rk4-8")]
    return a_grid({1: 0.5, 2: 0.7, 64: 0.85, 128: 1.0}) + bad + diverged


def test_figures_are_drawn_from_the_csv_alone_and_always_the_same(tmp_path: Path) -> None:
    study, tables = find_study("sphere2-fixed"), _read_back(tmp_path, _with_a_diverged_seed())
    paths = study.draw(tables, tmp_path)
    expected = {f"{m}{kind}.png" for m in ("euler", "rk4") for kind in ("", "-seeds")}
    assert {path.name for path in paths} == expected
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths if path.suffix == ".png")
    before = [path.read_bytes() for path in paths]
    study.draw(tables, tmp_path)
    assert [path.read_bytes() for path in paths] == before


def test_findings_give_the_critical_step_beside_the_papers_and_who_was_left_out(tmp_path: Path) -> None:
    study, tables = find_study("sphere2-fixed"), _read_back(tmp_path, _with_a_diverged_seed())
    drop, own, critical = fixed_findings(a_grid({1: 0.5, 2: 0.7, 64: 0.85, 128: 1.0}))
    assert (drop.agrees, own.agrees, critical.agrees) == (True, True, True)
    assert {drop.case, own.case, critical.case} == {"Sphere2 trained with euler"}
    assert critical.ours.startswith("64-128 (printed: 64-128), checked by rk4 at 0.5 times the training step")
    assert "euler-2 seed 1 (0.500)" in study.left_out(tables)
    assert "euler-2 seed 2 (diverged at iteration 9)" in study.left_out(tables)
    assert "rk4-8 seed 2 (diverged at iteration 9)" in study.left_out(tables)


@pytest.mark.parametrize(
    ("study", "run"),
    [("sphere2-fixed", "euler-2"), ("sphere2-adjoint", "dopri54-1e-1"), ("cifar10-fixed", "rk4-8-lr1e-4")],
)
def test_the_row_of_a_diverged_seed_is_one_of_its_grid(study: str, run: str, tmp_path: Path) -> None:
    config = find_study(study).runs(False)[run]
    measured = replace(untested_row(run, config, 0), accuracy=0.9)
    row: Any = find_study(study).lost(run, config, 2, 9)
    told = find_study(study).left_out(_read_back(tmp_path, [measured, row]))
    assert told == f"1 of 2 models did not train and are in no mean: {run} seed 2 (diverged at iteration 9)."
    assert len(find_study(study).draw(_read_back(tmp_path, [measured, row]), tmp_path)) == 2


def test_a_grid_that_is_not_done_leaves_open_what_it_does_not_show() -> None:
    """Once its finest run is there and fails, the claim does."""
    steps = [2**n for n in range(9)]
    shown, failing = ({n: 1.0 if n == most else 0.5 for n in steps} for most in (256, 0))
    study = find_study("sphere2-fixed")

    def agrees(checked: dict[int, float]) -> bool | None:
        return study.findings(Tables({GRID: a_grid(checked)}))[0].agrees

    assert (agrees(shown), agrees(failing)) == (True, False)
    assert agrees({n: checked for n, checked in failing.items() if n < 256}) is None
    assert agrees({n: checked for n, checked in shown.items() if n > 2}) is True


def test_findings_say_which_entries_of_a_grid_are_of_one_seed() -> None:
    two = [row for steps in (1, 64) for seed in (0, 1) for row in a_model(steps, seed=seed, checked=steps / 64)]
    drop, own, critical = fixed_findings([*two, *a_model(128)])
    assert "the largest drop is 0.984 ± 0.000 at 1 step; at 64 steps it is 0.000 ± 0.000" in drop.ours
    assert "of 1 entry)" in drop.ours
    assert drop.apart == ""  # the entry of one seed is left out
    assert own.ours.startswith("from 1.000 ± 0.000 at 1 step to 1.000 ± 0.000 at 1 step")
    assert critical.ours.endswith("(1 to 2 seeds)")
    *_, alone = fixed_findings(a_model(1))
    assert alone.ours.endswith("(one seed)")
    single, *_ = fixed_findings(a_grid({1: 0.5, 128: 1.0}))
    assert (single.agrees, single.apart) == (True, "one seed")


def test_a_gain_that_rounds_to_nothing_has_no_sign() -> None:
    drop, *_ = fixed_findings([*a_model(1, checked=0.5), *a_model(128, own=0.9996, checked=1.0)])
    assert "at 128 steps it is 0.000 (one seed)" in drop.ours


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, False), (0.75, False), (1.5, True)])
def test_finely_trained_models_are_to_agree_with_every_solver_of_equal_or_smaller_error(
    factor: float, agrees: bool
) -> None:
    grid = a_grid({1: 0.5, 128: 0.95, 256: 1.0})
    others = [replace(row, test_method="midpoint", factor=factor, accuracy=0.85) for row in grid if not row.own]
    drop, *_ = fixed_findings([*grid, *others])
    assert drop.agrees is agrees
    off = "0.050" if agrees else "0.150"
    assert drop.ours.endswith(f"critical steps: 1-128; from there on, solvers at least as fine differ by {off} at most")


def test_the_mean_over_seeds_does_not_hide_the_one_that_is_furthest_off() -> None:
    """Under whichever solver; those that are coarser than the critical number do not count."""
    two = [row for n in (1, 64, 128) for seed in (0, 1) for row in a_model(n, seed=seed, checked=0.5 if n == 1 else 1)]
    others = [
        replace(row, test_method="midpoint", accuracy={1: 0.2, 64: 0.84, 128: 0.99}[row.steps or 0])
        for row in two
        if not row.own and row.seed == 1
    ]
    agreeing = [replace(row, test_method="midpoint") for row in two if not row.own and row.seed == 0]
    drop, *_ = fixed_findings([*two, *others, *agreeing])
    told_of = "solvers at least as fine differ by 0.080 at most in the mean over seeds, and by 0.160 for one seed"
    assert told_of in drop.ours
    assert drop.agrees


@pytest.mark.parametrize(
    ("own", "change", "agrees"),
    [
        ((0.94, 0.942, 0.941, 0.939), "-0.001", True),
        ((0.93, 0.94, 0.95, 0.96), "0.030", False),  # a trend
        ((1.0, 0.99, 0.95, 0.96), "-0.048", False),
        ((0.95, 0.9, 0.9, 0.95), "0.000", True),  # no trend, if a dependence of another kind
    ],
)
def test_a_trend_is_a_clear_dependence_where_every_seed_has_it(
    own: tuple[float, ...], change: str, agrees: bool
) -> None:
    models = list(zip((1, 2, 4, 8), own, strict=True))
    grid = [
        row
        for seed in range(3)
        for n, accuracy in models
        for row in a_model(n, seed=seed, own=accuracy + 0.002 * seed + 0.001 * (seed - 1) * (n == 8))
    ]
    _, dependence, _ = fixed_findings(grid)
    assert f"from coarse to fine it changes by {change} ± " in dependence.ours
    assert dependence.agrees is agrees


def test_a_trend_of_some_seeds_only_leaves_the_dependence_open() -> None:
    grid = [row for n in (1, 2, 4, 8) for row in a_model(n, own=1.0)]
    grid += [
        row for n, own in zip((1, 2, 4, 8), (1.0, 0.98, 0.95, 0.93), strict=True) for row in a_model(n, seed=1, own=own)
    ]
    _, dependence, _ = fixed_findings(grid)
    assert dependence.agrees is None


def test_means_far_apart_are_a_dependence_that_is_told_beside_the_lines() -> None:
    """A seed that failed with one number of steps bends its own line, and nobody else's."""
    grid = [
        row
        for seed in (0, 1)
        for n, accuracy in ((1, 0.95), (2, 0.82 if seed else 0.8), (4, 0.95), (8, 0.95))
        for row in a_model(n, seed=seed, own=accuracy, checked=accuracy)
    ]
    _, dependence, _ = fixed_findings(grid)
    assert dependence.agrees is False
    assert dependence.brief.endswith(", and means are up to 0.140 apart")


def test_a_drop_that_one_of_three_seeds_shows_is_no_drop_yet() -> None:
    """Though the mean is above the threshold."""
    coarse = [row for seed, checked in enumerate((1.0, 0.98, 0.5)) for row in a_model(1, seed=seed, checked=checked)]
    fine = [row for seed in range(3) for row in a_model(128, seed=seed)]
    drop, *_ = fixed_findings([*coarse, *fine])
    assert drop.agrees is None
    drop, *_ = fixed_findings([*(replace(row, accuracy=0.6) if not row.own else row for row in coarse), *fine])
    assert drop.agrees is True


def test_seeds_that_did_not_train_are_counted_too_and_left_out_everywhere_if_asked() -> None:
    """One seed trains with coarse steps only: with these alone it counts, unless it is to count nowhere."""
    coarse = [row for seed, checked in enumerate((0.5, 0.52, 0.9)) for row in a_model(1, seed=seed, checked=checked)]
    fine = [row for seed, own in enumerate((1.0, 1.0, 0.6)) for row in a_model(64, seed=seed, own=own, checked=own)]
    study = find_study("sphere2-fixed")
    tables = Tables({GRID: [*coarse, *fine]})
    found, others = study.findings(tables), study.otherwise(tables)
    assert set(others) == {"every seed", "these seeds nowhere"}
    drops = [findings[0].brief for findings in (found, *others.values())]
    assert [words.split(" (")[0] for words in drops] == [
        "0.360 ± 0.225",
        "0.360 ± 0.225",
        "0.490 ± 0.014 at 1 step",
    ]
    assert "at 64 steps it is 0.000 ± 0.000" in others["every seed"][0].ours
    assert study.otherwise(Tables({GRID: coarse})) == {}


def _tolerances(own: dict[float, float], **columns: Any) -> list[GridRow]:
    """Two seeds for each tolerance, whose check solver agrees."""
    found = list[GridRow]()
    for tolerance, accuracy in own.items():
        columns |= {"method": "dopri54", "run": f"dopri54-{tolerance}", "tolerance": tolerance}
        for seed in (0, 1):
            row, other = a_model(None, own=accuracy + 0.002 * seed, checked=accuracy, seed=seed, **columns)
            found += [row, replace(other, test_method="dopri54", factor=0.1)]
    return found


@pytest.mark.parametrize(("fine", "agrees"), [(0.7, True), (0.958, False)])
def test_a_decline_at_small_tolerances_counts_seeds_that_learnt_little(fine: float, agrees: bool) -> None:
    rows = _tolerances({1e-1: 0.96, 1e-3: 0.95, 1e-5: fine})
    found = {finding.claim: finding for finding in adaptive_findings(rows)}
    declines = next(finding for claim, finding in found.items() if "declines at small tolerances" in claim)
    assert declines.agrees is agrees


def test_halves_of_a_part_of_a_grid_are_no_halves_of_the_grid() -> None:
    rows = _tolerances({1e-1: 0.96, 1e-3: 0.7})
    found = {finding.claim: finding for finding in adaptive_findings(rows, unfinished={"dopri54"})}
    declines = next(finding for claim, finding in found.items() if "declines at small tolerances" in claim)
    assert (declines.agrees, declines.brief) == (None, "not trained with all of the grid")
    assert "seed by seed" not in declines.ours


def test_the_adjoint_is_poor_where_large_tolerances_score_less() -> None:
    rows = _tolerances({1e-1: 0.6, 1e-3: 0.95, 1e-5: 0.95}, gradient="adjoint")
    _, poor = adaptive_findings(rows)
    assert "relatively low at large tolerances" in poor.claim
    assert poor.agrees


def test_a_seed_that_diverged_at_a_large_tolerance_did_poorly_there() -> None:
    rows = _tolerances({1e-1: 0.95, 1e-3: 0.95, 1e-5: 0.95}, gradient="adjoint")
    rows = [row for row in rows if row.tolerance != 1e-1]
    lost = replace(rows[0], run="dopri54-1e-1", tolerance=1e-1, own=True, accuracy=None, diverged_at=9)
    _, poor = adaptive_findings([*rows, *(replace(lost, seed=seed) for seed in (0, 1))])
    assert poor.ours.startswith("all seeds, tested with the training solver: 2 failed at 1e-1, 0.951 ± 0.001 at 1e-3")
    assert poor.agrees


def test_mnist_with_dopri54_is_the_exception() -> None:
    rows = _tolerances({1e-1: 0.95, 1e-3: 0.95}, data="mnist")
    exception, own = adaptive_findings(rows)
    assert "is the exception" in exception.claim
    assert (exception.agrees, own.agrees) == (True, True)


def test_what_is_said_of_all_of_a_grid_is_open_until_it_is_there_unless_an_entry_breaks_it() -> None:
    rows = _tolerances({1e-1: 0.95, 1e-3: 0.94}, data="mnist")
    assert [finding.agrees for finding in find_study("mnist-adaptive").findings(Tables({GRID: rows}))] == [None] * 3
    broken = rows + _tolerances({1e-5: 0.8}, data="mnist")
    assert [finding.agrees for finding in adaptive_findings(broken, unfinished={"dopri54"})] == [None, False]


def _whole(study: str, **accuracy: float) -> list[GridRow]:
    """Two seeds of every run of a study, with the own accuracy of those that begin with a name; else it is 0.95."""
    found = list[GridRow]()
    for run, config in find_study(study).runs(False).items():
        scored = next((a for name, a in accuracy.items() if run.startswith(name)), 0.95)
        for seed in (0, 1):
            row = replace(untested_row(run, config, seed), test_method="rk4", accuracy=scored + 0.002 * seed)
            found += [replace(row, factor=1.0), replace(row, own=False, factor=0.5)]
    return found


def _beside(rows: list[GridRow], **others: list[GridRow]) -> Tables:
    return Tables({GRID: rows, **{Table(name, GridRow): beside for name, beside in others.items()}})


@pytest.mark.parametrize(("dopri54", "agrees"), [(0.85, True), (0.95, False)])
def test_mnist_is_lower_with_adaptive_solvers_overall_once_both_grids_are_whole(dopri54: float, agrees: bool) -> None:
    study, fixed = find_study("mnist-adaptive"), _whole("mnist-fixed")
    assert study.beside == ("mnist-fixed",)
    rows = _whole("mnist-adaptive", dopri54=dopri54)

    def told(rows: list[GridRow], **beside: list[GridRow]) -> tuple[str, bool | None]:
        *_, last = study.findings(_beside(rows, **beside))
        assert "is lower, overall, than with fixed steps" in last.claim
        return last.ours, last.agrees

    ours, told_of_all = told(rows, **{"mnist-fixed": fixed})
    assert told_of_all is agrees
    assert ours.endswith("over 8 entries against 0.951 ± 0.000 over 12 entries")
    part = [row for row in rows if row.run == "dopri54-1e-1" and row.seed == 0]
    assert told(part, **{"mnist-fixed": fixed})[1] is None
    assert "0 (one seed) against" in told(part, **{"mnist-fixed": fixed})[0]
    assert told(rows, **{"mnist-fixed": [row for row in fixed if row.run != "rk4-16"]})[1] is None
    assert told(rows) == (f"{ours.partition(' against')[0]} against none yet", None)


def test_entries_of_many_seeds_count_no_more_than_those_of_one() -> None:
    """Many poor seeds of one entry do not make all of the grid poor."""
    rows, fixed = _whole("mnist-adaptive"), _whole("mnist-fixed", **{"euler-1": 0.97})
    many = [replace(row, seed=seed) for row in rows if row.run == "dopri54-1e-1" for seed in range(2, 40)]
    poor = [replace(row, accuracy=0.85) for row in many]
    *_, last = find_study("mnist-adaptive").findings(_beside([*rows, *poor], **{"mnist-fixed": fixed}))
    assert last.agrees is None


@pytest.mark.parametrize(
    ("mnist", "sphere2", "agrees"),
    [(4, 32, True), (4, 8, True), (4, 4, None), (4, 1, False), (4, 256, True), (64, 256, False)],
)
def test_mnists_critical_steps_are_low_where_all_others_are_higher(
    mnist: int, sphere2: int, agrees: bool | None
) -> None:
    """Each is the finest number that fails, the next power of two passes; above the finest there is none."""

    def grid(study: str, fails: int) -> list[GridRow]:
        rows = _whole(study)
        return [
            replace(row, accuracy=0.5) if not row.own and row.method == "euler" and (row.steps or 0) <= fails else row
            for row in rows
        ]

    study, cifar10 = find_study("mnist-fixed"), grid("cifar10-fixed", 32)
    rows, beside = grid("mnist-fixed", mnist), {"sphere2-fixed": grid("sphere2-fixed", sphere2)}
    *_, last = study.findings(_beside(rows, **beside, **{"cifar10-fixed": cifar10}))
    assert "the critical number of steps is low" in last.claim
    assert last.agrees is agrees
    *_, last = study.findings(_beside(rows, **beside))
    assert last.agrees is None
    without = [row for row in cifar10 if row.run != "euler-64-lr1e-4"]
    *_, last = study.findings(_beside(rows, **beside, **{"cifar10-fixed": without}))
    assert last.agrees is None


def test_a_study_without_rows_has_no_figures_and_nothing_to_say(tmp_path: Path) -> None:
    assert find_study("mnist-fixed").draw(Tables(), tmp_path) == []
    assert all(finding.agrees is None for finding in find_study("mnist-fixed").findings(Tables()))
