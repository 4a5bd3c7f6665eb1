"""The figure of an adapted run: what its panels show."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from tests.pictures import inches
from windermere.errors import StorageError
from windermere.paper.figures.adaptation_figure import draw_adaptation

pytestmark = pytest.mark.usefixtures("coarse_pictures")
CHECKED = (0.9, 0.75, 0.9, 0.65)
"""Against a training score of 0.9 at reviews after 50, 100, 150 and 200 iterations: the second and last are lower."""


def some_rows(seed: int = 0, name: str = "step", start: float = 0.125) -> list[dict[str, Any]]:
    """Four reviews that halve the precision twice, with a row for each 50 iterations and a test for each 100."""
    rows: list[dict[str, Any]] = []
    precision = start
    for n, checked in enumerate(CHECKED, start=1):
        after = precision / 2 if checked < 0.8 else precision
        decision = {"raised": None, "check_precision": precision / 5, "reason": "scripted", "iteration": 50 * n}
        rows.append({"seed": seed, "before": precision, "after": after, "trained": 0.9, "checked": checked, **decision})
        row = {"iteration": 50 * n, "seed": seed, "loss": 0.5, "accuracy": 0.9, "evaluations_forward": 100 * n * n}
        rows.append({**row, name: precision, **({"test_accuracy": 0.85 + seed / 50} if n % 2 == 0 else {})})
        precision = after
    return rows


def tolerances(seed: int = 0) -> list[dict[str, Any]]:
    return some_rows(seed, "tolerance", 1e-5)


def steady(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same as a steady controller's, with signals 0.01, 0.02, 0.03 and 0.04."""
    return [{**row, "signal": row["iteration"] / 5000} if "before" in row else row for row in rows]


def panels(figure: Figure) -> list[Axes]:
    return figure.axes


def stairs(axes: Axes) -> list[StepPatch]:
    return [patch for patch in axes.patches if isinstance(patch, StepPatch)]


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected)


def assert_stairs(patch: StepPatch, values: list[float], edges: list[float]) -> None:
    drawn: Any = patch.get_data()
    assert_close(drawn.values, values)
    assert_close(drawn.edges, edges)


def test_steps_are_three_panels_in_a_png(tmp_path: Path) -> None:
    figure = draw_adaptation([*some_rows(0), *some_rows(1)], tmp_path / "figure.png", check="rk4")
    assert inches(tmp_path / "figure.png") == (8, 8)
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure.png"]
    upper, gaps, lower = panels(figure)
    assert upper.get_title() == "test accuracy (light: on the training batch)"
    assert gaps.get_title() == "own score less rk4's on that batch: over 0.1 in 4 of 8"
    assert lower.get_title() == "Number of steps: 8 at the start, 16 at the end"


def test_the_number_of_steps_holds_from_one_review_to_the_next(tmp_path: Path) -> None:
    (own,) = stairs(panels(draw_adaptation(some_rows(), tmp_path / "figure.png"))[-1])
    assert_stairs(own, [8, 8, 16, 16, 32], [0, 50, 100, 150, 200, 200])


def test_what_the_last_review_chose_holds_to_the_last_test(tmp_path: Path) -> None:
    rows = [*some_rows(), {"iteration": 220, "seed": 0, "test_accuracy": 0.9, "evaluations_forward": 2000}]
    (patch,) = stairs(panels(figure := draw_adaptation(rows, tmp_path / "figure.png"))[-1])
    assert_stairs(patch, [8, 8, 16, 16, 32], [0, 50, 100, 150, 200, 220])
    assert panels(figure)[-1].get_title() == "Number of steps: 8 at the start, 32 at the end"


def test_every_review_is_drawn_also_those_after_one_that_failed(tmp_path: Path) -> None:
    upper, gaps, _ = panels(draw_adaptation(some_rows(), tmp_path / "figure.png"))
    reviews, threshold = gaps.lines
    assert_close(reviews.get_xydata(), [[50, 0.0], [100, 0.15], [150, 0.0], [200, 0.25]])
    assert_close(threshold.get_ydata(), [0.1, 0.1])
    (tests,) = (line for line in upper.lines if line.get_marker() == "o")
    assert_close(tests.get_xydata(), [[100, 0.85], [200, 0.85]])


def test_a_last_step_that_is_shortened_counts_as_a_step(tmp_path: Path) -> None:
    (own,) = stairs(panels(draw_adaptation(some_rows(start=0.4), tmp_path / "figure.png"))[-1])
    assert_stairs(own, [3, 3, 5, 5, 10], [0, 50, 100, 150, 200, 200])
    (own,) = stairs(panels(draw_adaptation(some_rows(start=1 / 49 * (1 - 1e-9)), tmp_path / "figure.png"))[-1])
    assert_stairs(own, [49, 49, 98, 98, 196], [0, 50, 100, 150, 200, 200])


@pytest.mark.parametrize(("threshold", "failed"), [(0.1, 2), (0.2, 1)])
def test_reviews_are_counted_whose_scores_are_further_apart_than_the_runs_threshold_either_way(
    tmp_path: Path, threshold: float, failed: int
) -> None:
    rows = some_rows()
    for row in rows:
        row |= {"trained": row["checked"], "checked": row["trained"]} if row.get("checked") == CHECKED[1] else {}
    gaps = panels(draw_adaptation(rows, tmp_path / "figure.png", threshold=threshold))[1]
    assert gaps.get_title() == f"own score less the check's on that batch: over {threshold:g} in {failed} of 4"


