"""The figure of an adapted run: what its panels show."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from tests.pictures import size
from windermere.errors import StorageError
from windermere.paper.figures.adaptation_figure import draw_adaptation

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


def test_steps_are_two_panels_in_a_png(tmp_path: Path) -> None:
    figure = draw_adaptation([*some_rows(0), *some_rows(1)], tmp_path / "figure.png")
    assert size(tmp_path / "figure.png") == (1200, 975)
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure.png"]
    upper, lower = panels(figure)
    assert upper.get_title() == "In 4 of 8 reviews, a finer solver scored lower by more than 0.1"
    assert lower.get_title() == "Number of steps: 8 at the start, 16 at the end"


def test_the_number_of_steps_holds_from_one_review_to_the_next(tmp_path: Path) -> None:
    (own,) = stairs(panels(draw_adaptation(some_rows(), tmp_path / "figure.png"))[1])
    assert_stairs(own, [8, 8, 16, 16, 32], [0, 50, 100, 150, 200, 200])


def test_what_the_last_review_chose_holds_to_the_last_test(tmp_path: Path) -> None:
    rows = [*some_rows(), {"iteration": 220, "seed": 0, "test_accuracy": 0.9, "evaluations_forward": 2000}]
    (patch,) = stairs(panels(figure := draw_adaptation(rows, tmp_path / "figure.png"))[1])
    assert_stairs(patch, [8, 8, 16, 16, 32], [0, 50, 100, 150, 200, 220])
    assert panels(figure)[1].get_title() == "Number of steps: 8 at the start, 32 at the end"


def test_marks_lie_at_lower_scores_of_the_check_and_hang_on_the_training_score(tmp_path: Path) -> None:
    upper = panels(draw_adaptation(some_rows(), tmp_path / "figure.png"))[0]
    (marks,) = (line for line in upper.lines if line.get_marker() == "v")
    assert_close(marks.get_xydata(), [[100, 0.75], [200, 0.65]])
    (strings,) = (part for part in upper.collections if isinstance(part, LineCollection))
    assert_close(strings.get_segments(), [[[100, 0.75], [100, 0.9]], [[200, 0.65], [200, 0.9]]])
    (tests,) = (line for line in upper.lines if line.get_marker() == "o")
    assert_close(tests.get_xydata(), [[100, 0.85], [200, 0.85]])


@pytest.mark.parametrize(("check", "mark"), [("midpoint", "x"), ("rk4", "^"), ("heun", "v")])
def test_the_finer_solver_has_the_papers_mark(tmp_path: Path, check: str, mark: str) -> None:
    upper = panels(draw_adaptation(some_rows(), tmp_path / "figure.png", check=check))[0]
    (marks,) = (line for line in upper.lines if line.get_marker() == mark)
    assert_close(marks.get_xdata(), [100, 200])
    legend = upper.get_legend()
    assert legend is not None
    assert legend.get_texts()[-1].get_text() == f"{check} on that batch, if over 0.1 lower"


def test_a_last_step_that_is_shortened_counts_as_a_step(tmp_path: Path) -> None:
    (own,) = stairs(panels(draw_adaptation(some_rows(start=0.4), tmp_path / "figure.png"))[1])
    assert_stairs(own, [3, 3, 5, 5, 10], [0, 50, 100, 150, 200, 200])
    (own,) = stairs(panels(draw_adaptation(some_rows(start=1 / 49 * (1 - 1e-9)), tmp_path / "figure.png"))[1])
    assert_stairs(own, [49, 49, 98, 98, 196], [0, 50, 100, 150, 200, 200])


@pytest.mark.parametrize(("threshold", "marked"), [(0.1, [100, 200]), (0.2, [200])])
def test_marks_lie_where_the_check_scores_lower_by_more_than_the_runs_threshold(
    tmp_path: Path, threshold: float, marked: list[int]
) -> None:
    upper = panels(draw_adaptation(some_rows(), tmp_path / "figure.png", threshold=threshold))[0]
    (marks,) = (line for line in upper.lines if line.get_marker() == "v")
    assert_close(marks.get_xdata(), marked)
    assert upper.get_title() == f"In {len(marked)} of 4 reviews, a finer solver scored lower by more than {threshold:g}"


def test_a_steady_run_has_a_panel_with_its_signal_and_a_dashed_line_at_its_target(tmp_path: Path) -> None:
    figure = draw_adaptation(steady(some_rows()), tmp_path / "figure.png", target=0.025)
    assert size(tmp_path / "figure.png") == (1200, 1275)
    _, watched, precision = panels(figure)
    signal, target = watched.lines
    assert_close(signal.get_xydata(), [[50, 0.01], [100, 0.02], [150, 0.03], [200, 0.04]])
    assert_close(target.get_ydata(), [0.025, 0.025])
    assert (target.get_linestyle(), watched.get_yscale()) == ("--", "log")
    assert watched.get_title() == "Share of probability mass that a finer solver moves (smoothed; dashed: target 0.025)"
    assert precision.get_title() == "Number of steps: 8 at the start, 16 at the end"


def test_without_a_target_the_signal_is_drawn_alone_and_steady_tolerances_are_four_panels(tmp_path: Path) -> None:
    figure = draw_adaptation(steady(tolerances()), tmp_path / "figure.png")
    assert size(tmp_path / "figure.png") == (1200, 1575)
    _, watched, tolerance, evaluations = panels(figure)
    assert len(watched.lines) == 1
    assert watched.get_title() == "Share of probability mass that a finer solver moves (smoothed)"
    assert tolerance.get_ylabel() == "tolerance"
    assert evaluations.get_ylabel() == "evaluations"


def test_reviews_without_a_signal_are_drawn_without_its_panel(tmp_path: Path) -> None:
    rows = [{**row, "signal": None} if "before" in row else row for row in some_rows()]
    assert len(panels(draw_adaptation(rows, tmp_path / "figure.png"))) == 2
    rows = steady(some_rows())
    rows[0]["signal"] = float("nan")
    signal = panels(draw_adaptation(rows, tmp_path / "figure.png"))[1].lines[0]
    assert_close(signal.get_xdata(), [100, 150, 200])


def test_marks_of_several_seeds_at_one_review_do_not_hide_each_other(tmp_path: Path) -> None:
    upper = panels(draw_adaptation([*some_rows(0), *some_rows(1), *some_rows(2)], tmp_path / "figure.png"))[0]
    first = [np.asarray(line.get_xdata())[0] for line in upper.lines if line.get_marker() == "v"]
    assert len(set(first)) == 3
    assert first == pytest.approx([100.0] * 3, abs=10)


def test_tolerances_have_a_third_panel_with_evaluations_per_iteration(tmp_path: Path) -> None:
    figure = draw_adaptation(tolerances(), tmp_path / "figure.png")
    assert size(tmp_path / "figure.png") == (1200, 1275)
    _, tolerance, evaluations = panels(figure)
    assert tolerance.get_yscale() == "log"
    assert tolerance.get_title() == "Tolerance: 1.0e-05 at the start, 5.0e-06 at the end"
    assert_stairs(stairs(tolerance)[0], [1e-5, 1e-5, 5e-6, 5e-6, 2.5e-6], [0, 50, 100, 150, 200, 200])
    assert_stairs(stairs(evaluations)[0], [2, 6, 10, 14], [0, 50, 100, 150, 200])
    assert evaluations.get_title() == "Forward evaluations per iteration: 2 at the start, 14 at the end"


def test_a_seed_has_one_colour_in_all_panels(tmp_path: Path) -> None:
    upper, *others = panels(draw_adaptation([*tolerances(3), *tolerances(7)], tmp_path / "figure.png"))
    expected = [to_rgba(line.get_color()) for line in upper.lines if line.get_marker() == "v"]
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
        drawn = [line.get_marker() for line in axes.lines if line.get_marker() not in ("v", "None")]
        assert drawn == expected


def test_signs_of_seeds_with_the_same_steps_do_not_hide_each_other(tmp_path: Path) -> None:
    scores = {"trained": 0.9, "checked": 0.9, "before": 0.1, "after": 0.1}
    rows = [{"seed": seed, "iteration": 50 * n, **scores} for n in range(1, 61) for seed in range(7)]
    lines = panels(draw_adaptation(rows, tmp_path / "figure.png"))[1].lines
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
    upper = panels(draw_adaptation(rows, tmp_path / "figure.png"))[0]
    assert upper.get_title() == "In none of 4 reviews did a finer solver score lower by more than 0.1"


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="its folder does not exist"):
        draw_adaptation(some_rows(), tmp_path / "nowhere" / "figure.png")
