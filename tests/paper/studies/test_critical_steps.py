"""Critical steps by the check of Algorithm 2 on training batches, and what is measured of fields besides."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.paper.training.small import a_config, some_spheres
from windermere.paper.architectures import SphereField
from windermere.paper.studies import critical_steps
from windermere.paper.studies.audits import AUDITS, AuditRow, outcomes
from windermere.paper.studies.critical_findings import RULES, bracket, findings, on_the_test_set, on_training_batches
from windermere.paper.studies.critical_rows import CHECKS, CheckRow
from windermere.paper.studies.critical_text import BORROWED, text
from windermere.paper.studies.field_measures import ESTIMATES, FIELDS, FieldRow, layer_bound, slope
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import Finished
from windermere.paper.studies.table1_lines import Table1Row
from windermere.paper.training import RunConfig, Trained
from windermere.paper.training.trainer import make_ensemble
from windermere.solvers import Adaptive, FixedStep


def a_check(steps: int, gap: float, batch_gap: float, seed: int = 0) -> CheckRow:
    about = CheckRow(
        run=f"euler-{steps}", seed=seed, data="sphere2", method="euler", steps=steps, lr=1e-4, iterations=10_000
    )
    return replace(about, own=0.99, checked=0.99 - gap, batch_own=0.99, batch_gap=batch_gap)


ROWS = [
    *(a_check(32, gap, gap, seed) for seed, gap in enumerate((0.3, 0.3))),
    *(a_check(64, gap, gap + 0.02, seed) for seed, gap in enumerate((0.18, 0.01))),
    *(a_check(128, gap, gap, seed) for seed, gap in enumerate((0.06, 0.0))),
    *(a_check(256, gap, gap, seed) for seed, gap in enumerate((0.0, 0.0))),
]


@pytest.mark.parametrize(
    ("rule", "tests", "batches"),
    list(zip(RULES, ("32-64", "64-128", "64-128", "64-128"), ("64-128",) * 4, strict=True)),
)
def test_the_critical_number_depends_on_the_rule_and_on_where_one_looks(rule: str, tests: str, batches: str) -> None:
    assert bracket(on_the_test_set(ROWS), RULES[rule])[2] == tests
    assert bracket(on_training_batches(ROWS), RULES[rule])[2] == batches


def test_a_grid_that_lacks_an_end_has_half_a_bracket_and_one_without_rows_none() -> None:
    rule = next(iter(RULES.values()))
    assert bracket(on_the_test_set(ROWS[:2]), rule)[2] == "above 32"
    assert bracket(on_the_test_set(ROWS[4:]), rule)[2] == "at most 128"
    assert bracket([], rule)[2] == "not scored yet"


def test_the_papers_own_check_is_compared_with_the_printed_bracket() -> None:
    (finding,) = findings(Tables({CHECKS: ROWS}))
    assert finding.ours.startswith("64-128 (printed: 64-128; the same models on the test set: 32-64; 2 seeds)")
    assert finding.agrees is True
    (short,) = findings(Tables({CHECKS: [replace(row, iterations=1500) for row in ROWS]}))
    assert short.agrees is None


def lent_models() -> list[Table1Row]:
    """Table 1's, of which those with 16 steps pass on the test set."""
    about = {"run": "c", "seed": 0, "data": "cifar10", "method": "euler", "lr": 1e-3, "iterations": 7800}
    rows = list[Table1Row]()
    for steps, checked in ((8, 0.3), (16, 0.5)):
        own = Table1Row(**about, steps=steps, own=True, accuracy=0.5)  # type: ignore[arg-type]
        rows += [own, replace(own, own=False, accuracy=checked, test_method="midpoint", test_steps=40)]
    return rows


def an_image_check(steps: int, batch_gap: float) -> CheckRow:
    row = replace(a_check(steps, 0.0, batch_gap), data="cifar10", lr=1e-3, iterations=7800)
    return replace(row, run=f"cifar10-euler-{steps}-lr1e-3", own=0.5, checked=0.5, batch_own=0.8)


def test_images_that_nobody_scored_on_batches_are_said_to_be_so() -> None:
    lines = text(Tables({CHECKS: ROWS, BORROWED: lent_models()})).splitlines()
    assert "| mean gap at most 0.1 (Algorithm 2's) | 32-64 | 64-128 | 8-16 | not scored yet |" in lines
    assert text(Tables()) == ""


def test_on_the_test_set_the_models_with_more_numbers_of_steps_count() -> None:
    """Those of Table 1, where few were scored on batches; not where these are as many."""
    scored = [an_image_check(16, 0.14)]
    lines = text(Tables({CHECKS: [*ROWS, *scored], BORROWED: lent_models()})).splitlines()
    assert "| mean gap at most 0.1 (Algorithm 2's) | 32-64 | 64-128 | 8-16 | above 16 |" in lines
    scored += [an_image_check(32, 0.05)]
    lines = text(Tables({CHECKS: [*ROWS, *scored], BORROWED: lent_models()})).splitlines()
    assert "| mean gap at most 0.1 (Algorithm 2's) | 32-64 | 64-128 | at most 16 | 16-32 |" in lines


