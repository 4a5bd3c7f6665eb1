"""Table 1 from hand-made rows: brackets and means worked out by hand; and its runs."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.paper.training.small import a_config, some_spheres, trained
from windermere.errors import RunError
from windermere.paper.studies import adaptation, table1
from windermere.paper.studies.adaptation_measures import ADAPTED
from windermere.paper.studies.rows import GRID, Table, Tables
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Finished
from windermere.paper.studies.table1_findings import findings
from windermere.paper.studies.table1_lines import TABLE, Table1Row, lines
from windermere.paper.training import trained_ensemble
from windermere.records import write_json
from windermere.solvers import FixedStep


def constant(steps: int, own: list[float | None], checked: Sequence[float | None], **changes: Any) -> list[Table1Row]:
    """A seed for each accuracy of Euler's method, and of midpoint with twice the steps."""
    about: dict[str, Any] = {"data": "sphere2", "method": "euler", "steps": steps, "lr": 1e-4, "iterations": 10_000}
    about |= {"run": f"sphere2-euler-{steps}", "cost": float(steps), **changes}
    rows = list[Table1Row]()
    for seed, (a, c) in enumerate(zip(own, checked, strict=True)):
        row = Table1Row(**about, seed=seed, test_method="euler", test_steps=steps, own=True, accuracy=a)
        rows += [row, replace(row, test_method="midpoint", test_steps=2 * steps, own=False, accuracy=c)]
    return rows


def adapted(accuracy: list[float], cost: list[float], **changes: Any) -> list[Table1Row]:
    about: dict[str, Any] = {
        "data": "sphere2",
        "method": "euler",
        "lr": 1e-4,
        "iterations": 10_000,
        "algorithm": "paper",
    }
    about |= {"run": "sphere2-euler-midpoint-paper-0.1", "check": "midpoint", "threshold": 0.1, **changes}
    tested: dict[str, Any] = {"test_method": "euler", "test_steps": 50, "own": True}
    pairs = enumerate(zip(accuracy, cost, strict=True))
    return [Table1Row(**about, **tested, seed=seed, cost=c, accuracy=a) for seed, (a, c) in pairs]


SPHERE2 = [
    *constant(32, [0.98, 0.96], [0.7, 0.8]),
    *constant(64, [0.98, 1.00], [0.95, 0.8]),  # gaps 0.03 and 0.2
    *constant(128, [0.98, 1.00], [0.97, 0.93]),  # gaps 0.01 and 0.07
    *constant(256, [0.97, 0.99], [0.97, 0.99]),
    *adapted([0.97, 0.99], [60.0, 100.0]),
]
"""The mean gap falls below 0.1 from 128 steps on."""


def test_the_bracket_is_the_last_that_fails_and_the_first_from_which_on_all_pass() -> None:
    (line,) = lines(SPHERE2)
    critical = line.critical
    assert critical is not None
    assert (line.fails, critical.precision, line.bracket) == (64, 128, "64-128")


@pytest.mark.parametrize(
    ("kept", "bracket"), [((32, 64), "above 64"), ((128, 256), "at most 128"), ((), "unknown"), ((32, 128), "32-128")]
)
def test_brackets_of_grids_that_lack_an_end(kept: tuple[int, ...], bracket: str) -> None:
    rows = [row for row in SPHERE2 if row.steps in (*kept, None)]
    assert lines(rows)[0].bracket == bracket


def test_an_entry_that_passes_below_one_that_fails_does_not_count() -> None:
    (line,) = lines([*constant(32, [0.98], [0.98]), *SPHERE2[4:]])
    assert line.bracket == "64-128"


def test_seeds_that_did_not_train_or_diverged_are_not_averaged() -> None:
    rows = [*constant(64, [0.98, 0.55, None], [0.95, 0.3, 0.1]), *SPHERE2[8:]]
    assert lines(rows)[0].bracket == "at most 64"


def test_a_grid_is_checked_with_the_coarsest_midpoint_steps_that_algorithm_2_allows() -> None:
    """Of 32 Euler steps: (h / 50)^(1/2) is 1/40."""
    rows = constant(32, [0.98], [0.98])
    tests = [replace(rows[1], test_steps=steps, accuracy=steps / 100) for steps in (32, 39, 40, 64)]
    assert lines([rows[0], *tests])[0].entries[0].checked == [0.4]
    assert lines([rows[0], *tests[:2]])[0].entries[0].checked == [0.39]


