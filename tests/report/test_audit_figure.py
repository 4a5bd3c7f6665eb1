"""The audit's figure is a PNG of a known size, the same for the same data, whatever failed and whatever is exact."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.pictures import size
from windermere.errors import StorageError, UsageError
from windermere.report.audit_data import OUTCOMES, AuditFigure, Plane, SolverPoint, fraction
from windermere.report.audit_figure import draw_audit
from windermere.report.audit_solvers import sweep_legend
from windermere.report.palette import Array

WIDTH, SOLVERS, PLANES, HEAD, LINE = 1650, 735, 915, 93, 33
"""Pixels: the figure's width, and the heights of its rows, of the outcome and of a line of the sentence."""
SENTENCE = "TIED to its solver: accuracy 1.000 with euler, 0.629 under the flow."
STEPS = (1 / 4, 1 / 16, 1 / 32)
NAN = float("nan")


def a_point(method: str = "euler", precision: float = 1 / 8, **changes: Any) -> SolverPoint:
    stages = {"euler": 1, "midpoint": 2, "rk4": 4}.get(method, 3)
    values: dict[str, Any] = {
        "method": method,
        "precision": precision,
        "evaluations": round(stages / precision),
        "metric": 0.9,
        "error": precision**2 / stages,
        "counts": precision <= 1 / 8,
        "own": False,
    }
    return SolverPoint(**{**values, **changes})


def some_points() -> list[SolverPoint]:
    others = [a_point(method, step) for method in ("euler", "midpoint", "rk4") for step in STEPS]
    return [a_point(metric=1.0, own=True), *others]


