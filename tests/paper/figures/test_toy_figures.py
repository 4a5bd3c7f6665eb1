"""Panels of the fan, the crossing field and the outputs refuse what they cannot draw."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from windermere.errors import UsageError
from windermere.paper.figures import FanPanel, Ladder, OutputsPanel, Walks, draw_classes, draw_outputs
from windermere.report.frame import DecisionRegions, Frame


def outputs_panel(scale: float = 1.0) -> OutputsPanel:
    """Two clusters on both sides of x = 0, and some points of class 0 on the wrong side; scale spreads the right."""
    generator = np.random.default_rng(0)
    right, wrong = generator.normal(size=(60, 2)) * scale, generator.normal(size=(10, 2)) * 0.1 + [3, 0]
    outputs = np.concatenate([right, wrong])
    xx, yy = Frame.around(outputs).grid(30)
    predicted = (outputs[:, 0] > 0).astype(int)
    return OutputsPanel(
        title="tested with h = 1/4",
        remark="10 of 70 wrong",
        outputs=outputs,
        labels=np.concatenate([predicted[:60], np.zeros(10, dtype=int)]),
        predicted=predicted,
        decision=DecisionRegions(xx=xx, yy=yy, predicted=(xx > 0).astype(int)),
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_outputs_are_750_by_885_pixels_a_panel_with_and_without_an_inset(
    tmp_path: Path, count: int, scale: float
) -> None:
    draw_outputs([outputs_panel(scale)] * count, tmp_path / "figure.png")
    assert imread(tmp_path / "figure.png").shape[:2] == (885, 750 * count)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"outputs": np.zeros((70, 3))}, r"outputs must be finite, of shape \[points, 2\], not \(70, 3\)"),
        ({"outputs": np.full((70, 2), np.nan)}, "outputs must be finite"),
        ({"labels": np.zeros(69)}, r"labels must have shape \[70\]"),
        ({"predicted": np.zeros(69)}, r"predicted must have shape \[70\]"),
    ],
)
def test_arrays_that_make_no_outputs_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        replace(outputs_panel(), **change)


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to draw"):
        draw_outputs([], tmp_path / "figure.png")


def test_a_data_set_whose_points_lack_labels_is_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"labels must have shape \[3\]"):
        draw_classes(np.zeros((3, 2)), np.zeros(2), "three points", tmp_path / "figure.png")


def test_states_outcomes_and_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="states must have shape"):
        FanPanel(title="", outcome="", states=np.zeros((3, 4)), labels=np.zeros(4), line=None)
    with pytest.raises(UsageError, match=r"sets must have shape \[4\]"):
        Walks(title="", states=np.zeros((3, 4, 2)), sets=np.zeros(3))
    for outcomes in (["separable"], ["separable", "perhaps"]):
        with pytest.raises(UsageError, match="a ladder needs one of"):
            Ladder(steps=np.array([0.1, 0.01]), outcomes=outcomes, flow="separable", marked={})