def test_a_check_that_fails_is_no_check_that_passes() -> None:
    """It is not left to a finer one, and its seed is not left out."""
    rows = constant(128, [0.98, 0.98], [0.98, 0.98])
    rows.append(replace(rows[1], test_steps=128, accuracy=None))
    assert lines(rows)[0].entries[0].checked == [0.0, 0.98]
    assert lines(rows)[0].bracket == "above 128"


def test_the_table_says_what_was_worked_out_by_hand(tmp_path: Path) -> None:
    TABLE.write(tmp_path, SPHERE2)
    paths = table1.draw(Tables({TABLE: TABLE.read(tmp_path)}), tmp_path)
    assert [path.name for path in paths] == ["table1.png", "table1.csv", "table1.md"]
    written = (tmp_path / "table1.md").read_text().splitlines()
    assert written[2:4] == [
        "| Sphere2 | paper | 65-129 | 98.7 ± 1.0 % | 100.5 | 98.9 ± 0.6 % |",
        "|  | ours, learning rate 1e-4 | 64-128 | 99.0 ± 1.4 % | 80.0 (seeds 60.0 to 100.0) | 98.0 ± 1.4 % |",
    ]
    assert "counts one more than the" in written[5]
    theirs, ours = table1.LINES.read(tmp_path)
    assert (theirs.source, theirs.grid_fails, theirs.grid_passes) == ("paper", 64, 128)
    assert (ours.grid_accuracy, ours.adapted_evaluations) == (0.99, 80.0)
    assert ours.grid_spread == pytest.approx(0.01 * 2**0.5)


def test_findings_compare_bracket_accuracy_and_cost() -> None:
    bracket, accuracy, par, cheap = findings(Tables({TABLE: SPHERE2}))
    assert (bracket.ours, bracket.agrees) == ("64-128 (printed: 64-128), of 32 to 256 steps (2 seeds)", True)
    assert accuracy.ours.startswith("99.0 ± 1.4 % with 128 steps (2 seeds) where 98.7 ± 1.0 % is printed (Welch p = ")
    assert accuracy.agrees is None  # two seeds that differ tell little
    assert {finding.case for finding in (bracket, accuracy, par, cheap)} == {"Sphere2, learning rate 1e-4"}
    assert (par.agrees, cheap.agrees) == (None, None)
    better = [*SPHERE2[:-2], *adapted([0.99, 0.99, 0.99, 0.99, 0.99], [80.0, 82.0, 84.0, 81.0, 80.0])]
    assert [finding.agrees for finding in findings(Tables({TABLE: better}))[3:]] == [True]
    costly = [*SPHERE2[:-2], *adapted([0.97, 0.99], [190.0, 200.0])]
    assert [finding.agrees for finding in findings(Tables({TABLE: costly}))[2:]] == [None, False]
    short = [replace(row, iterations=1500) for row in SPHERE2]
    assert {finding.agrees for finding in findings(Tables({TABLE: short}))} == {None}


def test_lines_of_one_seed_say_so() -> None:
    one = [row for row in SPHERE2 if row.seed == 0]
    assert [finding.ours for finding in findings(Tables({TABLE: one}))] == [
        "32-64 (printed: 64-128), of 32 to 256 steps (one seed)",
        "98.0 % with 64 steps (one seed) where 98.7 ± 1.0 % is printed",
        "97.0 % against 98.0 % (1 and 1 seeds)",
        "60.0 evaluations per iteration (one seed) against 64",
    ]
    assert [finding.apart for finding in findings(Tables({TABLE: one}))[1:]] == ["one seed"] * 3
    assert "| 32-64 | 98.0 % (one seed) | 60.0 (one seed) | 97.0 % |" in table1.markdown(lines(one))


def test_a_grid_without_its_fine_end_leaves_its_critical_steps_open() -> None:
    assert findings(Tables({TABLE: SPHERE2[:8]}))[0].agrees is None
    failing = [row for steps in (32, 64, 128, 256) for row in constant(steps, [0.98], [0.5])]
    assert findings(Tables({TABLE: failing}))[0].agrees is False


def test_nothing_is_drawn_where_no_seed_came_to_an_end(tmp_path: Path) -> None:
    assert table1.draw(Tables({TABLE: constant(32, [None], [None])[:1]}), tmp_path) == []


