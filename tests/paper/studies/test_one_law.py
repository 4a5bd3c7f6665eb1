"""One number that tells tied models on three spheres: findings from rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from windermere.paper.studies import chances
from windermere.paper.studies.one_law import LAW, ONE_LAW, SPHERE2, LawRow, bracket, findings, left_out, runs
from windermere.paper.studies.recipe_measures import RecipeRow
from windermere.paper.studies.rows import Tables
from windermere.paper.studies.study import SEEDS


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are not what is tested here."""
    monkeypatch.setattr(chances, "RESAMPLES", 20)


NUMBERS = {64: 0.02, 32: 0.05, 16: 0.2, 8: 0.5}
"""The leading error term with so many steps."""


def a_grid(data: str, ties: float) -> Iterator[LawRow]:
    """Models that are tied where the number is above a limit, and lose half a point then."""
    for steps, number in NUMBERS.items():
        for seed in range(5):
            value, tied = number * (1 + seed / 100), number > ties
            yield LawRow(
                run=f"{data}-euler-{steps}",
                recipe=f"constant-euler-{steps}",
                seed=seed,
                data=data,
                method="euler",
                steps=float(steps),
                iterations=10_000,
                outcome="TIED" if tied else "FLOW",
                accuracy=0.99,
                flow_accuracy=0.49 if tied else 0.98,
                step_bound=value,
                leading_term=value,
                safe_share=1 - value,
            )


def of_sphere2() -> list[RecipeRow]:
    return [RecipeRow(**{k: v for k, v in vars(row).items() if k != "data"}) for row in a_grid("sphere2", 0.1)]


def told(*rows: LawRow) -> dict[tuple[str, str], str]:
    found = findings(Tables({LAW: rows, SPHERE2: of_sphere2()}))
    assert all(finding.beyond for finding in found)
    return {(finding.claim.split(" ", 1)[0], finding.case): finding.ours for finding in found}


def test_one_threshold_that_holds_everywhere_is_right_everywhere() -> None:
    by = told(*a_grid("sphere3", 0.1), *a_grid("sphere10", 0.1))
    assert by["A", "leading_term"].startswith("above 0.1")
    assert by["A", "leading_term"].endswith("Sphere3: right on 20 of 20; Sphere10: right on 20 of 20")
    assert "Euler's on all (60) 1.00 (1.00 to 1.00)" in by["Across", "leading_term"]
    assert by["The", "Sphere10"] == (
        "found 16-32; by h L 16-32; by leading error term / field 16-32; by margins below the error (share) 16-32"
    )


def test_models_that_turn_elsewhere_are_told_wrongly_there() -> None:
    by = told(*a_grid("sphere3", 0.04), *a_grid("sphere10", 0.1))
    assert "Sphere3: right on 15 of 20" in by["A", "leading_term"]
    assert by["The", "Sphere3"].startswith("found 32-64; by h L 16-32")


def test_what_did_not_train_counts_nowhere_and_is_named() -> None:
    lost = [LawRow(**{**vars(row), "accuracy": 0.7}) for row in a_grid("sphere10", 0.1) if row.steps == 64]
    by = told(*a_grid("sphere3", 0.1), *lost)
    assert "Sphere10" not in by["A", "leading_term"]
    assert left_out(Tables({LAW: lost})).startswith("Did not train, and left out: sphere10-euler-64 seed 0, ")


def test_a_grid_that_lacks_an_end_has_half_a_bracket() -> None:
    rows = of_sphere2()
    assert bracket(rows, lambda own: True) == "above 64"
    assert bracket(rows, lambda own: False) == "at most 8"
    assert bracket([], lambda own: True) == "unknown"


def test_its_runs_have_the_papers_settings_and_five_seeds() -> None:
    for config in runs(False).values():
        assert (config.iterations, config.lr, config.batch_size, config.seeds) == (10_000, 1e-4, 128, SEEDS)
    assert runs(True).keys() <= runs(False).keys()


def test_its_figure_is_drawn(tmp_path: Path) -> None:
    (path,) = ONE_LAW.draw(Tables({LAW: list(a_grid("sphere3", 0.1))}), tmp_path)
    assert path.stat().st_size > 0
