"""Figures are PNGs of a known size, the same for the same data, and refuse what they cannot draw."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from tests.pictures import inches, size
from windermere.errors import StorageError, UsageError
from windermere.paper.figures.trajectory_figure import TrajectoryPanel, draw_trajectories
from windermere.report.frame import DecisionRegions, Frame

pytestmark = pytest.mark.usefixtures("coarse_pictures")


def a_panel() -> TrajectoryPanel:
    """Two circles carried round by Euler's method, which spirals outwards."""
    angles = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    states = [np.concatenate([0.2 * circle, 0.4 * circle])]
    for _ in range(8):
        states.append(states[-1] + states[-1] @ np.array([[0.0, 1.0], [-1.0, 0.0]]) / 8)
    xx, yy = Frame.around(np.stack(states)).grid(50)
    return TrajectoryPanel(
        title="trained with 8 Euler steps: leans on its solver",
        states=np.stack(states),
        labels=np.repeat([0, 1], 20),
        test_steps=np.array([1, 2, 4, 8, 16]),
        accuracy=np.array([0.5, 0.6, 0.8, 1.0, 0.9]),
        trained_steps=8,
        decision=DecisionRegions(xx=xx, yy=yy, predicted=(np.hypot(xx, yy) > 0.4).astype(int)),
    )


@pytest.mark.parametrize("count", [1, 3])
def test_trajectories_are_a_png_of_750_by_1275_pixels_a_panel(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    draw_trajectories([a_panel()] * count, tmp_path / "figure.png")
    assert size(tmp_path / "figure.png") == (750 * count, 1275)
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure.png"]


def test_a_title_of_two_lines_is_inside_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    draw_trajectories([a_panel()] * 2, tmp_path / "figure.png")
    picture = np.asarray(Image.open(tmp_path / "figure.png").convert("L"))
    assert picture[:3].min() > 200


def test_the_same_data_give_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    draw_trajectories([a_panel()], tmp_path / "trajectories.png")
    theirs: dict[Any, Any] = {
        "savefig.bbox": "tight",
        "text.color": "white",
        "font.size": 20.0,
        "axes.grid": True,
    }
    with matplotlib.rc_context(theirs):
        draw_trajectories([a_panel()], tmp_path / "trajectories again.png")
        assert {name: matplotlib.rcParams[name] for name in theirs} == theirs
    assert (tmp_path / "trajectories.png").read_bytes() == (tmp_path / "trajectories again.png").read_bytes()


def test_the_suffix_decides_between_png_and_svg_and_an_svg_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw_trajectories([a_panel()], tmp_path / name)
    first = (tmp_path / "one.svg").read_bytes()
    assert ElementTree.fromstring(first).tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<dc:date>" not in first
    assert (tmp_path / "two.svg").read_bytes() == first
    with pytest.raises(UsageError, match=r"a figure is saved as \.png or \.svg, and 'figure\.pdf' ends in neither"):
        draw_trajectories([a_panel()], tmp_path / "figure.pdf")


def test_accuracies_of_several_seeds_are_drawn_in_one_panel(tmp_path: Path) -> None:
    several = replace(a_panel(), accuracy=np.linspace(0.4, 1, 15).reshape(3, 5))
    draw_trajectories([several], tmp_path / "figure.png")
    assert inches(tmp_path / "figure.png") == (5, 8.5)


def test_trajectories_that_go_too_far_to_be_shown_are_counted(tmp_path: Path) -> None:
    def words(panel: TrajectoryPanel) -> str:
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            draw_trajectories([panel], tmp_path / "figure.svg")
        return (tmp_path / "figure.svg").read_text()

    far = a_panel().states.copy()
    far[-1, :3] *= 1000
    assert "points end outside" not in words(a_panel())
    assert "3 of 40 points end outside" in words(replace(a_panel(), states=far))


def test_other_data_give_another_picture(tmp_path: Path) -> None:
    draw_trajectories([a_panel()], tmp_path / "one.png")
    draw_trajectories([replace(a_panel(), labels=np.repeat([1, 0], 20))], tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()


def test_a_single_point_that_stands_still_can_be_drawn(tmp_path: Path) -> None:
    panel = TrajectoryPanel(
        title="a long title without any colon in it that has to be broken somewhere to fit",
        states=np.ones((2, 1, 2)),
        labels=np.array([1]),
        test_steps=np.array([3]),
        accuracy=np.array([0.0]),
        trained_steps=3,
    )
    draw_trajectories([panel], tmp_path / "figure.png")
    assert inches(tmp_path / "figure.png") == (5, 8.5)


def test_the_frame_around_states_is_a_square_that_holds_them_all() -> None:
    states = np.array([[[0.0, 0.0], [4.0, 1.0]], [[1.0, -1.0], [2.0, 0.5]]])
    frame = Frame.around(states)
    assert frame.right - frame.left == pytest.approx(frame.top - frame.bottom)
    assert frame.left < 0.0 < 4.0 < frame.right
    assert frame.bottom < -1.0 < 1.0 < frame.top
    xx, yy = frame.grid(5)
    assert xx.shape == yy.shape == (5, 5)
    assert (xx[0, 0], xx[0, -1], yy[0, 0], yy[-1, 0]) == (frame.left, frame.right, frame.bottom, frame.top)


def test_decision_regions_of_different_shapes_are_refused() -> None:
    grid = np.zeros((3, 3))
    with pytest.raises(UsageError, match=r"xx, yy and predicted must share one shape \[R, C\]"):
        DecisionRegions(xx=grid, yy=grid[:2], predicted=grid)
    with pytest.raises(UsageError, match="predicted must be classes from 0 to 9"):
        DecisionRegions(xx=grid, yy=grid, predicted=grid + 0.5)


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="its folder does not exist"):
        draw_trajectories([a_panel()], tmp_path / "nowhere" / "figure.png")
