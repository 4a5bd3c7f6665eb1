"""Figures of grids: what is drawn where, and what the title says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from windermere.paper.figures.grid_figure import GREY, critical_sentence, draw_grid, draw_grid_seeds, shared_legend
from windermere.paper.figures.grid_layout import GridFigure, GridLayout, GridTest, precision_label

pytestmark = pytest.mark.usefixtures("coarse_pictures")

Draw = Callable[[GridFigure, Path], None]
both = pytest.mark.parametrize("draw", [draw_grid, draw_grid_seeds])
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)


def model_under(trained: float, seed: int, methods: tuple[str, ...], factors: tuple[float, ...]) -> list[GridTest]:
    """One model's, with the first method as that of training."""
    return [
        GridTest(
            trained=trained,
            tested=trained * factor,
            method=method,
            seed=seed,
            accuracy=0.95 - 0.4 * trained * abs(1 - factor) - 0.01 * seed,
            own=method == methods[0] and factor == 1,
            counts=True,
        )
        for method in methods
        for factor in factors
    ]


def a_grid(precisions: int = 4, seeds: int = 2, methods: tuple[str, ...] = ("euler", "midpoint", "rk4")) -> GridFigure:
    tests = [
        t for n in range(precisions) for seed in range(seeds) for t in model_under(2.0**-n, seed, methods, FACTORS)
    ]
    return GridFigure(name="Sphere2, trained with euler", precision_name="step", tests=tests, fails=0.5, passes=0.25)


def tolerances() -> GridFigure:
    methods = ("fehlberg21", "dopri54")
    tests = [
        t for n in range(1, 4) for seed in range(2) for t in model_under(10.0**-n, seed, methods, (0.1, 1.0, 10.0))
    ]
    return GridFigure(name="trained with fehlberg21", precision_name="tolerance", tests=tests, fails=None, passes=0.1)


def with_failures() -> GridFigure:
    """A seed diverged, one did not train, and some solves of a third failed."""
    figure = a_grid(seeds=4)
    tests = [test for test in figure.tests if test.seed != 0 or test.own]
    changes: dict[int, Callable[[GridTest], GridTest]] = {
        0: lambda test: replace(test, accuracy=None, counts=False),
        1: lambda test: replace(test, accuracy=0.5, counts=False),
        2: lambda test: replace(test, accuracy=None if test.method == "rk4" else test.accuracy),
        3: lambda test: test,
    }
    return replace(figure, tests=[changes[test.seed](test) for test in tests])