def a_plane(classes: int = 2, scale: float = 1.0) -> Plane:
    """Points that go straight outwards, by their angles' classes; under the flow `scale` times as far."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 100)
    start = rng.uniform(0.2, 1.0, (100, 1)) * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    own = np.stack([start * (1 + t) for t in np.linspace(0, 1, 9)])
    flow = np.stack([start * (1 + t * scale) for t in np.linspace(0, 1, 33)])

    def decide(points: Array) -> Array:
        turns = np.mod(np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi), 1.0)
        decided: Array = np.minimum((turns * classes).astype(int), classes - 1)
        return decided

    return Plane(own=own, flow=flow, labels=decide(start), decide=decide)


def a_figure(**changes: Any) -> AuditFigure:
    values: dict[str, Any] = {
        "outcome": "TIED",
        "sentence": SENTENCE,
        "metric_name": "accuracy",
        "precision_name": "step",
        "points": some_points(),
        "reference_metric": 0.63,
        "reference_error": 1e-5,
        "threshold": 0.1,
        "order": 1.97,
        "plane": None,
    }
    return AuditFigure(**{**values, **changes})


def drawn(figure: AuditFigure) -> Figure:
    """The figure, after its texts and axes have found their places."""
    whole = draw_audit(figure)
    whole.savefig(BytesIO(), format="png")
    return whole


def texts(part: Figure | Axes) -> list[str]:
    return [text.get_text() for text in part.findobj(Text) if isinstance(text, Text) and text.get_text()]


def curves(axes: Axes) -> list[tuple[Array, Array]]:
    """x and y of each line."""
    return [
        (np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)) for line in axes.lines
    ]


def panels(whole: Figure) -> list[Axes]:
    return [axes for row in whole.subfigs for axes in row.axes]


def test_without_a_plane_the_figure_is_one_row(tmp_path: Path) -> None:
    whole = draw_audit(a_figure(), tmp_path / "audit.png")
    assert size(tmp_path / "audit.png") == (WIDTH, HEAD + LINE + SOLVERS)
    assert len(panels(whole)) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["audit.png"]


@pytest.mark.parametrize("classes", [1, 2, 10])
def test_with_a_plane_it_is_two_rows_for_any_number_of_classes(tmp_path: Path, classes: int) -> None:
    whole = draw_audit(a_figure(plane=a_plane(classes)), tmp_path / "audit.png")
    assert size(tmp_path / "audit.png") == (WIDTH, HEAD + LINE + SOLVERS + PLANES)
    assert len(panels(whole)) == 4
    assert {f"class {n}" for n in range(classes)} <= set(texts(whole))


def test_a_plane_without_classes_names_none_and_shades_nothing() -> None:
    whole = drawn(a_figure(plane=replace(a_plane(), labels=None, decide=None)))
    assert {"start", "end"} <= set(texts(whole))
    assert not [text for text in texts(whole) if "class" in text]


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(draw_audit(a_figure()), Figure)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("coarse_pictures")
def test_the_same_data_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    draw_audit(a_figure(plane=a_plane()), tmp_path / "one.png")
    theirs: dict[Any, Any] = {"savefig.bbox": "tight", "font.size": 20.0, "axes.grid": True}
    with matplotlib.rc_context(theirs):
        draw_audit(a_figure(plane=a_plane()), tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_a_longer_sentence_gets_more_lines_and_not_the_panels_room(tmp_path: Path) -> None:
    draw_audit(a_figure(sentence="A long sentence, with $signs_{of} \\money$. " * 10), tmp_path / "audit.png")
    assert size(tmp_path / "audit.png") == (WIDTH, HEAD + 4 * LINE + SOLVERS)


@pytest.mark.parametrize("outcome", ["FLOW", "TIED", "COARSE", "MOVED", "UNDECIDED"])
def test_the_outcome_stands_above_in_its_colour_and_once(outcome: str) -> None:
    for sentence in (f"{outcome}: and why.", "and why."):
        head = draw_audit(a_figure(outcome=outcome, sentence=sentence)).subfigs[0]
        assert [text.get_text() for text in head.texts] == [outcome, "and why."]
        assert {text.get_color() for text in head.texts} == {OUTCOMES[outcome]}


def test_failed_solvers_are_left_out() -> None:
    failed = [a_point("tsit54", metric=NAN, error=NAN, evaluations=0, counts=False)]
    with_it, without = (draw_audit(a_figure(points=points)) for points in ([*some_points(), *failed], some_points()))
    assert [len(axes.lines) for axes in panels(with_it)] == [len(axes.lines) for axes in panels(without)]
    assert "tsit54" not in texts(with_it)
    assert panels(with_it)[0].get_xlabel() == "evaluations of the field"


def test_where_every_solver_failed_the_panels_say_so() -> None:
    points = [replace(point, metric=NAN, error=NAN) for point in some_points()]
    whole = drawn(a_figure(points=points, reference_metric=NAN, reference_error=float("inf"), order=NAN))
    assert texts(whole).count("every solver failed") == 2


def test_errors_of_zero_have_a_place_on_the_logarithmic_axis() -> None:
    points = [*some_points(), a_point("rk4", 1 / 64, error=0.0)]
    axes = panels(drawn(a_figure(points=points)))[1]
    (exact,) = (y[0] for x, y in curves(axes) if len(x) == 1 and x[0] == 1 / 64)
    assert axes.get_ylim()[0] < exact < min(point.error for point in points if point.error > 0)
    assert axes.get_yticklabels()[0].get_text() == "0"


def test_errors_that_are_all_zero_leave_no_other_tick_and_no_slope() -> None:
    whole = drawn(a_figure(points=[replace(point, error=0.0) for point in some_points()], reference_error=0.0))
    assert [label.get_text() for label in panels(whole)[1].get_yticklabels()] == ["0"]
    assert not any("order" in text for text in texts(whole))


def test_the_observed_slope_is_drawn_through_the_finest_rk4_solve() -> None:
    whole = drawn(a_figure(order=2.0))
    axes = panels(whole)[1]
    assert "as the reference went on: order 2.0" in texts(whole)
    x, y = next(curve for curve in curves(axes) if len(curve[0]) == 2 and curve[0][0] < min(STEPS))
    np.testing.assert_allclose(y, np.square(x) / 4)  # rk4's error here is precision^2 / 4
    assert max(x) == min(point.precision for point in some_points() if point.method == "rk4")  # and not beyond


@pytest.mark.parametrize("error", [1e-6, 1e-2])
def test_some_of_the_observed_slope_is_seen(error: float) -> None:
    points = [*some_points(), *(a_point("rk4", step / 2, error=error) for step in STEPS)]
    axes = panels(drawn(a_figure(points=points, order=2.0)))[1]
    _, y = next(curve for curve in curves(axes) if len(curve[0]) == 2 and 0 < curve[0][0] < min(STEPS) / 2)
    assert max(y) / max(min(y), axes.get_ylim()[0]) > 1.5


def test_a_solver_in_the_training_solvers_place_is_seen_on_it() -> None:
    own = a_point(metric=1.0, own=True)
    twin = replace(own, method="midpoint", own=False)
    axes = panels(drawn(a_figure(points=[own, twin])))[0]
    marks = {line.get_marker(): line for line in axes.lines if len(line.get_xdata()) == 1}  # type: ignore[arg-type]
    assert marks["x"].get_zorder() > marks["o"].get_zorder()
    assert marks["x"].get_color() == "white"


def test_no_words_lie_on_the_panels_of_solvers() -> None:
    assert all(axes.get_legend() is None for axes in panels(drawn(a_figure(order=1.0))))


@pytest.mark.parametrize("alone", [True, False])
def test_no_solver_counts_where_the_verdict_looks_at_the_flow_alone(alone: bool) -> None:
    words = [str(item.get_label()) for item in sweep_legend(a_figure(of_flow_alone=alone))]
    assert any("counts" in each for each in words) is not alone


@pytest.mark.parametrize(("name", "precision", "shown"), [("step", 1 / 64, "1/64"), ("tolerance", 1e-3, "0.001")])
def test_steps_are_shown_as_fractions_and_tolerances_as_numbers(name: str, precision: float, shown: str) -> None:
    figure = a_figure(points=[a_point(precision=precision, own=True)], precision_name=name)
    assert figure.trained_with == f"euler, {name} {shown}"


def test_without_counted_evaluations_metrics_stand_against_precision() -> None:
    points = [replace(point, evaluations=0) for point in some_points()]
    assert panels(draw_audit(a_figure(points=points)))[0].get_xlabel() == "step"


def test_metrics_far_off_do_not_squeeze_those_that_decide() -> None:
    points = [*some_points(), a_point(metric=1e6, counts=False), a_point(metric=1e7, counts=False)]
    axes = panels(draw_audit(a_figure(points=points, metric_name="squared error")))[0]
    assert axes.get_ylim()[1] < 2
    assert axes.get_title() == "The same weights under other solvers (2 outside)"


def test_tolerances_and_unknown_methods_can_be_drawn(tmp_path: Path) -> None:
    points = [a_point("dopri54", 1e-4, own=True), a_point("adams", 1e-5), a_point("bosh32", 1e-3)]
    draw_audit(a_figure(points=points, precision_name="tolerance", order=None), tmp_path / "audit.png")
    assert size(tmp_path / "audit.png") == (WIDTH, HEAD + LINE + SOLVERS)


def test_planes_share_their_limits_where_that_is_reasonable() -> None:
    own, flow = panels(draw_audit(a_figure(plane=a_plane(scale=3.0))))[2:]
    assert (own.get_xlim(), own.get_ylim()) == (flow.get_xlim(), flow.get_ylim())
    assert not any("limits" in text for text in [*texts(own), *texts(flow)])


def test_a_plane_much_wider_has_limits_of_its_own_and_says_so() -> None:
    own, flow = panels(draw_audit(a_figure(plane=a_plane(scale=99.0))))[2:]
    assert flow.get_xlim()[1] > 10 * own.get_xlim()[1]
    assert "limits of its own" in texts(own)
    assert any("times as wide; inset: as on the left" in text for text in texts(flow))
    (inset,) = flow.child_axes
    assert inset.get_xlim() == own.get_xlim()


def test_a_few_points_far_off_end_outside_and_are_counted() -> None:
    plane = a_plane()
    plane.own[-1, -1] = 1000.0
    own = panels(draw_audit(a_figure(plane=plane)))[2]
    assert own.get_xlim()[1] < 10
    assert "1 of 100 points end outside" in texts(own)


def test_a_single_point_that_stands_still_can_be_drawn(tmp_path: Path) -> None:
    still = Plane(own=np.ones((2, 1, 2)), flow=np.ones((3, 1, 2)), labels=np.array([1]), decide=None)
    draw_audit(a_figure(plane=still, points=[a_point(own=True)]), tmp_path / "audit.png")
    assert size(tmp_path / "audit.png") == (WIDTH, HEAD + LINE + SOLVERS + PLANES)


@pytest.mark.parametrize(("scale", "classes"), [(1.5, 3), (99.0, 10)])
def test_no_text_lies_on_another_or_leaves_the_figure(scale: float, classes: int) -> None:
    whole = drawn(a_figure(sentence=SENTENCE * 3, plane=a_plane(classes, scale)))
    boxes = [(text.get_text(), text.get_window_extent()) for text in visible(whole)]
    assert len(boxes) > 40
    assert [words for words, box in boxes if not whole.bbox.containsx(box.x0) or not whole.bbox.containsx(box.x1)] == []
    assert [words for words, box in boxes if not whole.bbox.containsy(box.y0) or not whole.bbox.containsy(box.y1)] == []
    pairs = [(boxes[i], boxes[j]) for i in range(len(boxes)) for j in range(i)]
    assert [(one, other) for (one, a), (other, b) in pairs if a.overlaps(b)] == []


def visible(whole: Figure) -> list[Text]:
    """All texts, without the labels of ticks beyond an axis's limits, which matplotlib keeps but does not draw."""
    found = [text for row in whole.subfigs for text in [*row.texts, *(t for g in row.legends for t in g.get_texts())]]
    for axes in panels(whole):
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            labels = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            found += [label for place, label in labels if low <= place <= high]
    return [text for text in found if text.get_text()]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"own": np.zeros((9, 30))}, r"own must have shape \[steps \+ 1, points, 2\], not \(9, 30\)"),
        ({"flow": np.zeros((9, 30, 3))}, "flow must have shape"),
        ({"flow": np.zeros((9, 29, 2))}, "own and flow must be trajectories of the same points, not of 100 and 29"),
        ({"own": np.full((9, 30, 2), np.nan)}, "own must be finite: 30 of 30 trajectories are not"),
        ({"labels": np.zeros(29)}, r"labels must have shape \[100\], one for each point, not \(29,\)"),
        ({"labels": np.full(100, 10)}, "labels must be classes from 0 to 9, and 10 is among them"),
    ],
)
def test_arrays_that_make_no_plane_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        replace(a_plane(), **change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"outcome": "MAYBE"}, "outcome must be FLOW, TIED, COARSE, MOVED or UNDECIDED, not 'MAYBE'"),
        ({"precision_name": "h"}, "precision_name must be 'step' or 'tolerance', not 'h'"),
        ({"points": []}, r"points must hold the training solver \(own=True\) once, not 0 times"),
        ({"points": [a_point(own=True)] * 2}, "once, not 2 times"),
        ({"threshold": -0.1}, "threshold must be a number of at least 0, not -0.1"),
    ],
)
def test_what_makes_no_figure_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        a_figure(**change)


@pytest.mark.parametrize("change", [{"precision": 0.0}, {"precision": NAN}, {"evaluations": -1}, {"error": -1.0}])
def test_what_makes_no_point_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="of euler must"):
        replace(a_point(), **change)


@pytest.mark.usefixtures("coarse_pictures")
def test_decisions_of_a_wrong_shape_or_class_are_refused() -> None:
    with pytest.raises(UsageError, match=r"decide must turn points \[90000, 2\] into classes \[90000\], not"):
        draw_audit(a_figure(plane=replace(a_plane(), decide=lambda points: points)))
    with pytest.raises(UsageError, match="predicted must be classes from 0 to 9, and 10 is among them"):
        draw_audit(a_figure(plane=replace(a_plane(), decide=lambda points: np.full(len(points), 10))))


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="its folder does not exist"):
        draw_audit(a_figure(), tmp_path / "nowhere" / "audit.png")


def test_steps_read_as_fractions() -> None:
    assert [fraction(value) for value in (1 / 64, 1 / 3, 0.75, 2.0, 1024.0, 1e-6)] == [
        "1/64", "1/3", "0.75", "2", "1024", "1e-06",
    ]  # fmt: skip
