"""Adapted runs side by side, and accuracy against cost: what is drawn."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from windermere.paper.figures.adaptation_columns import AdaptedRun, draw_adapted_runs
from windermere.paper.figures.adaptation_figure import members_of
from windermere.paper.figures.cost_figure import CostPanel, GridPoint, PrintedValue, draw_costs

pytestmark = pytest.mark.usefixtures("coarse_pictures")


def some_rows(seed: int, name: str = "step", accuracy: float = 0.5) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for n in range(1, 5):
        scores = {"trained": accuracy, "checked": accuracy - 0.2 * (n == 2), "signal": None}
        rows.append({"seed": seed, "iteration": 50 * n, "before": 0.1 / n, "after": 0.1 / (n + 1), **scores})
        row = {"seed": seed, "iteration": 50 * n, "accuracy": accuracy, "evaluations_forward": 100 * n}
        rows.append({**row, name: 0.1 / n, "test_accuracy": accuracy})
    return rows


def a_run(*seeds: int, name: str = "step") -> AdaptedRun:
    at_the_end = {solver: dict.fromkeys(seeds, 0.5) for solver in ("own h", "rk4 h/2")}
    members, tolerances = members_of([row for seed in seeds for row in some_rows(seed, name)]), name == "tolerance"
    return AdaptedRun(
        title=f"Seeds {seeds}", detail="as they are", members=members, tolerances=tolerances, at_the_end=at_the_end
    )


def colours(figure: Figure, column: int, columns: int) -> dict[float, str]:
    """Of the test accuracies at the end, by how far aside they are drawn."""
    lines = figure.axes[-columns + column].lines[1:]
    return {round(float(line.get_xdata()[0]), 6): str(line.get_color()) for line in lines}  # type: ignore[index,arg-type]


def test_a_seed_looks_the_same_in_all_columns_even_where_others_are_left_out(tmp_path: Path) -> None:
    figure = draw_adapted_runs([a_run(0, 1, 2), a_run(1, 2)], tmp_path / "figure.png", title="some")
    both, fewer = colours(figure, 0, 2), colours(figure, 1, 2)
    assert len(both) == 3
    assert fewer.items() <= both.items()
    (legend,) = figure.legends
    seeds = {
        text.get_text(): line.get_color() for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert [seeds[f"seed {k}"] for k in range(3)] == [both[place] for place in sorted(both)]


@pytest.mark.parametrize(("name", "rows"), [("step", 4), ("tolerance", 5)])
def test_panels_of_a_row_share_their_scale_and_tolerances_have_one_more(tmp_path: Path, name: str, rows: int) -> None:
    figure = draw_adapted_runs([a_run(0, name=name), a_run(1, name=name)], tmp_path / "figure.png", title="some")
    assert len(figure.axes) == 2 * rows
    limits = [axes.get_ylim() for axes in figure.axes]
    assert limits[::2] == limits[1::2]
    assert limits[0][1] < 0.6  # not up to 1, where nothing is


def test_the_same_drawing_gives_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(2)]
    for path in paths:
        draw_adapted_runs([a_run(0, 1)], path, title="some")
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first[:5] == b"\x89PNG\r"


PRINTED = PrintedValue(costs=(65, 129), accuracy=0.987, spread=0.01)


def a_panel(**changes: Any) -> CostPanel:
    grid = [GridPoint(cost=cost, accuracy=[0.9, 0.8], checked=[0.5, 0.7]) for cost in (64, 128)]
    given: dict[str, Any] = {
        "title": "some",
        "grid": grid,
        "critical": (64, 128),
        "adapted": [(60.0, 0.9), (80.0, 1.0)],
    }
    return CostPanel(**{**given, "printed_grid": PRINTED, "printed_adapted": PRINTED, **changes})


def test_means_of_a_grid_are_drawn_at_its_costs(tmp_path: Path) -> None:
    figure = draw_costs([a_panel()], tmp_path / "costs.png")
    drawn = [line.get_xydata().tolist() for line in figure.axes[0].lines if len(line.get_xdata()) == 2]  # type: ignore[arg-type,union-attr]
    assert [[64, pytest.approx(0.6)], [128, pytest.approx(0.6)]] in drawn
    assert [[64, pytest.approx(0.85)], [128, pytest.approx(0.85)]] in drawn


def test_what_is_not_there_yet_is_left_out(tmp_path: Path) -> None:
    draw_costs([a_panel(grid=[], critical=None), a_panel(adapted=[])], tmp_path / "costs.png")
    assert (tmp_path / "costs.png").exists()