@both
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_drawing_gives_the_same_bytes(tmp_path: Path, draw: Draw, suffix: str) -> None:
    paths = [tmp_path / f"{k}.{suffix}" for k in range(2)]
    for path in paths:
        draw(with_failures(), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first[:5] == {"png": b"\x89PNG\r", "svg": b"<?xml"}[suffix]


def all_without_accuracy() -> GridFigure:
    return replace(a_grid(), tests=[replace(test, accuracy=None) for test in a_grid().tests])


@both
@pytest.mark.parametrize(
    "figure",
    [
        a_grid(seeds=1),
        a_grid(precisions=1),
        a_grid(precisions=1, seeds=1, methods=("rk4",)),
        a_grid(methods=("midpoint", "heun")),
        tolerances(),
        all_without_accuracy(),
        replace(a_grid(), tests=[test for test in a_grid().tests if test.own][:1]),
    ],
    ids=["one seed", "one precision", "one model", "heun", "tolerances", "no accuracy", "one test"],
)
def test_small_and_odd_grids_are_drawn(tmp_path: Path, draw: Draw, figure: GridFigure) -> None:
    draw(figure, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").exists()


@pytest.mark.parametrize(
    ("name", "fails", "passes", "sentence"),
    [
        ("step", 1 / 32, 1 / 64, "finer solvers within 0.1 in the mean from 64 steps on, and not at 32"),
        ("step", None, 1.0, "finer solvers within 0.1 in the mean everywhere, from 1 step on"),
        ("step", 1 / 256, None, "finer solvers not within 0.1 in the mean, not even at 256 steps"),
        ("step", None, None, "whether finer solvers come within 0.1 is not known"),
        ("tolerance", 1e-3, 0.1 * 1e-3, "finer solvers within 0.1 in the mean from tolerance 1e-4 on, and not at 1e-3"),
        ("tolerance", None, 0.1, "finer solvers within 0.1 in the mean from tolerance 1e-1 on"),
        ("tolerance", 1e-6, None, "finer solvers not within 0.1 in the mean, not even at tolerance 1e-6"),
    ],
)
def test_the_legend_says_where_finer_solvers_come_within_the_threshold(
    name: str, fails: float | None, passes: float | None, sentence: str
) -> None:
    figure = replace(a_grid(), precision_name=name, fails=fails, passes=passes)
    assert critical_sentence(figure) == sentence


def test_tolerances_are_written_without_the_digits_that_products_leave() -> None:
    assert [precision_label(value, steps=False) for value in (0.1 * 0.1, 0.1, 2.5e-7, 10.0)] == [
        "1e-2",
        "1e-1",
        "2.5e-7",
        "10",
    ]
    assert [precision_label(value, steps=True) for value in (0.5, 2 / 3)] == ["2", "1.5"]


@pytest.mark.parametrize("figure", [a_grid(9), a_grid(8, methods=("rk4",)), tolerances()])
def test_every_point_stands_at_the_precision_of_its_test(
    figure: GridFigure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.grid_figure.save", lambda figure, path: kept.append(figure))
    draw_grid(figure, tmp_path / "grid.png")
    grid = GridLayout(figure)
    drawn = {float(x) for line in kept[0].axes[0].lines for x in np.asarray(line.get_xdata(), float)}
    assert drawn == {grid.place(test.tested) for test in figure.tests}


def test_a_precision_is_dark_with_its_own_solver_and_light_with_others_and_no_two_share_a_colour() -> None:
    def light(colour: str) -> float:
        return float(np.dot((0.21, 0.72, 0.07), to_rgb(colour)))

    grid = GridLayout(a_grid(9))
    assert len({*grid.dark.values(), *grid.light.values(), GREY}) == 19
    assert all(light(grid.dark[p]) + 0.2 < light(grid.light[p]) < 0.9 for p in grid.precisions)


def test_means_are_of_the_seeds_that_trained_and_others_are_grey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.grid_figure.save", lambda figure, path: kept.append(figure))
    figure = with_failures()
    draw_grid(figure, tmp_path / "grid.png")
    own: dict[str, list[float]] = {}
    for line in kept[0].axes[0].lines:
        if np.array_equal(line.get_xdata(), [1.0]) and to_hex(line.get_color()) in (GREY, GridLayout(figure).dark[0.5]):
            own.setdefault(to_hex(line.get_color()), []).extend(np.asarray(line.get_ydata(), dtype=float))
    trained = [test.accuracy for test in figure.tests if test.own and test.trained == 0.5 and test.counts]
    assert own == {
        GridLayout(figure).dark[0.5]: [pytest.approx(np.mean(np.array(trained, float)))],
        GREY: [0.0, 0.5],
    }


def test_seeds_that_did_not_train_are_told_apart_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.grid_figure.save", lambda figure, path: kept.append(figure))
    draw_grid_seeds(with_failures(), tmp_path / "seeds.png")
    axes = kept[0].axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["seed 0", "(seed 1)", "seed 2", "seed 3"]
    own = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() > 7]
    colours = {round(float(np.asarray(line.get_xdata())[0])): to_hex(line.get_color()) for line in own}
    dark = GridLayout(with_failures()).dark[0.5]
    assert colours == {1: GREY, 2: dark, 3: dark}


def test_a_panel_has_no_places_for_seeds_that_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.grid_figure.save", lambda figure, path: kept.append(figure))
    figure = a_grid(seeds=3)
    fewer = [test for test in figure.tests if test.trained != 0.5 or test.seed == 2]
    draw_grid_seeds(replace(figure, tests=fewer), tmp_path / "seeds.png")
    labels = [[label.get_text() for label in axes.get_xticklabels()] for axes in kept[0].axes]
    assert labels == [["seed 0", "seed 1", "seed 2"], ["seed 2"], *[["seed 0", "seed 1", "seed 2"]] * 2]
    assert [axes.get_title()[:3] for axes in kept[0].axes] == ["(a)", "(b)", "(c)", "(d)"]


@pytest.mark.parametrize(("seeds", "first", "axis"), [(6, "seed 0", ""), (7, "seed 0", ""), (11, "0", "seed")])
def test_seeds_are_named_once_however_many_there_are(
    seeds: int, first: str, axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.grid_figure.save", lambda figure, path: kept.append(figure))
    draw_grid_seeds(a_grid(precisions=1, seeds=seeds), tmp_path / "seeds.png")
    (axes,) = kept[0].axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert (labels[0], labels[-1].removeprefix("seed "), axes.get_xlabel()) == (first, f"{seeds - 1}", axis)


@both
def test_each_mark_is_explained_only_where_it_is_drawn(tmp_path: Path, draw: Draw) -> None:
    labels = ("did not train", "training diverged", "solve of a test failed")
    for figure, there in ((with_failures(), True), (a_grid(), False)):
        draw(figure, tmp_path / "grid.svg")
        text = (tmp_path / "grid.svg").read_text()  # whose letters are shapes, with what they say as a comment
        assert all((label in text) == there for label in labels)


@both
def test_a_drop_that_does_not_count_fills_less_than_half_of_the_axis(
    tmp_path: Path, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.grid_figure.save", lambda figure, path: drawn.append(figure))
    tests = [replace(test, accuracy=0.96 if test.own else 0.87) for test in a_grid().tests]
    draw(replace(a_grid(), tests=tests), tmp_path / "grid.png")
    low, high = drawn[0].axes[0].get_ylim()
    assert low < 0.87
    assert high > 0.96
    assert high - low > 2 * (0.96 - 0.87)


@both
def test_no_setting_of_the_user_is_changed(tmp_path: Path, draw: Draw) -> None:
    before = dict(mpl.rcParams)
    draw(a_grid(), tmp_path / "grid.png")
    assert dict(mpl.rcParams) == before


def test_a_legend_of_several_panels_has_each_mark_once_and_names_no_method_of_training() -> None:
    euler, rk4 = (GridLayout(a_grid(methods=methods)) for methods in (("euler", "rk4"), ("rk4",)))
    labels = [sign.get_label() for sign in shared_legend([euler, rk4], means=False)]
    assert labels == ["solver of training", "its method, other number of steps", "tested with rk4"]