def test_a_steady_run_has_a_panel_with_its_signal_and_a_dashed_line_at_its_target(tmp_path: Path) -> None:
    figure = draw_adaptation(steady(some_rows()), tmp_path / "figure.png", target=0.025)
    assert inches(tmp_path / "figure.png") == (8, 10)
    *_, watched, precision = panels(figure)
    signal, target = watched.lines
    assert_close(signal.get_xydata(), [[50, 0.01], [100, 0.02], [150, 0.03], [200, 0.04]])
    assert_close(target.get_ydata(), [0.025, 0.025])
    assert (target.get_linestyle(), watched.get_yscale()) == ("--", "log")
    assert watched.get_title() == "Share of probability mass that a finer solver moves (smoothed; dashed: target 0.025)"
    assert precision.get_title() == "Number of steps: 8 at the start, 16 at the end"


def test_without_a_target_the_signal_is_drawn_alone_and_steady_tolerances_are_four_panels(tmp_path: Path) -> None:
    figure = draw_adaptation(steady(tolerances()), tmp_path / "figure.png")
    assert inches(tmp_path / "figure.png") == (8, 12)
    *_, watched, tolerance, evaluations = panels(figure)
    assert len(watched.lines) == 1
    assert watched.get_title() == "Share of probability mass that a finer solver moves (smoothed)"
    assert tolerance.get_ylabel() == "tolerance"
    assert evaluations.get_ylabel() == "evaluations"


def test_reviews_without_a_signal_are_drawn_without_its_panel(tmp_path: Path) -> None:
    rows = [{**row, "signal": None} if "before" in row else row for row in some_rows()]
    assert len(panels(draw_adaptation(rows, tmp_path / "figure.png"))) == 3
    rows = steady(some_rows())
    rows[0]["signal"] = float("nan")
    signal = panels(draw_adaptation(rows, tmp_path / "figure.png"))[2].lines[0]
    assert_close(signal.get_xdata(), [100, 150, 200])


def test_tolerances_have_a_fourth_panel_with_evaluations_per_iteration(tmp_path: Path) -> None:
    figure = draw_adaptation(tolerances(), tmp_path / "figure.png")
    assert inches(tmp_path / "figure.png") == (8, 10)
    *_, tolerance, evaluations = panels(figure)
    assert tolerance.get_yscale() == "log"
    assert tolerance.get_title() == "Tolerance: 1.0e-05 at the start, 5.0e-06 at the end"
    assert_stairs(stairs(tolerance)[0], [1e-5, 1e-5, 5e-6, 5e-6, 2.5e-6], [0, 50, 100, 150, 200, 200])
    assert_stairs(stairs(evaluations)[0], [2, 6, 10, 14], [0, 50, 100, 150, 200])
    assert evaluations.get_title() == "Forward evaluations per iteration: 2 at the start, 14 at the end"


def test_a_seed_has_one_colour_in_all_panels(tmp_path: Path) -> None:
    _, gaps, *others = panels(draw_adaptation([*tolerances(3), *tolerances(7)], tmp_path / "figure.png"))
    expected = [to_rgba(line.get_color()) for line in gaps.lines[:2]]
    assert len(set(expected)) == 2
    for axes in others:
        assert [patch.get_edgecolor() for patch in stairs(axes)] == expected


def test_seeds_are_told_apart_without_colours_by_their_signs(tmp_path: Path) -> None:
    rows = [row for seed in range(4) for row in steady(tolerances(seed))]
    figure = draw_adaptation(rows, tmp_path / "figure.png", target=0.02)
    (legend,) = figure.legends
    expected = [line.get_marker() for line in legend.get_lines()]
    assert len(set(expected)) == 4
    for axes in panels(figure):
        drawn = [line.get_marker() for line in axes.lines if line.get_marker() != "None"]
        assert drawn == expected


def test_signs_of_seeds_with_the_same_steps_do_not_hide_each_other(tmp_path: Path) -> None:
    scores = {"trained": 0.9, "checked": 0.9, "before": 0.1, "after": 0.1}
    rows = [{"seed": seed, "iteration": 50 * n, **scores} for n in range(1, 61) for seed in range(7)]
    lines = panels(draw_adaptation(rows, tmp_path / "figure.png"))[-1].lines
    places = [place for line in lines for place in np.asarray(line.get_xdata()).tolist()]
    assert len(places) == len(set(places)) == 7 * 6


def test_the_same_rows_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    draw_adaptation(some_rows(), tmp_path / "one.png")
    with matplotlib.rc_context({"font.size": 20.0, "text.color": "white", "savefig.bbox": "tight"}):
        draw_adaptation(some_rows(), tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    draw_adaptation(some_rows(start=0.25), tmp_path / "three.png")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "three.png").read_bytes()


@pytest.mark.parametrize("rows", [some_rows(), tolerances()], ids=["steps", "tolerances"])
def test_reviews_that_agree_and_a_run_without_tests_can_be_drawn(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row.pop("test_accuracy", None)
        row.pop("evaluations_forward", None)
        row |= {"checked": 0.9, "after": row["before"]} if "before" in row else {"accuracy": None}
    upper, gaps, *_ = panels(draw_adaptation(rows, tmp_path / "figure.png"))
    assert upper.get_title() == "accuracy on the training batch"
    assert gaps.get_title().endswith("over 0.1 in 0 of 4")


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="its folder does not exist"):
        draw_adaptation(some_rows(), tmp_path / "nowhere" / "figure.png")