def a_field(run: str, seed: int, slope: float) -> FieldRow:
    about = {"bound": 90.0, "margin": 1.0, "moved": 0.5, "beyond": 0.2, "changed": 0.1, "changed_within": 0}
    return FieldRow(run=run, seed=seed, slope=slope, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(("outcome", "agrees"), [("FLOW", True), ("TIED", False)])
def test_a_small_lipschitz_constant_is_enough_where_all_models_that_have_it_are_flows(
    outcome: str, agrees: bool
) -> None:
    """One with h L above 1 does not count."""
    fields = [a_field("euler-32", 0, 16.0), a_field("euler-32", 1, 40.0)]
    audits = [
        AuditRow(run="euler-32", seed=seed, outcome=said, own=0.99, flow=0.5)
        for seed, said in enumerate((outcome, "TIED"))
    ]
    tables = Tables({CHECKS: ROWS[:2], FIELDS: fields, AUDITS: audits})
    (finding,) = (f for f in findings(tables) if "Lipschitz" in f.claim)
    assert "32 steps 0.50 to 1.25. Of the 1 models" in finding.ours
    assert finding.agrees is agrees
    images = Tables({**tables, CHECKS: [*ROWS[:2], an_image_check(8, 0.4)]})  # of whose fields nothing is measured
    assert finding in findings(images)


def test_outcomes_are_counted_in_the_audits_order() -> None:
    rows = [AuditRow(run="a", seed=s, outcome=o, own=1, flow=1) for s, o in enumerate(("TIED", "FLOW", "FLOW"))]
    assert outcomes(rows) == "2 FLOW, 1 TIED"


# ---------------------------------------------------------------------------------------------------------
# Measuring


def _finished(config: RunConfig, folder: Path) -> Finished:
    ensemble, (training, test) = make_ensemble(config), some_spheres()
    trained = Trained(config, ensemble, (config.solver,) * ensemble.size)
    return Finished("a-run", trained, test, folder, training)


def test_models_with_constant_steps_are_checked_as_algorithm_2_would(tmp_path: Path) -> None:
    run = _finished(a_config(seeds=(0, 3), solver=FixedStep.of("euler", steps=32), batch_size=64), tmp_path)
    tables = critical_steps.measure(run)
    rows = tables[CHECKS]
    assert [(row.seed, row.check, row.check_steps, row.batches) for row in rows] == [
        (0, "midpoint", 40, 3),
        (3, "midpoint", 40, 3),
    ]
    assert all(0 <= (row.batch_gap or 0) <= 1 for row in rows)
    assert len(tables[FIELDS]) == len(tables[AUDITS]) == 2
    assert not tables[ESTIMATES]


def test_a_fields_slope_lies_below_the_product_of_its_layers_norms(tmp_path: Path) -> None:
    (row, _) = critical_steps.measure(_finished(a_config(seeds=(0, 3)), tmp_path))[FIELDS]
    assert 0 < row.slope <= row.bound
    assert row.changed_within == 0


def test_slope_and_bound_of_a_field_with_one_channel_are_worked_out_by_hand() -> None:
    field = SphereField(2, width=1)
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.zero_()
        field.lift.weight[0], field.mix.weight[0, 0, 1], field.lower.weight[0] = 2.0, 3.0, 0.5
    field.double()
    states = torch.tensor([[[1.0, 2.0], [-1.0, -2.0]]], dtype=torch.float64)
    assert slope(field, states) == pytest.approx(3.0)
    assert layer_bound(field) == pytest.approx(3.0)


def test_embedded_estimates_of_a_solve_are_compared_with_its_true_local_errors(tmp_path: Path) -> None:
    config = a_config(seeds=(0, 3), solver=Adaptive("fehlberg21", tolerance=1e-1))
    tables = critical_steps.measure(_finished(config, tmp_path))
    assert [row.seed for row in tables[ESTIMATES]] == [0, 3]
    assert all(row.steps >= 1 and row.underestimated > 0 for row in tables[ESTIMATES])
    assert tables[CHECKS][0].check_tolerance == 0.02


def test_full_runs_are_the_papers_and_quick_ones_are_short() -> None:
    full, quick = critical_steps.runs(False), critical_steps.runs(True)
    assert {"sphere2-euler-64", "sphere2-rk4-4", "sphere2-dopri54-1e-1", "cifar10-euler-16-lr1e-3"} <= set(full)
    assert {config.seeds for config in full.values()} == {(0, 1, 2, 3, 4)}
    assert {(config.data, config.iterations) for config in quick.values()} == {("sphere2", 1500)}
