"""Claims on more seeds than five, each judged three times, and how sure a critical number of steps is."""

from dataclasses import replace
from math import isclose, log2
from pathlib import Path

import pytest

from tests.paper.studies.small import TABLE, SmallRow
from windermere.paper.studies.critical_findings import findings as critical_findings
from windermere.paper.studies.critical_number import crossing, crossing_within, failing_groups, gaps_by_steps
from windermere.paper.studies.critical_rows import CHECKS, CheckRow
from windermere.paper.studies.fresh_seeds import COLUMNS, fresh_seeds
from windermere.paper.studies.rows import Table, Tables, of_seeds
from windermere.paper.studies.study import Finding, Study


def findings(tables: Tables) -> list[Finding]:
    """A claim that holds if most do, one about each seed, and one of ours."""
    rows = tables[TABLE]
    good = sum((row.accuracy or 0) > 0.5 for row in rows)
    told = f"{good} of {len(rows)}"
    return [
        Finding(claim="most do", ours=told, agrees=2 * good > len(rows)),
        Finding(claim="some do", ours=told, agrees=good > 0),
        Finding(claim="ours", ours=told, agrees=None, beyond=True),
        Finding(claim="nothing changes", ours="the same", agrees=None),
    ]


STUDY = Study(name="more", paper="", what="", tables=(TABLE,), draw=lambda tables, folder: [], findings=findings)


def section(accuracies: list[float]) -> str:
    rows = [SmallRow(run="a", seed=seed, accuracy=accuracy) for seed, accuracy in enumerate(accuracies)]
    return "\n".join(fresh_seeds([STUDY], {"more": Tables({TABLE: rows})}))


def test_a_claim_that_fresh_seeds_judge_otherwise_is_told_three_times() -> None:
    lines = section([0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 0.9]).splitlines()
    assert f"| claim | {' | '.join(COLUMNS)} |" in lines
    assert "| most do | **agrees**: 3 of 5 | **differs**: 1 of 3 | **differs**: 4 of 8 |" in lines
    assert lines[-1] == "The others that rest on more seeds, 1, are judged alike all three times."


def test_five_seeds_have_no_such_section() -> None:
    assert section([0.9] * 5) == ""


def test_a_studys_own_findings_have_none_either() -> None:
    own = replace(STUDY, findings=lambda tables: [f for f in findings(tables) if f.beyond])
    assert fresh_seeds([own], {"more": Tables({TABLE: [SmallRow(run="a", seed=7)]})}) == []


def test_rows_about_no_seed_are_kept_of_whichever_seeds() -> None:
    places: Table[object] = Table("places", object)
    tables = Tables({TABLE: [SmallRow(run="a", seed=1), SmallRow(run="a", seed=6)], places: [object()]})
    some = of_seeds(tables, lambda seed: seed > 5)
    assert [row.seed for row in some[TABLE]] == [6]
    assert len(some[places]) == 1


# ---------------------------------------------------------------------------------------------------------
# Critical numbers


def a_check(steps: int, seed: int, gap: float) -> CheckRow:
    about = CheckRow(
        run=f"e{steps}", seed=seed, data="sphere2", method="euler", steps=steps, lr=1e-4, iterations=10_000
    )
    return replace(about, own=0.9, checked=0.9 - gap, batch_own=0.9, batch_gap=gap)


def gaps(*by_steps: tuple[int, float, float], seeds: int = 6) -> list[CheckRow]:
    """Rows whose gaps have these means, and spread to either side from seed to seed."""
    return [a_check(n, seed, mean + (-1) ** seed * by) for n, mean, by in by_steps for seed in range(seeds)]


def of_batches(rows: list[CheckRow]) -> dict[int, dict[int, float]]:
    return {n: dict(own) for n, own in gaps_by_steps(rows, lambda row: row.batch_gap or 0.0).items()}


def test_the_mean_gap_falls_to_the_threshold_where_a_line_over_the_logarithm_does() -> None:
    found = crossing(of_batches(gaps((32, 0.3, 0.1), (64, 0.2, 0.1), (128, 0.0, 0.0))))
    assert found is not None
    assert isclose(log2(found), 6.5)
    assert crossing(of_batches(gaps((32, 0.3, 0.0), (64, 0.2, 0.0)))) is None


def test_seeds_that_are_alike_leave_no_doubt_and_others_do() -> None:
    sure = of_batches(gaps((32, 0.3, 0.0), (64, 0.15, 0.0), (128, 0.05, 0.0)))
    low, high = crossing_within(sure)
    assert isclose(low, high)
    low, high = crossing_within(of_batches(gaps((32, 0.3, 0.1), (64, 0.1, 0.1), (128, 0.01, 0.0))))
    assert low < 60 < 66 < high


def test_only_numbers_of_steps_with_the_most_seeds_are_interpolated() -> None:
    rows = [*gaps((16, 0.4, 0.0), seeds=5), *gaps((32, 0.3, 0.0), (64, 0.05, 0.0))]
    assert list(of_batches(rows)) == [32, 64]


@pytest.mark.parametrize(("bad", "share"), [(0, 0.0), (5, 1 / 6), (6, 1.0)])
def test_groups_of_five_are_all_counted(bad: int, share: float) -> None:
    """Of six seeds there are six groups; one good seed keeps all of its groups from failing."""
    assert isclose(failing_groups([0.11] * bad + [0.0] * (6 - bad)), share)


def test_more_than_five_seeds_say_where_the_critical_number_is() -> None:
    rows = gaps((32, 0.3, 0.05), (64, 0.1, 0.05), (128, 0.01, 0.0))
    _, where = critical_findings(Tables({CHECKS: rows}))
    assert where.beyond
    assert where.ours.startswith("on training batches it is 64 steps (95% ")
    assert "of all groups of 5 of these seeds fail with 64 steps; on the test set it is 64 steps" in where.ours
    assert len(critical_findings(Tables({CHECKS: [row for row in rows if row.seed < 5]}))) == 1


def test_the_page_that_is_committed_has_the_section() -> None:
    root = Path(__file__).parents[3]
    assert "\n## With more than five seeds\n" in (root / "docs/results.md").read_text()
