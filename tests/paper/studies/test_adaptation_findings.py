"""What the tables of adapted precision say, beside what the paper says."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from windermere.paper.studies.adaptation_findings import step_findings, tolerance_findings
from windermere.paper.studies.adaptation_measures import ADAPTED, CURVES, AdaptedRow, CurveRow
from windermere.paper.studies.rows import Tables


def rows_of(run: str, accuracy: list[float], finer: list[float], **changes: Any) -> list[AdaptedRow]:
    """A seed for each accuracy, with its own solver and a finer one."""
    about: dict[str, Any] = {
        "data": "sphere2",
        "algorithm": "paper",
        "method": "euler",
        "check": "midpoint",
        "threshold": 0.1,
    }
    about |= {"target": None, "lr": 1e-4, "iterations": 10_000, "cost": 90.0, "final_steps": 64}
    about |= {"final_tolerance": None, "diverged_at": None, **changes}
    rows = list[AdaptedRow]()
    for seed, (own, other) in enumerate(zip(accuracy, finer, strict=True)):
        this = {name: value[seed] if isinstance(value, list) else value for name, value in about.items()}
        row = AdaptedRow(run=run, seed=seed, **this, own=True, accuracy=own)
        rows += [row, replace(row, own=False, accuracy=other)]
    return rows


def tables_of(rows: Sequence[AdaptedRow], curves: Sequence[CurveRow] = ()) -> Tables:
    return Tables({ADAPTED: rows, CURVES: curves})


def told(tables: Tables, words: str) -> tuple[str, bool | None]:
    (finding,) = (f for f in step_findings(tables) if words in f.claim)
    return finding.ours, finding.agrees


def test_accuracy_and_cost_stand_beside_the_papers() -> None:
    tables = tables_of(rows_of("a", [0.98, 1.0], [0.97, 0.95], cost=[60.0, 110.0]))
    accuracy, cost = "accuracy is as printed", "as many evaluations per iteration as printed"
    assert told(tables, accuracy) == ("99.0 ± 1.4 % (2 seeds) where 98.9 ± 0.6 % is printed", True)
    assert told(tables, cost) == ("85.0, seeds 60.0 to 110.0, where 100.5 is printed", True)
    tables = tables_of(rows_of("a", [0.90, 0.91], [0.9, 0.9], cost=[60.0, 70.0]))
    assert told(tables, accuracy)[1] is False
    assert told(tables, cost)[1] is False


def test_seeds_that_diverged_are_left_out_of_all_numbers() -> None:
    table = rows_of("a", [0.98, 1.0], [0.97, 0.95])
    lost = replace(table[0], seed=9, accuracy=None, cost=None, diverged_at=7)
    assert step_findings(tables_of([*table, lost])) == step_findings(tables_of(table))


def test_quick_runs_leave_findings_open() -> None:
    tables = tables_of(rows_of("a", [0.99], [0.99], iterations=1500))
    assert {finding.agrees for finding in step_findings(tables)} == {None}


def test_a_model_is_a_flow_where_finer_solvers_agree_on_average() -> None:
    flow = tables_of(rows_of("a", [0.99, 0.99], [0.98, 0.81]))
    assert told(flow, "stays a flow") == (
        "at the end, the finer solver that differs most is 9.5 points away (seeds 1.0 to 18.0); "
        "within 0.1 in 1 of 2 seeds",
        True,
    )
    assert told(tables_of(rows_of("a", [0.99, 0.99], [0.9, 0.7])), "stays a flow")[1] is False


def test_a_finer_solver_that_fails_is_as_far_away_as_can_be() -> None:
    rows = rows_of("a", [0.99], [0.98])
    rows.append(replace(rows[1], accuracy=None))
    ours = "at the end, the finer solver that differs most is 99.0 points away (one seed)"
    assert told(tables_of(rows), "stays a flow") == (ours, False)


def curve_of(
    run: str, seed: int, *precisions: float, name: str = "steps", failed: Sequence[int] = ()
) -> list[CurveRow]:
    """A seed's reviews, each after 1000 iterations with a precision; `failed` are those whose check failed."""
    afters = [*precisions[1:], None]
    return [
        CurveRow(
            run=run,
            seed=seed,
            iteration=1000 * n,
            trained=0.99,
            checked=0.8 if n in failed else 0.99,
            **{name: precision, f"{name}_after": after},  # type: ignore[arg-type]
        )
        for n, (precision, after) in enumerate(zip(precisions, afters, strict=True), start=1)
    ]


