"""What the tables of adapted precision say, beside what the paper says."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from windermere.paper.studies.adaptation_findings import step_findings, tolerance_findings
from windermere.paper.studies.adaptation_measures import ADAPTED, CURVES, AdaptedRow, CurveRow
from windermere.paper.studies.audits import AUDITS, AuditRow
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
    assert told(tables, accuracy)[0].startswith("99.0 ± 1.4 % (2 seeds) where 98.9 ± 0.6 % is printed (Welch p = ")
    assert told(tables, cost)[0].startswith("85.0, seeds 60.0 to 110.0, where 100.5 is printed (t-test p = ")
    assert (told(tables, accuracy)[1], told(tables, cost)[1]) == (None, None)  # two seeds that differ tell little


@pytest.mark.parametrize(
    ("accuracy", "cost", "agrees"),
    [
        ([0.987, 0.989, 0.991, 0.989, 0.988], [99.0, 104.0, 98.0, 101.0, 97.0], True),
        ([0.97, 0.972, 0.968, 0.971, 0.969], [50.0, 54.0, 48.0, 52.0, 51.0], False),
    ],
)
def test_seeds_that_agree_with_each_other_tell_whether_they_agree_with_the_paper(
    accuracy: list[float], cost: list[float], agrees: bool
) -> None:
    tables = tables_of(rows_of("a", accuracy, accuracy, cost=cost))
    assert told(tables, "accuracy is as printed")[1] is agrees
    assert told(tables, "as many evaluations per iteration as printed")[1] is agrees


def test_noise_is_not_rewarded() -> None:
    """The wider the spread around the same mean, the less can be said."""
    narrow, wide = [0.989, 0.990, 0.988, 0.989, 0.9895], [0.999, 0.999, 0.999, 0.999, 0.95]
    assert told(tables_of(rows_of("a", narrow, narrow)), "accuracy is as printed")[1] is True
    assert told(tables_of(rows_of("a", wide, wide)), "accuracy is as printed")[1] is None


def test_what_rests_on_one_seed_or_on_a_rate_that_is_not_printed_is_counted_apart() -> None:
    (one, *_), (other, *_) = (
        step_findings(tables_of(rows_of("a", accuracy, accuracy, **settings)))
        for accuracy, settings in (
            ([0.99], {}),
            ([0.57, 0.57], {"data": "cifar10", "lr": 1e-4, "iterations": 7800}),
        )
    )
    assert (one.apart, other.apart) == ("one seed", "a rate that is not printed")


def test_seeds_that_diverged_are_left_out_of_all_numbers() -> None:
    table = rows_of("a", [0.98, 1.0], [0.97, 0.95])
    lost = replace(table[0], seed=9, accuracy=None, cost=None, diverged_at=7)
    assert step_findings(tables_of([*table, lost])) == step_findings(tables_of(table))


def test_quick_runs_leave_findings_open() -> None:
    tables = tables_of(rows_of("a", [0.99], [0.99], iterations=1500))
    assert {finding.agrees for finding in step_findings(tables)} == {None}


def test_models_without_audits_are_flows_where_finer_solvers_agree_for_every_seed() -> None:
    flow = tables_of(rows_of("a", [0.99, 0.99], [0.98, 0.81]))
    ours = (
        "not audited; at the end, the finer solver that differs most is 9.5 points away (seeds 1.0 to 18.0); "
        "within 0.1 in 1 of 2 seeds"
    )
    assert told(flow, "stays a flow") == (ours, None)
    assert told(tables_of(rows_of("a", [0.99, 0.99], [0.9, 0.95])), "stays a flow")[1] is True
    assert told(tables_of(rows_of("a", [0.99, 0.99], [0.8, 0.7])), "stays a flow")[1] is False


@pytest.mark.parametrize(
    ("outcomes", "words", "agrees"),
    [
        (("FLOW", "FLOW"), "2 FLOW (share of FLOW 0.34 to 1.00; seeds 0 FLOW, 1 FLOW)", True),
        (("UNDECIDED", "FLOW"), "1 FLOW, 1 UNDECIDED (share of FLOW 0.09 to 0.91; seeds 0 UNDECIDED, 1 FLOW)", None),
        (("FLOW", "TIED"), "1 FLOW, 1 TIED (share of FLOW 0.09 to 0.91; seeds 0 FLOW, 1 TIED)", False),
    ],
)
def test_every_seeds_audit_decides_whether_models_are_flows(
    outcomes: tuple[str, ...], words: str, agrees: bool | None
) -> None:
    """Whatever the mean over seeds is."""
    audits = [AuditRow(run="a", seed=s, outcome=o, own=0.99, flow=0.99) for s, o in enumerate(outcomes)]
    tables = tables_of(rows_of("a", [0.99, 0.99], [0.99, 0.99]))
    tables[AUDITS] = audits
    ours, found = told(tables, "stays a flow")
    assert ours.startswith(f"audits: {words}; at the end, the finer solver")
    assert found is agrees


def test_a_finer_solver_that_fails_is_as_far_away_as_can_be() -> None:
    rows = rows_of("a", [0.99], [0.98])
    rows.append(replace(rows[1], accuracy=None))
    ours = "not audited; at the end, the finer solver that differs most is 99.0 points away (one seed)"
    assert told(tables_of(rows), "stays a flow") == (ours, False)


def curve_of(
    run: str, seed: int, *precisions: float, name: str = "steps", failed: Sequence[int] = ()
) -> list[CurveRow]:
    """A seed's reviews, evenly over 10,000 iterations or one in 1000; `failed` are those whose check failed."""
    afters = [*precisions[1:], None]
    return [
        CurveRow(
            run=run,
            seed=seed,
            iteration=10_000 // max(10, len(precisions)) * n,
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
        ours = f"once settled, its log2 has a standard deviation of {swing:.2f} (one seed; 0 of 1 fluctuates)"
        assert told(tables, "fluctuates to the end")[0] == ours


@pytest.mark.parametrize(
    ("late", "fluctuates"),
    [
        ([16, 32] * 10, True),
        ([20] * 20, False),
        ([20, 21] * 10, False),  # by less than one raise
        ([2**k for k in range(1, 21)], False),  # a drift
        ([*range(20, 40)], False),
        ([8] * 10 + [64] * 10, False),  # one jump
        ([16, 64] * 5 + [30] * 10, False),  # at rest in the end
    ],
)
def test_what_drifts_jumps_once_or_comes_to_rest_does_not_fluctuate_to_the_end(
    late: list[int], fluctuates: bool
) -> None:
    steps = (*[40] * 19, 39, *late)  # corrected before half of the time is over
    tables = tables_of(rows_of("a", [0.99], [0.99]), curve_of("a", 0, *map(float, steps)))
    assert told(tables, "fluctuates to the end")[1] is fluctuates


def spending(curve: list[CurveRow], *rates: int) -> list[CurveRow]:
    """With evaluations: so many in each iteration before a review."""
    every = curve[0].iteration
    return [replace(row, evaluations_forward=every * sum(rates[: n + 1])) for n, row in enumerate(curve)]


@pytest.mark.parametrize(("first", "agrees"), [(29, True), (31, False)])
def test_a_first_step_is_too_small_where_training_takes_twice_the_evaluations_it_takes_once_settled(
    first: int, agrees: bool
) -> None:
    steps = (first,) * 5 + (10,) * 5
    tables = tables_of(rows_of("a", [0.99], [0.99]), spending(curve_of("a", 0, *steps), *steps))
    ours = f"begins with {first} steps (one seed), and settles around 10.0; without its checks it takes "
    cost = f"{(first + 10) / 2:.1f} evaluations per iteration in all, and 10.0 once settled"
    assert told(tables, "first step") == (f"training {ours}{cost}", agrees)


@pytest.mark.parametrize(("late", "swing"), [((16, 8) * 5, 0.49), ((20,) * 10, 0.0)])
def test_evaluations_fluctuate_by_themselves(late: tuple[int, ...], swing: float) -> None:
    rows = rows_of("a", [0.99], [0.99], method="dopri54", check="dopri54", final_steps=None, final_tolerance=1e-3)
    curve = curve_of("a", 0, *[1e-6] * 10, *[1e-3, 4e-3] * 5, name="tolerance")
    findings = tolerance_findings(tables_of(rows, spending(curve, *[25] * 10, *late)))
    precision, evaluations, *_ = findings
    assert precision.agrees is True
    assert evaluations.claim.startswith("the number of evaluations fluctuates to the end")
    assert evaluations.agrees is (swing > 0)
    assert evaluations.ours.startswith(
        f"once settled, from {min(late)} to {max(late)} per iteration; its log2 has a standard deviation of {swing:.2f}"
    )


def test_how_many_seeds_fluctuate_is_told_and_all_must() -> None:
    rows, swings = rows_of("a", [0.99, 0.99], [0.99, 0.99]), curve_of("a", 0, *[8, 32] * 10)
    ours, agrees = told(tables_of(rows, [*swings, *curve_of("a", 1, *[8] * 20)]), "fluctuates to the end")
    assert ours.endswith("a standard deviation of 0.50 (seeds 0.00 to 1.00; 1 of 2 fluctuate)")
    assert agrees is None
    both = tables_of(rows, [*swings, *(replace(row, seed=1) for row in swings)])
    assert told(both, "fluctuates to the end")[1] is True


def test_reviews_after_failed_ones_are_told_and_are_no_finding_of_the_papers() -> None:
    """They look with half the step, at which the same weights may have passed."""
    seeds = (curve_of("a", 0, *[8] * 10, failed=(2, 3, 10)), curve_of("a", 1, *[8] * 10, failed=(1, 7)))
    tables = tables_of(rows_of("a", [0.99, 0.99], [0.99, 0.99]), [*seeds[0], *seeds[1]])
    (finding,) = (f for f in step_findings(tables) if "half the step" in f.claim)
    assert finding.ours == "5 of 20 reviews failed (2 seeds); the next one passed 3 times of 4"
    assert (finding.agrees, finding.beyond) == (None, True)


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
    curves = [row for m, c in pairs for row in curve_of(f"{m}-{c}", 0, *[8, 32] * 10, failed=(2,))]
    findings = [f for f in step_findings(tables_of(rows, curves)) if "threshold" in f.case]
    findings = [f for f in findings if "printed" not in f.claim]
    findings = [f for f in findings if "half the step" not in f.claim]
    assert len(findings) == 6
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
        "swings 0.00 (one seed; 0 of 1 fluctuates) against 0.49 (seeds 0.00 to 0.98; 0 of 2 fluctuate), "
        "evaluations per iteration 60.0 against 90.0, "
        "accuracy 99.0 % against 98.0 ± 0.0 %, distance to finer solvers 1.0 points against 3.0 (one seed against 2)"
    )


def test_a_slow_drift_of_steady_counts_though_its_only_correction_comes_late() -> None:
    steady = rows_of("b", [0.99], [0.98], algorithm="steady", threshold=None, target=0.075)
    drift = (64,) * 5 + (32, 16, 8, 4, 8)  # steps fall, and rise in the ninth review
    curves = [*curve_of("a", 0, *[8, 32] * 5), *curve_of("b", 0, *drift)]
    tables = tables_of([*rows_of("a", [0.98], [0.95]), *steady], curves)
    (finding,) = (f for f in step_findings(tables) if f.beyond)
    assert finding.ours.startswith("swings 1.02 (one seed; 0 of 1 fluctuates) against")


def test_tolerances_settle_around_different_values_where_seeds_differ_by_more_than_one_swings() -> None:
    changes: dict[str, Any] = {"method": "dopri54", "check": "dopri54", "final_steps": None}
    rows = rows_of("a", [0.98, 0.99], [0.98, 0.99], **changes, final_tolerance=[1e-4, 4e-4])
    way = (1e-6,) * 5

    def seed(number: int, *late: float) -> list[CurveRow]:
        return curve_of("a", number, *way, *late, name="tolerance")

    for late, agrees in ((4e-4, True), (1e-4, None)):
        curves = [*seed(0, 1e-4, 1e-4, 1e-4), *seed(1, late, late, late)]
        findings = tolerance_findings(tables_of(rows, curves))
        (finding,) = (f for f in findings if "different final values" in f.claim)
        assert finding.agrees is agrees
    assert finding.ours.startswith("once settled, around 1.0e-04: log2 has a standard deviation of 0.00 between seeds")
