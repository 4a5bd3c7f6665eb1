"""All grids at a glance: the same bytes for the same losses, and what counts as none is shaded."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from windermere.paper.figures.losses_figure import LossCurve, LossPanel, draw_losses

EULER = LossCurve(method="euler", costs=[1, 8, 64], losses=[[0.5, 0.4], [0.2], [-0.01, 0.0]])
RK4 = LossCurve(method="rk4", costs=[4], losses=[[0.05]])
PANELS = [LossPanel(title="Sphere2", curves=[EULER, RK4]), LossPanel(title="MNIST", curves=[RK4])]


def test_the_same_losses_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    for path in (one, two):
        draw_losses(PANELS, 0.1, path)
    assert one.read_bytes() == two.read_bytes()


def test_a_method_looks_the_same_in_every_panel_and_each_seed_is_within_the_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr("windermere.paper.figures.losses_figure.save", lambda figure, path: drawn.append(figure))
    draw_losses(PANELS, 0.1, "a.png")
    sphere2, mnist = drawn[0].axes
    euler, rk4, only = (line for axes in (sphere2, mnist) for line in axes.lines)
    assert np.asarray(euler.get_ydata()) == pytest.approx([0.45, 0.2, -0.005])
    assert (rk4.get_color(), rk4.get_marker()) == (only.get_color(), only.get_marker())
    assert euler.get_color() != rk4.get_color()
    low, high = sphere2.get_ylim()
    assert low < -0.01
    assert high > 0.5