def test_steps_have_settled_in_the_second_half_and_after_the_first_correction() -> None:
    way = (100, 90, 80, 70, 60, 50)  # corrected in the eighth review, or in the third
    late, early = (*way, 40, 30, 64, 16), (*way[:3], 160, 50, 32, 8, 32, 8, 32)
    for steps, swing in ((late, 1.0), (early, 0.98)):
        tables = tables_of(rows_of("a", [0.99], [0.99]), curve_of("a", 0, *steps))
        ours = f"once settled, its log2 has a standard deviation of {swing:.2f}, one seed"
        assert told(tables, "fluctuates to the end") == (ours, True)


def spending(curve: list[CurveRow], *rates: int) -> list[CurveRow]:
    """With evaluations: so many in each of the 1000 iterations before a review."""
    return [replace(row, evaluations_forward=1000 * sum(rates[: n + 1])) for n, row in enumerate(curve)]


@pytest.mark.parametrize(("first", "agrees"), [(29, True), (31, False)])
def test_a_first_step_is_too_small_where_training_takes_twice_the_evaluations_it_takes_once_settled(
    first: int, agrees: bool
) -> None:
    steps = (first,) * 5 + (10,) * 5
    tables = tables_of(rows_of("a", [0.99], [0.99]), spending(curve_of("a", 0, *steps), *steps))
    ours = f"begins with {first} steps (one seed), and settles around 10.0; without its checks it takes "
    cost = f"{(first + 10) / 2:.1f} evaluations per iteration in all, and 10.0 once settled"
    assert told(tables, "first step") == (f"training {ours}{cost}", agrees)


@pytest.mark.parametrize(("late", "swing"), [((16, 8, 16, 8, 16), 0.5), ((20, 20, 20, 20, 20), 0.0)])
def test_evaluations_fluctuate_by_themselves(late: tuple[int, ...], swing: float) -> None:
    rows = rows_of("a", [0.99], [0.99], method="dopri54", check="dopri54", final_steps=None, final_tolerance=1e-3)
    curve = curve_of("a", 0, *[1e-6] * 5, *[1e-3, 4e-3] * 2, 1e-3, name="tolerance")
    findings = tolerance_findings(tables_of(rows, spending(curve, *[50] * 5, *late)))
    precision, evaluations, *_ = findings
    assert precision.agrees is True
    assert evaluations.claim.startswith("the number of evaluations fluctuates to the end")
    assert evaluations.agrees is (swing > 0)
    assert evaluations.ours.startswith(
        f"once settled, from {min(late)} to {max(late)} per iteration; its log2 has a standard deviation of {swing:.2f}"
    )


def test_how_many_seeds_fluctuate_is_told_where_they_differ() -> None:
    rows = rows_of("a", [0.99, 0.99], [0.99, 0.99])
    curves = [*curve_of("a", 0, *[8, 32] * 5), *curve_of("a", 1, *[8] * 10)]
    ours, agrees = told(tables_of(rows, curves), "fluctuates to the end")
    assert ours.endswith("a standard deviation of 0.49, seeds 0.00 to 0.98: above 0.14 in 1 of 2")
    assert agrees
    swinging = tables_of(rows, [*curves[:10], *(replace(row, seed=1) for row in curves[:10])])
    assert told(swinging, "fluctuates to the end")[0].endswith("0.98, seeds 0.98")


def test_a_correction_is_seen_in_the_review_that_follows_a_failed_one() -> None:
    seeds = (curve_of("a", 0, *[8] * 10, failed=(2, 3, 10)), curve_of("a", 1, *[8] * 10, failed=(1, 7)))
    tables = tables_of(rows_of("a", [0.99, 0.99], [0.99, 0.99]), [*seeds[0], *seeds[1]])
    ours = "5 of 20 reviews failed (2 seeds); the next one passed 3 times of 4"
    assert told(tables, "is corrected") == (ours, True)
    tables = tables_of(tables[ADAPTED], curve_of("a", 0, *[8] * 10, failed=(2, 3, 4)))
    assert told(tables, "is corrected")[1] is False


def test_a_review_after_a_failed_one_must_pass_as_often_as_any_other() -> None:
    """Where four of five reviews pass whatever the step, three of five after a failed one are no correction."""
    curves = curve_of("a", 0, *[8] * 25, failed=(2, 3, 5, 7, 8))
    ours, agrees = told(tables_of(rows_of("a", [0.99], [0.99]), curves), "is corrected")
    assert ours.endswith("the next one passed 3 times of 5")
    assert not agrees


