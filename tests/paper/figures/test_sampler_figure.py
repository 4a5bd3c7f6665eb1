"""Tuned samplers as they are drawn."""

from pathlib import Path

import pytest
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from windermere.paper.figures.sampler_figure import ControlledPanel, TunedPoint, draw_controlled


def test_a_controller_has_its_colour_of_the_legend_in_every_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[Figure]()
    monkeypatch.setattr("windermere.paper.figures.sampler_figure.save", lambda figure, path: kept.append(figure))
    constant = [TunedPoint(cost=cost, own=[0.1], flow=[0.2]) for cost in (2, 4)]
    every = [("one", [3.0], [0.1]), ("other", [5.0], [0.3])]
    panels = [
        ControlledPanel(title="", score="", constant=constant, controllers=shown, flow_before=[0.1, 0.2])
        for shown in (every, every[1:])
    ]
    draw_controlled(panels, Path("unused.png"))
    (figure,) = kept
    (body,) = figure.subfigs
    colours = [{tuple(to_rgba_array(dots.get_facecolor())[0]) for dots in axes.collections} for axes in body.axes]
    (legend,) = body.legends
    signs = {text.get_text(): line for text, line in zip(legend.texts, legend.legend_handles, strict=True)}
    sign = signs["other"]
    assert isinstance(sign, Line2D)
    other = tuple(to_rgba_array(sign.get_color())[0])
    assert other in colours[0]
    assert colours[1] == {other}