def test_both_learning_rates_of_cifar10_are_lines_of_their_own() -> None:
    cifar10: dict[str, Any] = {"data": "cifar10", "iterations": 7800}
    rows = [*constant(16, [0.5], [0.3], **cifar10, lr=1e-3), *constant(16, [0.6], [0.6], **cifar10, lr=1e-4)]
    assert [(line.lr, line.bracket) for line in lines(rows)] == [(1e-3, "above 16"), (1e-4, "at most 16")]


# ---------------------------------------------------------------------------------------------------------
# Runs


@pytest.mark.parametrize("quick", [False, True])
def test_algorithm_2_is_the_very_run_of_the_adaptation_studies(quick: bool) -> None:
    runs = table1.runs(quick)
    for data in ("sphere2", "cifar10"):
        others = adaptation.step_runs(data, quick)
        shared = {name for name in runs if name in others}
        assert f"{data}-euler-midpoint-paper-0.1" in shared
        assert all(runs[name] == others[name] for name in shared)


def test_grids_lie_around_the_critical_steps_at_all_learning_rates() -> None:
    constant = [config for config in table1.runs(False).values() if config.adapt == "none"]
    found = [(config.data, config.lr, round(1 / config.solver.precision)) for config in constant]
    assert found == [
        *(("sphere2", 1e-4, steps) for steps in (32, 64, 128, 256)),
        *(("cifar10", lr, steps) for lr in (1e-3, 1e-4) for steps in (4, 8, 16, 32)),
    ]


def _write(table: Table[Any], folder: Path, rows: Sequence[Table1Row]) -> None:
    """As rows of another study, with those of their columns that it has."""
    folder.mkdir()
    names = [field.name for field in fields(table.rows)]
    table.write(folder, [table.rows(**{name: getattr(row, name) for name in names}) for row in rows])


def test_what_other_studies_have_measured_is_borrowed_under_our_names(tmp_path: Path) -> None:
    grid = [row for steps in (16, 64) for row in constant(steps, [0.98], [0.97], run=f"euler-{steps}")]
    other = constant(64, [0.9], [0.9], iterations=1500, run="euler-64")
    steady = [replace(row, algorithm="steady") for row in adapted([0.9], [30.0])]
    _write(GRID, tmp_path / "sphere2-fixed", [*grid, *other])
    _write(ADAPTED, tmp_path / "step-adaptation-sphere2", [*adapted([0.99], [60.0]), *steady])
    made = {name: {"commit": name} for name in ("euler-16_seeds-0", "euler-64_seeds-0")}
    write_json(tmp_path / "sphere2-fixed" / "provenance.json", made)
    found, how = table1.borrowed(tmp_path, quick=False)
    lent = {"commit": "euler-64_seeds-0", "borrowed": "sphere2-fixed"}
    assert how == {"sphere2-fixed/sphere2-euler-64_seeds-0": lent}
    assert [(row.run, row.accuracy) for row in found] == [
        ("sphere2-euler-64", 0.98),
        ("sphere2-euler-64", 0.97),
        ("sphere2-euler-midpoint-paper-0.1", 0.99),
    ]


def test_seeds_of_table_1_are_not_trained_beside_borrowed_ones_of_another_arithmetic(tmp_path: Path) -> None:
    _write(GRID, tmp_path / "sphere2-fixed", constant(64, [0.98], [0.97], run="euler-64"))
    made = {"euler-64_seeds-0": {"arithmetic": "bfloat16"}}
    write_json(tmp_path / "sphere2-fixed" / "provenance.json", made)
    with pytest.raises(RunError, match="has seeds of 'sphere2-euler-64' in bfloat16, and others would be in float32"):
        run_study(table1.TABLE1, tmp_path / "table1", Choice(seeds=(0, 1), only="sphere2-euler-64"))


def test_a_grids_run_is_measured_with_the_columns_of_grids_and_with_the_check_of_algorithm_2(tmp_path: Path) -> None:
    trained(tmp_path, a_config(solver=FixedStep.of("euler", steps=8), iterations=5))
    rows = table1.measure(Finished("a-run", trained_ensemble(tmp_path), some_spheres()[1], tmp_path))[TABLE]
    assert (rows[0].steps, rows[0].cost, rows[0].own) == (8, 8.0, True)
    assert (rows[-1].test_method, rows[-1].test_steps) == ("midpoint", 20)