def test_midpoint_is_compared_with_euler_under_the_same_check() -> None:
    euler = rows_of("a", [0.99, 0.99], [0.99, 0.99], check="rk4")
    midpoint = rows_of("b", [0.99], [0.99], method="midpoint", check="rk4")
    way = (500, *[1000] * 4)  # corrected at once
    curves = [*curve_of("a", 0, *way, 16, 64), *curve_of("a", 1, *way, 20, 20), *curve_of("b", 0, *way, 4, 9)]
    ours = "once settled, around 6.0 steps of midpoint (one seed) against 26.0 of Euler (seeds 20.0 to 32.0)"
    assert told(tables_of([*euler, *midpoint], curves), "far fewer steps") == (ours, True)
    curves = [*curve_of("a", 0, *way, 12, 12), *curve_of("a", 1, *way, 12, 12), *curve_of("b", 0, *way, 4, 9)]
    assert told(tables_of([*euler, *midpoint], curves), "far fewer steps")[1] is False


def test_what_the_paper_does_not_show_on_mnist_is_ours() -> None:
    settings: dict[str, Any] = {"data": "mnist", "iterations": 7020, "check": "rk4"}
    rows = [*rows_of("a", [0.9], [0.9], **settings), *rows_of("b", [0.9], [0.9], method="midpoint", **settings)]
    curves = [*curve_of("a", 0, *[9] * 7), *curve_of("b", 0, *[6] * 7)]
    (finding,) = (f for f in step_findings(tables_of(rows, curves)) if "far fewer" in f.claim)
    assert (finding.agrees, finding.beyond) == (None, True)


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_pairs_that_the_paper_does_not_show_on_mnist_are_not_counted_as_its_claims(data: str) -> None:
    """Neither where they agree: the comparison of two that does not is ours as well."""
    pairs = [("euler", "midpoint"), ("euler", "rk4"), ("midpoint", "rk4")]
    settings: dict[str, Any] = {"data": data, "iterations": 7800}
    rows = [row for m, c in pairs for row in rows_of(f"{m}-{c}", [0.9], [0.9], method=m, check=c, **settings)]
    curves = [row for m, c in pairs for row in curve_of(f"{m}-{c}", 0, *[8, 32] * 5, failed=(2,))]
    findings = [f for f in step_findings(tables_of(rows, curves)) if "threshold" in f.case]
    findings = [f for f in findings if "printed" not in f.claim]
    assert len(findings) == 9
    shown = [data == "cifar10" or "euler/midpoint" in finding.case for finding in findings]
    assert [finding.agrees for finding in findings] == [True if is_shown else None for is_shown in shown]
    assert [not finding.beyond for finding in findings] == shown


def test_steady_is_compared_with_the_papers_algorithm_of_the_same_pair() -> None:
    steady = rows_of("b", [0.99], [0.98], algorithm="steady", threshold=None, target=0.075, cost=60.0)
    paper = rows_of("a", [0.98, 0.98], [0.95, 0.95])
    swinging = [*curve_of("a", 0, *[8, 32] * 5), *curve_of("a", 1, *[8] * 10)]
    tables = tables_of([*paper, *steady], [*swinging, *curve_of("b", 0, *[8] * 10)])
    (finding,) = (f for f in step_findings(tables) if f.beyond)
    assert finding.agrees is None
    assert finding.ours == (
        "swings 0.00 (one seed) against 0.49 (seeds 0.00 to 0.98), evaluations per iteration 60.0 against 90.0, "
        "accuracy 99.0 % against 98.0 ± 0.0 %, distance to finer solvers 1.0 points against 3.0"
    )


def test_a_slow_drift_of_steady_counts_though_its_only_correction_comes_late() -> None:
    steady = rows_of("b", [0.99], [0.98], algorithm="steady", threshold=None, target=0.075)
    drift = (64,) * 5 + (32, 16, 8, 4, 8)  # steps fall, and rise in the ninth review
    curves = [*curve_of("a", 0, *[8, 32] * 5), *curve_of("b", 0, *drift)]
    tables = tables_of([*rows_of("a", [0.98], [0.95]), *steady], curves)
    (finding,) = (f for f in step_findings(tables) if f.beyond)
    assert finding.ours.startswith("swings 1.02 (one seed) against")


def test_tolerances_settle_around_different_values_where_seeds_differ_by_more_than_one_swings() -> None:
    changes: dict[str, Any] = {"method": "dopri54", "check": "dopri54", "final_steps": None}
    rows = rows_of("a", [0.98, 0.99], [0.98, 0.99], **changes, final_tolerance=[1e-4, 4e-4])
    way = (1e-6,) * 5

    def seed(number: int, *late: float) -> list[CurveRow]:
        return curve_of("a", number, *way, *late, name="tolerance")

    for late, agrees in ((4e-4, True), (1e-4, False)):
        curves = [*seed(0, 1e-4, 1e-4, 1e-4), *seed(1, late, late, late)]
        findings = tolerance_findings(tables_of(rows, curves))
        (finding,) = (f for f in findings if "different final values" in f.claim)
        assert finding.agrees is agrees
    assert finding.ours.startswith("once settled, around 1.0e-04: log2 has a standard deviation of 0.00 between seeds")
